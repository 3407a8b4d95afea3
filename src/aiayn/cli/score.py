"""`aiayn score`: how probable a model finds given translations."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiayn.cli.arguments import ModelChoice, RunArgument
from aiayn.cli.texts import FILE_LINES, show_progress, write_lines
from aiayn.config.rules import one_of, require
from aiayn.errors import DataError, counted

if TYPE_CHECKING:
    from aiayn.search.force_decode import ScoredPair
    from aiayn.search.translator import Translator


def score(
    run: RunArgument,
    src: Annotated[
        Path,
        typer.Argument(metavar="SRC", help="Source text, or a file of pairs: .tsv, .jsonl, .tmx."),
    ],
    *,
    style: Annotated[
        str, typer.Option("--format", help="text, or jsonl: JSON objects with every token.")
    ] = "text",
    each_token: Annotated[
        bool,
        typer.Option(
            "--per-token", help="Divide by the number of subwords, the end mark included."
        ),
    ] = False,
    model: ModelChoice,
    tgt: Annotated[
        Path | None,
        typer.Argument(metavar="TGT", help="Its translations, line by line, plain or .gz."),
    ] = None,
) -> None:
    """Prints log P of given translations, line by line.

    This is the log-probability, in nats, of the line's subwords and end mark; `aiayn translate
    --format jsonl` calls it log_prob. Standard error gets the perplexity of all lines.

    --per-token divides it by the number of these subwords, which tells wrong pairs from right ones.

    --format jsonl prints one JSON object for each pair: index, source, translation, log_prob, score
    (log_prob divided by the length penalty), tokens, and token_log_probs: log P of each token given
    those before it.
    """
    one_of("--format", style, ("text", "jsonl"))
    require(
        not each_token or style == "text",
        "--per-token prints one number for each pair; leave out --format",
    )
    from aiayn.data.sources import FileText, is_pair_file

    require(
        tgt is not None or is_pair_file(src.name),
        f"{src}: name the file with its translations as well, or a single file of pairs (.tsv, "
        ".jsonl, .tmx)",
    )
    lines = _aligned_lines(src, tgt) if tgt else None
    translator = model.load(run)
    sources, targets = lines or FileText("SRC", [str(src)], translator.languages).read()
    from aiayn.search.force_decode import perplexity

    log_prob, tokens = 0.0, 0
    with show_progress(len(sources)) as progress:
        for start in range(0, len(sources), FILE_LINES):
            chunk = slice(start, start + FILE_LINES)
            on_batch = progress and (
                lambda n_scored, _, start=start: progress(start + n_scored, len(sources))
            )
            pairs = translator.score(sources[chunk], targets[chunk], on_batch, start + 1)
            if style == "jsonl":
                texts = zip(sources[chunk], targets[chunk], pairs, strict=True)
                write_lines(
                    _as_json(translator, start + n, *scored) for n, scored in enumerate(texts)
                )
            else:
                write_lines(
                    f"{per_token(pair) if each_token else pair.log_prob:.6f}" for pair in pairs
                )
            log_prob += sum(pair.log_prob for pair in pairs)
            tokens += sum(len(pair.tokens) for pair in pairs)
    size = f"({counted(len(sources), 'line')}, {tokens:,} subwords with end marks)"
    print(f"perplexity {perplexity(log_prob, tokens):.4f} {size}", file=sys.stderr)


def per_token(pair: "ScoredPair") -> float:
    """Returns log P per subword, the end mark included; 0 for a pair of blank lines."""
    return pair.log_prob / len(pair.tokens) if pair.tokens else 0.0


def _aligned_lines(src: Path, tgt: Path) -> tuple[list[str], list[str]]:
    """Reads two files. Raises DataError if their lines cannot translate each other."""
    from aiayn.data.text_files import read_lines

    sources, targets = read_lines(src), read_lines(tgt)
    if len(sources) != len(targets):
        raise DataError(
            f"{src} has {counted(len(sources), 'line')} and {tgt} has {len(targets):,}: line N of "
            "one must translate line N of the other (only LF ends a line)"
        )
    return sources, targets


def _as_json(
    translator: "Translator", index: int, source: str, target: str, pair: "ScoredPair"
) -> str:
    fields = {
        "index": index,
        "source": source,
        "translation": target,
        "log_prob": pair.log_prob,
        "score": pair.score,
        "tokens": translator.tokenizer.tokens(pair.tokens),
        "token_log_probs": pair.token_log_probs,
    }
    return json.dumps(fields, ensure_ascii=False)
