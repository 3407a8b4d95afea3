"""`aiayn prepare`: the corpus of a training, before it is trained on."""

import logging
from typing import Annotated

from aiayn.cli.arguments import Positional


def prepare(
    options: Annotated[
        list[str] | None,
        Positional("Options of `aiayn train`.", metavar="[GROUP=NAME] [KEY=VALUE]"),
    ] = None,
) -> None:
    """Prepares a corpus for `aiayn train` with the same options.

    Downloads and cleans the text, learns the vocabulary and encodes, on all cores of this machine.
    """
    from aiayn.config.compose import compose_training
    from aiayn.config.messages import refuse_repeated
    from aiayn.config.schema import Config
    from aiayn.data.preparation import check_text, infer_from_text, prepare_corpus
    from aiayn.errors import ConfigError

    refuse_repeated(options or [], Config)
    composed = compose_training(options or [])
    if composed.init_from is not None:
        raise ConfigError(
            f"init_from={composed.init_from}: not supported here, because `aiayn prepare` learns a "
            "new vocabulary; run `aiayn train`, which prepares the text itself"
        )
    logging.basicConfig(format="%(message)s")
    logging.getLogger("aiayn").setLevel(logging.INFO)
    check_text(composed.data)
    sized = infer_from_text(composed)
    print(prepare_corpus(sized.data).folder)
