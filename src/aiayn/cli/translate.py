"""`aiayn translate`: text in, text out, one line for one line."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiayn.cli import arguments
from aiayn.cli.output import FILE_LINES, show_progress, write_lines
from aiayn.config.schema import MAX_BEAM_SIZE, SamplingConfig, one_of
from aiayn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from aiayn.inference.translator import Translation, Translator
    from aiayn.parsing.tree import Tree

STREAM_BYTES = 1 << 17  # of a stream translated at once: up to 2,000 lines or so


def translate(
    run: arguments.RunArgument,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Text, plain or .gz; standard input if it is - or missing.")
    ] = None,
    n_best: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=MAX_BEAM_SIZE, help="N translations per line, as INDEX ||| TEXT ||| SCORE."
        ),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Append a tab and the score to every translation.")] = False,
    style: Annotated[
        str,
        typer.Option(
            "--format", help="text; jsonl: JSON with scores and alignments; of a parser tree (indented) or brackets."
        ),
    ] = "text",
    tsv: Annotated[
        int | None,
        typer.Option("--tsv", metavar="N", min=1, help="Translate column N of tab-separated lines, keep the others."),
    ] = None,
    sample: Annotated[
        bool, typer.Option("--sample", help="Draw a translation at random instead of searching.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Of --sample; by default 0.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of --sample: below 1 safer, above 1 wilder.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Of --sample: only among the k most probable tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Of --sample: only among the tokens that make up this probability.")
    ] = None,
    beam_size: arguments.BeamSize = None,
    length_penalty: arguments.Alpha = None,
    ensemble: arguments.With = None,
    checkpoint: arguments.CheckpointName = None,
    accelerator: arguments.Accelerator = "auto",
    precision: arguments.Precision = "float32",
    debug: arguments.Debug = False,
) -> None:
    """Translates text, one line for one line.

    The order is kept, and blank lines stay blank. Without FILE, on a terminal, it prompts for lines.

    A score is the log-probability of the translation divided by its length penalty. With --n-best every line gives up
    to N lines, best first; INDEX counts input lines from 0, as in Moses.

    With --format jsonl every translation is one JSON object: index, source, translation, score, log_prob,
    source_tokens, tokens, and alignment: for each token the index of the source token that was attended to most.

    A parser (data=treebank) reads words with spaces between them, as in its treebank: `It is n't here .`. It writes
    linear trees without words; with --format tree indented trees, with --format brackets a Penn tree per line.

    With --tsv 2 every line is a row of columns with tabs between them, and the translation takes the place of the
    second one.

    With --with RUN2 several runs with one vocabulary translate as one model: by the mean of their log-probabilities.

    With --sample every line's translation is drawn from the model's distribution. What is drawn depends on the seed and
    the line's number only, so the same command gives the same text.
    """
    from aiayn.data.text_files import read_lines
    from aiayn.parsing.tree import escape_brackets, indented, penn_brackets

    one_of("--format", style, ("text", "jsonl", "tree", "brackets"))
    if tsv and (n_best or scores or style != "text"):
        raise ConfigError("--tsv writes one translation into each row; leave out --n-best, --scores and --format")
    sampling = _sampling(sample, n_best, beam_size, seed=seed, temperature=temperature, top_k=top_k, top_p=top_p)
    on_stream = file is None or str(file) == "-"
    if file is not None and not on_stream and not file.exists():
        raise DataError(
            f"{file}: cannot be read (no such file); to translate a sentence instead of a file: "
            f"echo {shlex.quote(str(file))} | aiayn translate {run}"
        )
    lines = [] if on_stream else read_lines(file)
    translator = arguments.load_translator(run, checkpoint, beam_size, length_penalty, accelerator, precision, ensemble)
    if style in ("tree", "brackets") and translator.task != "parsing":
        raise ConfigError(f"--format {style}: {run} is no parser; use text or jsonl")
    if n_best and n_best > translator.search.beam_size:
        raise ConfigError(
            f"--n-best {n_best}: the search keeps {translator.search.beam_size} translations; "
            f"add --beam-size {n_best} or more"
        )
    if on_stream and sys.stdin.isatty() and sys.stdout.isatty():
        chunks = _prompted(f"{run}: a line to translate, or Ctrl-D to leave")
    elif on_stream:
        chunks = _stream()
    else:
        chunks = (lines[start : start + FILE_LINES] for start in range(0, len(lines), FILE_LINES))
    done = 0
    with show_progress(len(lines)) as progress:
        on_batch = progress and (lambda now, _: progress(done + now, len(lines)))
        for chunk in chunks:
            rows = _rows(chunk, tsv, done) if tsv else []
            if tsv:
                chunk = [row[tsv - 1] if row else "" for row in rows]
            if style in ("tree", "brackets"):
                chunk = [escape_brackets(line) for line in chunk]
            if sampling:
                results = [[drawn] for drawn in translator.sample(chunk, sampling, on_batch, done + 1)]
            else:
                results = translator.n_best(chunk, n_best or 1, on_batch, done + 1)
            if style == "jsonl":
                write_lines(_as_json(translator, chunk, results, done))
            elif style in ("tree", "brackets"):
                write_lines(_as_trees(chunk, results, indented if style == "tree" else penn_brackets))
            elif tsv:
                write_lines(_as_rows(rows, results, tsv))
            else:
                write_lines(_as_text(results, done, n_best is not None, scores))
            done += len(chunk)


def _sampling(
    sample: bool, n_best: int | None, beam_size: int | None, **options: float | None
) -> SamplingConfig | None:
    """Returns the options of --sample, None without it. Raises ConfigError for those that contradict each other."""
    given = {name: value for name, value in options.items() if value is not None}
    if not sample:
        for name in given:
            raise ConfigError(f"--{name.replace('_', '-')} is an option of --sample; add --sample or leave it out")
        return None
    for name, value in (("--n-best", n_best), ("--beam-size", beam_size)):
        if value is not None:
            raise ConfigError(f"--sample draws one translation per line, without a beam; leave out {name}")
    return SamplingConfig(**{"seed": 0} | given)


def _as_text(results: "list[list[Translation]]", first_index: int, n_best: bool, scores: bool) -> Iterator[str]:
    """Yields the output lines for the translations of each input line."""
    for index, translations in enumerate(results, first_index):
        for translation in translations:
            if n_best:
                yield f"{index} ||| {translation.text} ||| {translation.score:.4f}"
            else:
                yield f"{translation.text}\t{translation.score:.4f}" if scores else translation.text


def _rows(lines: list[str], column: int, done: int) -> list[list[str]]:
    """Returns the columns of lines after the first `done` lines, none of a blank one.

    Raises DataError for any other line without the column.
    """
    rows = [line.split("\t") if line else [] for line in lines]
    for number, row in enumerate(rows, done + 1):
        if 0 < len(row) < column:
            raise DataError(f"line {number} has {len(row)} columns: --tsv {column} needs {column}; correct it")
    return rows


def _as_rows(rows: list[list[str]], results: "list[list[Translation]]", column: int) -> Iterator[str]:
    """Yields each row with its translation in the place of the column."""
    for row, [best] in zip(rows, results, strict=True):
        yield "\t".join([*row[: column - 1], best.text.replace("\t", " "), *row[column:]]) if row else ""


def _as_trees(lines: list[str], results: "list[list[Translation]]", style: "Callable[[Tree], str]") -> Iterator[str]:
    """Yields the trees of each sentence, repaired where the model wrote none of it."""
    from aiayn.parsing.linear_form import repaired_tree

    for line, translations in zip(lines, results, strict=True):
        for translation in translations:
            yield style(repaired_tree(line, translation.text)[0])


def _as_json(
    translator: "Translator", lines: list[str], results: "list[list[Translation]]", first_index: int
) -> Iterator[str]:
    """Yields one JSON object per translation, in order of the lines."""
    from aiayn.inference.alignment import alignments

    src_ids = translator.source_ids(lines)
    found = [(number, translation) for number, best in enumerate(results) for translation in best]
    outputs = [translation.tokens for _, translation in found]
    aligned = alignments(translator, [src_ids[number] for number, _ in found], outputs)
    for (number, translation), alignment in zip(found, aligned, strict=True):
        fields = {
            "index": first_index + number,
            "source": lines[number],
            "translation": translation.text,
            "score": translation.score,
            "log_prob": translation.log_prob,
            "source_tokens": translator.tokenizer.tokens(src_ids[number]),
            "tokens": translator.tokenizer.tokens(translation.tokens),
            "alignment": alignment,
        }
        yield json.dumps(fields, ensure_ascii=False)


def _stream() -> Iterator[list[str]]:
    """Yields the whole lines read so far from standard input, so that output starts before the input ends."""
    from aiayn.data.cleaning import MAX_LINE_BYTES

    pending, done = b"", 0
    while block := sys.stdin.buffer.read1(STREAM_BYTES):
        *lines, pending = (pending + block).split(b"\n")
        if lines:
            yield _decoded(lines, done)
            done += len(lines)
        if len(pending) > 2 * MAX_LINE_BYTES:  # too long, whatever follows: the error for it is raised now
            _decoded([pending], done)
    if pending:
        yield _decoded([pending], done)


def _decoded(lines: list[bytes], done: int) -> list[str]:
    """Decodes lines after the first `done` lines, as `read_lines` does for files."""
    from aiayn.data.text_files import decode

    if not done:
        lines = [lines[0].removeprefix(b"\xef\xbb\xbf"), *lines[1:]]
    return [decode(line.removesuffix(b"\r"), "standard input", number) for number, line in enumerate(lines, done + 1)]


def _prompted(greeting: str) -> Iterator[list[str]]:
    """Yields lines typed on a terminal, one at a time."""
    import readline  # noqa: F401  (gives `input` its arrow keys)

    print(greeting, file=sys.stderr)
    while True:
        try:
            yield [input("> ")]
        except EOFError:
            print()
            return
