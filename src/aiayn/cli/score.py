"""`aiayn score`: how probable a model finds given translations."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from aiayn.cli.arguments import ModelChoice, Positional, RunArgument
from aiayn.cli.texts import FILE_LINES, show_progress, write_lines
from aiayn.config.rules import flag, one_of, require
from aiayn.errors import counted

if TYPE_CHECKING:
    from aiayn.search.force_decode import ScoredPair


@dataclass(kw_only=True, frozen=True)
class ScoreOptions:
    """What is written for a pair."""

    style: str = flag("text", "text, or jsonl: JSON objects with every token.", "--format")
    per_token: bool = flag(False, "Divide by the number of subwords, the end mark included.")

    def __post_init__(self) -> None:
        one_of("--format", self.style, ("text", "jsonl"))
        require(
            not self.per_token or self.style == "text",
            "--per-token prints one number for each pair; leave out --format",
        )


def score(
    run: RunArgument,
    src: Annotated[
        Path,
        Positional("Source text, or a file of pairs: .tsv, .jsonl, .tmx.", metavar="SRC"),
    ],
    options: ScoreOptions,
    model: ModelChoice,
    tgt: Annotated[
        Path | None,
        Positional("Its translations, line by line, plain or .gz.", metavar="TGT"),
    ] = None,
) -> None:
    """Prints log P of given translations, line by line.

    This is the log-probability, in nats, of the line's subwords and end mark; `aiayn translate
    --format jsonl` calls it log_prob. Standard error gets the perplexity of all lines.

    --per-token divides log P by the number of subwords, which separates wrong pairs from right ones
    better.

    --format jsonl prints one JSON object for each pair: index, source, translation, log_prob, score
    (log_prob divided by the length penalty), tokens, and token_log_probs: log P of each token given
    those before it.
    """
    from aiayn.data.sources import FileText, is_pair_file
    from aiayn.data.text_files import read_lines, read_parallel

    require(
        tgt is not None or is_pair_file(src.name),
        f"{src}: name the file with its translations as well, or a single file of pairs (.tsv, "
        ".jsonl, .tmx)",
    )
    sources = read_lines(src) if tgt else []
    targets = read_parallel("TGT", tgt, len(sources)) if tgt else []
    with model.open(run, only_torch="translations are scored in torch") as (opened, _):
        translator = opened.in_torch()
    if tgt is None:
        sources, targets = FileText("SRC", [str(src)], translator.languages).read()
    log_prob, tokens = 0.0, 0
    with show_progress(len(sources)) as progress_of:
        for start in range(0, len(sources), FILE_LINES):
            chunk = slice(start, start + FILE_LINES)
            texts = sources[chunk], targets[chunk]
            on_batch = progress_of(start, len(texts[0]))
            pairs = translator.score(*texts, on_batch, start + 1)
            lines = []
            for index, (source, target, pair) in enumerate(zip(*texts, pairs, strict=True), start):
                if options.style == "text":
                    value = per_token(pair) if options.per_token else pair.log_prob
                    lines.append(f"{value:.6f}")
                    continue
                fields = {
                    "index": index,
                    "source": source,
                    "translation": target,
                    "log_prob": pair.log_prob,
                    "score": pair.score,
                    "tokens": translator.tokenizer.tokens(pair.tokens),
                    "token_log_probs": pair.token_log_probs,
                }
                lines.append(json.dumps(fields, ensure_ascii=False))
            write_lines(lines)
            log_prob += sum(pair.log_prob for pair in pairs)
            tokens += sum(len(pair.tokens) for pair in pairs)
    from aiayn.search.force_decode import perplexity

    size = f"({counted(len(sources), 'line')}, {tokens:,} subwords with end marks)"
    print(f"perplexity {perplexity(log_prob, tokens):.4f} {size}", file=sys.stderr)


def per_token(pair: "ScoredPair") -> float:
    """Returns log P per subword, the end mark included; 0 for a pair of blank lines."""
    return pair.log_prob / len(pair.tokens) if pair.tokens else 0.0
