"""`trainer.fast_dev_run`: a smoke test of everything that a run does, in a few steps."""

from dataclasses import replace

from aiayn.config.schema import Config


def few_steps(options: Config) -> Config:
    """Returns the options of a run of so many steps, which validates, saves and logs at its end, and sends nothing."""
    steps = int(options.trainer.fast_dev_run)
    few = dict.fromkeys(("max_steps", "val_every", "checkpoint_every", "limit_val_batches"), steps) | {"log_every": 1}
    sentences = min(options.trainer.val_bleu_sentences, 2)
    trainer = replace(options.trainer, **few, val_bleu_sentences=sentences, fast_dev_run=False)
    return replace(options, trainer=trainer, logger=replace(options.logger, kind="none"))
