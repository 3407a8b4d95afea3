"""`aiayn translate`: text in, text out, one line for one line."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiayn.cli import formats, texts
from aiayn.cli.arguments import Debug, ModelOptions, RunArgument, with_options
from aiayn.cli.output import show_progress, write_lines
from aiayn.cli.texts import Chunk
from aiayn.config.schema import MAX_BEAM_SIZE, SamplingConfig, one_of
from aiayn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from aiayn.inference.placement import Places
    from aiayn.inference.translator import Progress, Translator


@dataclass(kw_only=True, frozen=True)
class OutputOptions:
    """What is written for a line, and what of a line is translated."""

    n_best: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=MAX_BEAM_SIZE, help="N translations per line, as INDEX ||| TEXT ||| SCORE."
        ),
    ] = None
    scores: Annotated[bool, typer.Option("--scores", help="Append a tab and the score to every translation.")] = False
    style: Annotated[
        str,
        typer.Option(
            "--format", help="text; jsonl: JSON with scores and alignments; of a parser tree (indented) or brackets."
        ),
    ] = "text"
    tsv: Annotated[
        int | None,
        typer.Option("--tsv", metavar="N", min=1, help="Translate column N of tab-separated lines, keep the others."),
    ] = None
    markup: Annotated[
        bool, typer.Option("--markup", help="Keep tags, {name}, %s and web addresses, and put them where they belong.")
    ] = False
    paragraphs: Annotated[bool, typer.Option("--paragraphs", help="Translate the sentences of a line one by one.")] = (
        False
    )

    def __post_init__(self) -> None:
        one_of("--format", self.style, ("text", "jsonl", "tree", "brackets"))

    def require_one_translation(self, what: str, sample: bool = False) -> None:
        """Raises ConfigError for options that write more, or something else, than one translation for each text."""
        if self.n_best or self.scores or self.style != "text" or sample:
            given = "--sample" if sample else "--n-best, --scores and --format"
            raise ConfigError(f"{what} writes one translation, the best, for each text; leave out {given}")


@dataclass(kw_only=True, frozen=True)
class SampleOptions:
    """Translations that are drawn instead of searched."""

    sample: Annotated[bool, typer.Option("--sample", help="Draw a translation at random instead of searching.")] = False
    seed: Annotated[int | None, typer.Option(help="Of --sample; by default 0.")] = None
    temperature: Annotated[float | None, typer.Option(help="Of --sample: below 1 safer, above 1 wilder.")] = None
    top_k: Annotated[int | None, typer.Option(help="Of --sample: only among the k most probable tokens.")] = None
    top_p: Annotated[
        float | None, typer.Option(help="Of --sample: only among the tokens that make up this probability.")
    ] = None

    def config(self, n_best: int | None, beam_size: int | None) -> SamplingConfig | None:
        """Returns None without --sample. Raises ConfigError for options that contradict each other."""
        given = {"seed": self.seed, "temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
        given = {name: value for name, value in given.items() if value is not None}
        if not self.sample:
            for name in given:
                raise ConfigError(f"--{name.replace('_', '-')} is an option of --sample; add --sample or leave it out")
            return None
        for name, value in (("--n-best", n_best), ("--beam-size", beam_size)):
            if value is not None:
                raise ConfigError(f"--sample draws one translation per line, without a beam; leave out {name}")
        return SamplingConfig(**{"seed": 0} | given)


@with_options
def translate(
    run: RunArgument,
    output: OutputOptions,
    sampling: SampleOptions,
    model: ModelOptions,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Text, plain or .gz; standard input if it is - or missing.")
    ] = None,
    devices: Annotated[int, typer.Option(min=1, metavar="N", help="Processes that share the lines of FILE.")] = 1,
    debug: Debug = False,
) -> None:
    """Translates text, one line for one line.

    The order is kept, and blank lines stay blank. Without FILE, on a terminal, it prompts for lines.

    A .jsonl file gets the translation as one more field of each object, a .tmx file becomes a translation memory of
    both languages, and a .tsv file with the languages over its columns gets the target's filled. With --tsv 2 every
    line is a row of columns with tabs between them, and the translation takes the place of the second one.

    A score is the log-probability of the translation divided by its length penalty. With --n-best every line gives up
    to N lines, best first; INDEX counts input lines from 0, as in Moses.

    With --format jsonl every translation is one JSON object: index, source, translation, score, log_prob,
    source_tokens, tokens, and alignment: for each token the index of the source token that was attended to most.

    A parser (data=treebank) reads words with spaces between them, as in its treebank: `It is n't here .`. It writes
    linear trees without words; with --format tree indented trees, with --format brackets a Penn tree per line.

    With --with RUN2 several runs with one vocabulary translate as one model: by the mean of their log-probabilities.

    With --sample every line's translation is drawn from the model's distribution. What is drawn depends on the seed and
    the line's number only, so the same command gives the same text.
    """
    drawing = sampling.config(output.n_best, model.beam_size)
    for name in [f"--{name}" for name in ("markup", "paragraphs", "tsv") if getattr(output, name)]:
        output.require_one_translation(name, sampling.sample and name != "--tsv")
    kind = _kind(run, file, output, sampling.sample)
    if devices > 1 and (kind == "stream" or drawing or output.markup or output.paragraphs):
        raise ConfigError(f"--devices {devices}: for a FILE only, without --sample, --markup and --paragraphs")
    from aiayn.data.text_files import read_lines

    lines = read_lines(file) if file and kind == "lines" else []
    translator = model.load(run)
    _check_task(translator, run, output)
    with _sharing(translator, devices) as translator:
        chunks, done = _chunks(translator, run, file, kind, lines), 0
        if output.tsv:
            chunks = texts.column_chunks(chunks, output.tsv)
        work = _Work(translator, output, drawing)
        with show_progress(len(lines)) as progress:
            for chunk in chunks:
                on_batch = progress and (lambda now, _, done=done: progress(done + now, len(lines)))
                write_lines(work.translated(chunk, done, on_batch))
                done += len(chunk.lines)
        work.say_what_was_kept()


def _sharing(translator: "Translator", devices: int) -> "AbstractContextManager[Translator]":
    if devices == 1:
        return nullcontext(translator)
    from aiayn.training.predict import on_devices

    return on_devices(translator, devices)


def _kind(run: Path, file: Path | None, output: OutputOptions, sample: bool) -> str:
    """Returns stream, lines, or by its ending how FILE is read: tsv, jsonl or tmx. Raises DataError for other files."""
    from aiayn.data.pair_files import pair_file_kind
    from aiayn.data.parallel_files import other_format

    if file is None or str(file) == "-":
        return "stream"
    if not file.exists():
        raise DataError(
            f"{file}: cannot be read (no such file); to translate a sentence instead of a file: "
            f"echo {shlex.quote(str(file))} | aiayn translate {run}"
        )
    if (remedy := other_format(file.name)) and not output.tsv:
        raise DataError(f"{file}: {remedy}")
    kind = "lines" if output.tsv else pair_file_kind(file.name) or "lines"
    if kind != "lines":
        output.require_one_translation(f"a .{kind} file", sample)
    return kind


def _chunks(translator: "Translator", run: Path, file: Path | None, kind: str, lines: list[str]) -> Iterator[Chunk]:
    if file is None or kind == "stream":
        if sys.stdin.isatty() and sys.stdout.isatty():
            return texts.prompted_chunks(f"{run}: a line to translate, or Ctrl-D to leave")
        return texts.stream_chunks()
    readers = {"tsv": texts.table_chunks, "jsonl": texts.json_chunks, "tmx": texts.memory_chunks}
    return readers[kind](file, translator.languages) if kind in readers else texts.file_chunks(lines)


def _check_task(translator: "Translator", run: Path, output: OutputOptions) -> None:
    """Raises ConfigError for output that this model does not have."""
    from aiayn.evaluation.tasks import task_of

    task = task_of(translator.task)
    if output.style not in (known := ("text", "jsonl", *task.formats)):
        raise ConfigError(f"--format {output.style}: {run} has learned {translator.task}; use {' or '.join(known)}")
    if (output.markup or output.paragraphs) and not task.reads_prose:
        raise ConfigError(f"--markup, --paragraphs: {run} has learned {translator.task}; leave them out")
    kept = translator.search.beam_size
    if output.n_best and output.n_best > kept:
        raise ConfigError(
            f"--n-best {output.n_best}: the search keeps {kept} translations; add --beam-size {output.n_best} or more"
        )


class _Work:
    """Translates chunks as the options say."""

    def __init__(self, translator: "Translator", output: OutputOptions, drawing: SamplingConfig | None):
        self.translator, self.output, self.drawing = translator, output, drawing
        self.places: Places | None = None  # of mark-up

    def translated(self, chunk: Chunk, done: int, on_batch: "Progress | None") -> Iterator[str]:
        """Returns the output lines of a chunk that comes after `done` lines."""
        from aiayn.evaluation.tasks import task_of

        task, output, lines = task_of(self.translator.task), self.output, chunk.lines
        show = task.formats.get(output.style)
        if output.markup or output.paragraphs:
            return iter(chunk.written(self._in_parts(lines, on_batch)))
        if show:
            lines = [task.source_line(line) for line in lines]
        if self.drawing:
            results = [[drawn] for drawn in self.translator.sample(lines, self.drawing, on_batch, done + 1)]
        else:
            results = self.translator.n_best(lines, output.n_best or 1, on_batch, done + 1)
        if output.style == "jsonl":
            return formats.as_json(self.translator, lines, results, done)
        if show:
            return formats.as_shown(lines, results, show)
        if output.n_best or output.scores:
            return formats.as_text(results, done, output.n_best is not None, output.scores)
        return iter(chunk.written([best.text for best, *_ in results]))

    def _in_parts(self, lines: list[str], on_batch: "Progress | None") -> list[str]:
        from aiayn.inference.markup import translate_markup, translate_paragraphs
        from aiayn.inference.placement import Places

        if not self.output.markup:
            return translate_paragraphs(self.translator, lines, on_batch)
        self.places = self.places or Places()
        found = translate_markup(self.translator, lines, paragraphs=self.output.paragraphs, on_batch=on_batch)
        for one in found:
            self.places.add(one.places)
        return [one.text for one in found]

    def say_what_was_kept(self) -> None:
        if self.places:
            print(f"mark-up: {self.places.shown()}", file=sys.stderr)
