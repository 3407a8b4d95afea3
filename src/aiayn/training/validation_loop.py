"""Runs Lightning's own validation loop between two training steps."""

import pytorch_lightning as pl


def run_validation_loop(trainer: pl.Trainer) -> None:
    """Validates on all ranks, during a training: steps and hooks of the module and of all callbacks.

    Lightning itself starts the loop after the callbacks of a step, one of which has saved the step by then, and not
    after the last step. What was logged is in `trainer.callback_metrics`, and is left to the caller to send to loggers:
    Lightning would count the step from 0.
    """
    connector, loggers = trainer._logger_connector, trainer.loggers
    first = connector._first_loop_iter
    trainer.validating, trainer.loggers = True, []
    try:
        trainer.fit_loop.epoch_loop.val_loop.run()
    finally:
        trainer.training, trainer.loggers = True, loggers
        connector._first_loop_iter = first
        trainer.lightning_module.train()
