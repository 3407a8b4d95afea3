"""`aiayn score`: how probable a model finds given translations."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiayn.cli import arguments
from aiayn.cli.output import FILE_LINES, show_progress, write_lines
from aiayn.config.schema import one_of
from aiayn.errors import DataError

if TYPE_CHECKING:
    from aiayn.inference.translator import ScoredPair, Translator


def score(
    run: arguments.RunArgument,
    src: Annotated[Path, typer.Argument(metavar="SRC", help="Source text, plain or .gz.")],
    tgt: Annotated[Path, typer.Argument(metavar="TGT", help="Its translation, line for line, plain or .gz.")],
    style: Annotated[str, typer.Option("--format", help="text, or jsonl: JSON objects with every token.")] = "text",
    length_penalty: arguments.Alpha = None,
    ensemble: arguments.With = None,
    checkpoint: arguments.CheckpointName = None,
    accelerator: arguments.Accelerator = "auto",
    precision: arguments.Precision = "float32",
    extension: arguments.Extensions = None,
    debug: arguments.Debug = False,
) -> None:
    """Prints log P of given translations, in nats, a line for each line.

    It is the log-probability of the line's subwords and the end mark after them: what `aiayn translate --format jsonl`
    calls log_prob if the text is cut into the same subwords. The perplexity of all lines goes to standard error.

    With --format jsonl every pair is one JSON object: index, source, translation, log_prob, score (log_prob divided by
    the length penalty), tokens, and token_log_probs: log P of each token given those before it.
    """
    from aiayn.data.text_files import read_lines

    one_of("--format", style, ("text", "jsonl"))
    sources, targets = read_lines(src), read_lines(tgt)
    if len(sources) != len(targets):
        raise DataError(
            f"{src} has {len(sources)} lines and {tgt} has {len(targets)}: line N of one must translate line N of the "
            "other (only LF ends a line)"
        )
    search = None, length_penalty
    translator = arguments.load_translator(run, checkpoint, *search, accelerator, precision, ensemble, extension)
    from aiayn.inference.translator import perplexity

    scored: list[ScoredPair] = []
    with show_progress(len(sources)) as progress:
        for start in range(0, len(sources), FILE_LINES):
            chunk = slice(start, start + FILE_LINES)
            on_batch = progress and (lambda now, _, start=start: progress(start + now, len(sources)))
            pairs = translator.score(sources[chunk], targets[chunk], on_batch, start + 1)
            if style == "jsonl":
                write_lines(_as_json(translator, sources[chunk], targets[chunk], pairs, start))
            else:
                write_lines(f"{pair.log_prob:.6f}" for pair in pairs)
            scored += pairs
    tokens = sum(len(pair.tokens) for pair in scored)
    print(
        f"perplexity {perplexity(scored):.4f} ({len(scored)} lines, {tokens} subwords with end marks)", file=sys.stderr
    )


def _as_json(
    translator: "Translator", sources: list[str], targets: list[str], pairs: "list[ScoredPair]", first_index: int
) -> Iterator[str]:
    """Yields one JSON object per pair."""
    for index, (source, target, pair) in enumerate(zip(sources, targets, pairs, strict=True), first_index):
        fields = {
            "index": index,
            "source": source,
            "translation": target,
            "log_prob": pair.log_prob,
            "score": pair.score,
            "tokens": translator.tokenizer.tokens(pair.tokens),
            "token_log_probs": pair.token_log_probs,
        }
        yield json.dumps(fields, ensure_ascii=False)
