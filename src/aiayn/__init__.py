"""Attention Is All You Need: the Transformer as one readable, reproducible application.

From Python:

    import aiayn

    config = aiayn.compose("experiment=quickstart", "trainer.max_steps=100")  # checked options
    run = aiayn.train(config)  # the folder of the run, outputs/quickstart
    scores = aiayn.evaluate(f"run={run}", "split=val")  # what evaluation.json holds
    translator = aiayn.load(run)
    print(translator.translate(["The cat sleeps."]))

Options are those of the command line. Public as well:

    aiayn.runs.checkpoints.load    a checkpoint file: weights, configuration, tokenizer
    aiayn.model.transformer        Transformer, the model of the paper, in torch alone
    aiayn.search.translator        Translator: translate, n_best
    aiayn.visualize.maps           attention weights of a sentence
    aiayn.evaluation.scoring       BLEU, chrF and TER of text
    aiayn.errors                   UserError and its kinds, which all of these raise

Nothing slow is imported before it is used.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytorch_lightning import Callback

    from aiayn.config.schema import Config
    from aiayn.data.datamodule import TranslationDataModule
    from aiayn.search.line_translator import LineTranslator
    from aiayn.training.module import TranslationModule

__all__ = ["compose", "evaluate", "load", "train"]
__version__ = "0.3.0"


def load(
    run: str | Path,
    checkpoint: str | None = None,
    accelerator: str = "auto",
    precision: str = "float32",
    extensions: Sequence[str] = (),
    module: "type[TranslationModule] | None" = None,
    engine: str = "auto",
    **search: Any,
) -> "LineTranslator":
    """Returns the translator of a run's folder.

    engine: auto takes CTranslate2, several times as fast, wherever it can express the model and the
    search, as `aiayn translate` does; torch is exact, and has `score`, `sample` and `model` as
    well; ctranslate2 forces that one.

    checkpoint is averaged, best, last or a file; None: averaged (best if that validated better),
    else last.
    search: beam_size, length_penalty and the other options of `search`; those not given are as the
    run was configured, but patience, which is 2 unless the engine is torch.
    extensions: files whose code may run, because it builds the model; module: the same, if `train`
    was given it.
    Raises RefusedError for a missing or damaged run, ConfigError for impossible options.
    """
    from aiayn.config.rules import one_of
    from aiayn.config.search import ENGINES, PRECISIONS, SearchOverrides

    one_of("accelerator", accelerator, ("auto", "cpu", "gpu"))
    one_of("precision", precision, PRECISIONS)
    one_of("engine", engine, ENGINES)
    defaults: dict[str, Any] = {} if engine == "torch" else {"patience": 2.0}
    overrides = SearchOverrides(**defaults | search)
    from aiayn.config.extensions import name_class, register_extensions
    from aiayn.runs.run_folder import find_checkpoints, with_stored

    extensions = with_stored(extensions, Path(run))
    register_extensions(extensions)
    if module:
        name_class(module)
    from aiayn.search.engine import Choice, open_translator

    choice = Choice(
        checkpoints=find_checkpoints(Path(run), (), checkpoint),
        search=overrides,
        engine=engine,
        accelerator=accelerator,
        precision=precision,
        extensions=extensions,
    )
    with open_translator(choice) as (translator, _):
        return translator


def compose(*options: str) -> "Config":
    """Returns the checked configuration that `aiayn train OPTIONS` runs with. Raises
    ConfigError.
    """
    from aiayn.config.compose import compose_training

    return compose_training(options)


def train(
    *options: "str | Config",
    module: "type[TranslationModule] | None" = None,
    datamodule: "type[TranslationDataModule] | None" = None,
    callbacks: "Sequence[Callback]" = (),
) -> Path:
    """Trains or resumes the run that the options describe, or one that `compose` returned;
    returns its folder.

    `module` and `datamodule` take the place of our own, `callbacks` are called beside ours; a run
    stores SHA-256 of their files. It runs in this process, in a notebook on one device. Raises
    UserError for whatever `aiayn train` would refuse, and InterruptedRunError if Ctrl-C stops it,
    after everything has been saved.
    """
    from aiayn.config.compose import compose_training
    from aiayn.config.schema import Config
    from aiayn.errors import ConfigError
    from aiayn.signals import refuse_windows

    refuse_windows()
    texts = [option for option in options if isinstance(option, str)]
    composed = [option for option in options if isinstance(option, Config)]
    if composed and len(options) > 1:
        raise ConfigError("pass the configuration alone; give further options to compose()")
    config, chosen = (composed[0], None) if composed else (compose_training(texts), texts)
    from aiayn.training.run import train as train_run

    return train_run(
        config, chosen=chosen, module=module, datamodule=datamodule, callbacks=callbacks
    )


def evaluate(*options: str) -> dict[str, Any]:
    """Scores a run as `aiayn evaluate OPTIONS` does; returns what it writes to evaluation.json."""
    from aiayn.config.compose import compose_evaluation

    config = compose_evaluation(options)
    from aiayn.config.stored import to_dict
    from aiayn.evaluation.evaluate import evaluate as evaluate_run

    return to_dict(evaluate_run(config))
