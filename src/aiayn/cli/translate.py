"""`aiayn translate`: translates text line by line, and documents in place."""

import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from aiayn.cli import texts
from aiayn.cli.arguments import ModelAndSearch, Option, Positional, RunArgument
from aiayn.cli.texts import FILE_LINES, Chunk, as_json, show_progress, write_lines
from aiayn.config.rules import flag, one_of, require
from aiayn.config.search import MAX_BEAM_SIZE, SamplingConfig
from aiayn.errors import ConfigError, DataError, counted

if TYPE_CHECKING:
    from aiayn.search.line_translator import LineTranslator, Progress
    from aiayn.search.translator import Translator


@dataclass(kw_only=True, frozen=True)
class OutputOptions:
    """How a line is read, and what is written for it."""

    n_best: int | None = flag(
        None,
        "N translations per line, as INDEX ||| TEXT ||| SCORE.",
        metavar="N",
        min=1,
        max=MAX_BEAM_SIZE,
    )
    scores: bool = flag(False, "Append a tab and the score to every translation.")
    given_style: str | None = flag(
        None,
        "text: lines, whatever the suffix of FILE; jsonl: JSON with scores and alignments; for a "
        "parser also tree (indented) or brackets.",
        "--format",
    )
    tsv: int | None = flag(
        None, "Translate column N of tab-separated lines and keep the others.", metavar="N", min=1
    )
    markup: bool = flag(
        False, "Keep tags, {name}, %s and web addresses, and put them where they belong."
    )
    paragraphs: bool = flag(False, "Translate a line's sentences one by one.")
    reviewed: bool = flag(False, "For .po files: do not mark translations as `fuzzy`.")
    attributes: bool = flag(False, "For .html files: also translate alt and title.")
    tag: str | None = flag(
        None, "Tag to put before every text, if data.train had tags: '<2de>'.", metavar="TAG"
    )

    def __post_init__(self) -> None:
        one_of("--format", self.style, ("text", "jsonl", "tree", "brackets"))
        require(
            not self.scores or self.style not in ("tree", "brackets"),
            f"--scores: not supported with --format {self.style}; use text or jsonl",
        )

    @property
    def style(self) -> str:
        return self.given_style or "text"

    def require_one_translation(self, option: str, sample: bool = False) -> None:
        """Raises ConfigError for options that write more, or something else, than one translation
        for each text.
        """
        refused = "--sample" if sample else "--n-best, --scores and --format"
        require(
            not (self.n_best or self.scores or self.style != "text" or sample),
            f"{option} allows only the best translation of each text; leave out {refused}",
        )


@dataclass(kw_only=True, frozen=True)
class SampleOptions:
    """Translations that are drawn instead of searched."""

    sample: bool = flag(False, "Draw a translation at random instead of searching.")
    seed: int | None = flag(None, "Random seed of --sample; by default 0.")
    temperature: float | None = flag(None, "With --sample: below 1 less random, above 1 more.")
    top_k: int | None = flag(None, "With --sample: draw only from the k most probable tokens.")
    top_p: float | None = flag(
        None,
        "With --sample: draw only from the most probable tokens, up to this total probability.",
    )

    def config(self, n_best: int | None, beam_size: int | None) -> SamplingConfig | None:
        """Returns None without --sample. Raises ConfigError for options that contradict each
        other.
        """
        options = {
            name: value
            for name, value in vars(self).items()
            if name != "sample" and value is not None
        }
        if not self.sample:
            for name in options:
                raise ConfigError(
                    f"--{name.replace('_', '-')} is an option of --sample; add --sample or leave "
                    "it out"
                )
            return None
        for name, value in (("--n-best", n_best), ("--beam-size", beam_size)):
            require(
                value is None,
                f"--sample draws one translation per line, without a beam; leave out {name}",
            )
        return SamplingConfig(**options)


def translate(
    run: RunArgument,
    output: OutputOptions,
    sampling: SampleOptions,
    model: ModelAndSearch,
    file: Annotated[
        Path | None,
        Positional("Text, plain or .gz; standard input if it is - or missing.", metavar="FILE"),
    ] = None,
    devices: Annotated[
        int,
        Option(
            "Number of GPUs, or of CPU processes, that share the lines of FILE.", min=1, metavar="N"
        ),
    ] = 1,
) -> None:
    """Translates text line by line, and documents in place.

    Without FILE, on a terminal, it prompts for lines. The output has one line per input line, also
    for blank lines.

    In web pages (.html), Markdown (.md), catalogues (.po), .xliff and subtitles (.srt) everything
    but the text stays unchanged. In .jsonl, each object gets a field with its translation; in .tsv
    and .csv with languages as column heads, empty cells of the target column are filled. A .tmx
    file becomes a translation memory of both languages. Existing translations stay. With --tsv 2,
    the translation replaces the second of the tab-separated columns. --format text reads any file
    as lines.

    The score is the log-probability of the translation divided by its length penalty. --n-best N
    prints up to N lines for each line, best first; INDEX counts input lines from 0, as in Moses.

    --format jsonl prints one JSON object for each translation: index, source, translation, score,
    log_prob, source_tokens, tokens, and alignment, which lists for each token the index of the
    source token that it attends to most.

    A parser (data=treebank) reads words with spaces between them, as in its treebank: `It is n't
    here .`. It writes linear trees without words. --format tree writes indented trees, and
    --format brackets writes one Penn tree per line.

    --with RUN2 translates with several runs that have the same vocabulary, using the mean of their
    log-probabilities.

    --sample draws each translation from the model's distribution. The draw depends only on the seed
    and the line's number, so the same command gives the same text.

    CTranslate2 translates if it supports the model. The model is converted once, into a folder
    beside its checkpoint. --sample, --with, --patience 0 and parts of extensions need torch.
    """
    drawing = sampling.config(output.n_best, model.beam_size)
    for name in [f"--{name}" for name in ("markup", "paragraphs", "tsv") if getattr(output, name)]:
        output.require_one_translation(name, sampling.sample and name != "--tsv")
    input_format = _input_format(run, file, output, sampling.sample)
    require(
        devices == 1 or input_format != "stream",
        f"--devices {devices}: only works with a FILE; leave it out to translate a stream",
    )
    from aiayn.data.text_files import suffix

    count = 0
    if file and input_format == "lines":
        count, chunks = texts.file_chunks(file)
    elif sys.stdin.isatty() and sys.stdout.isatty():
        chunks = texts.prompted_chunks(f"{run}: a line to translate, or Ctrl-D to leave")
    else:
        chunks = texts.stream_chunks()
    with model.open(run, devices, "--sample draws in torch" if drawing else None) as (
        translator,
        engine,
    ):
        _check_task(translator, run, output)
        print(engine, file=sys.stderr, flush=True)
        counts = Counter[str]()
        if file and input_format == "document":
            _write_document(translator, file, output, counts)
        else:
            if file and input_format == "unknown":
                if (ending := suffix(file.name)) not in translator.languages:
                    raise DataError(
                        f"{file}: .{ending} files are not supported; if it holds lines of text, "
                        "add --format text"
                    )
                count, chunks = texts.file_chunks(file)
            lines_done = 0
            with show_progress(count) as progress_of:
                for chunk in texts.column_chunks(chunks, output.tsv) if output.tsv else chunks:
                    on_batch = progress_of(lines_done, len(chunk.lines))
                    write_lines(
                        _translated(
                            translator, output, drawing, chunk, lines_done, counts, on_batch
                        )
                    )
                    lines_done += len(chunk.lines)
        if output.markup or any(counts.values()):
            total = counts.total() - counts["removed"]
            noun = "tag or placeholder" if total == 1 else "tags and placeholders"
            print(
                f"mark-up: {total} {noun} ({counts['by_model']} kept by the model, "
                f"{counts['by_alignment']} placed by word alignment, {counts['guessed']} by "
                f"position); removed because the source lacks them: {counts['removed']}",
                file=sys.stderr,
            )


def _input_format(run: Path, file: Path | None, output: OutputOptions, sample: bool) -> str:
    """Returns how FILE is read: stream, lines, document, or unknown if only the run's languages can
    tell.

    Raises DataError for files that are not read.
    """
    if file is None or str(file) == "-":
        return "stream"
    from aiayn.data.languages import LANGUAGE_CODES, short_code
    from aiayn.data.sources import OTHER_FORMATS
    from aiayn.data.text_files import suffix
    from aiayn.doors import is_behind

    if not file.exists():
        compressed = file.with_name(f"{file.name}.gz")
        remedy = f"to translate a sentence: echo {shlex.quote(str(file))} | aiayn translate {run}"
        if compressed.exists():
            remedy = f"did you mean {compressed}?"
        raise DataError(f"{file}: no such file; {remedy}")
    ending = suffix(file.name)
    if output.tsv or output.given_style == "text" or ending in ("", "txt", "text"):
        return "lines"
    is_language = short_code(ending) in LANGUAGE_CODES.values()
    if is_language or re.fullmatch("[a-z]{2,3}[-_][a-z]{2,4}", ending):
        return "lines"
    try:
        from aiayn.apps.documents.document import READERS
    except ImportError as error:
        raise ConfigError(
            f"{file}: {error.name} is not installed: pip install 'aiayn[text]'; if it holds lines "
            "of text, add --format text"
        ) from error
    if ending in READERS or is_behind("aiayn.documents", ending):
        output.require_one_translation(f"a .{ending} file", sample)
        return "document"
    if remedy := OTHER_FORMATS.get(ending):
        raise DataError(f"{file}: {remedy}")
    return "unknown"


def _check_task(translator: "LineTranslator", run: Path, output: OutputOptions) -> None:
    """Raises ConfigError for a tag, or output, that this model does not have."""
    from aiayn.evaluation.translation_task import task_of

    tags, task = translator.tokenizer.source.symbols, task_of(translator.task)
    require(
        not output.tag or output.tag in tags,
        f"--tag {output.tag}: not a tag of {run}; "
        + (f"choose one of {', '.join(tags)}" if tags else "it has none, leave --tag out"),
    )
    styles = ("text", "jsonl", *task.formats)
    require(
        output.style in styles,
        f"--format {output.style}: {run} was trained for {translator.task}; use "
        f"{' or '.join(styles)}",
    )
    require(
        task.reads_prose or not (output.markup or output.paragraphs),
        f"--markup, --paragraphs: {run} was trained for {translator.task}; leave them out",
    )
    kept = translator.search.beam_size
    require(
        (output.n_best or 1) <= kept,
        f"--n-best {output.n_best}: the search keeps {counted(kept, 'translation')}; add "
        f"--beam-size {output.n_best} or more",
    )


def _write_document(
    translator: "LineTranslator", file: Path, output: OutputOptions, counts: Counter[str]
) -> None:
    """Writes a document's translation; everything but text is copied."""
    from aiayn.apps.documents.document import parse_document
    from aiayn.apps.documents.markup import parts_of
    from aiayn.apps.documents.texts import translate_texts
    from aiayn.apps.encodings import read_whole
    from aiayn.data.languages import target_language

    source, target = translator.languages
    langs = source, target_language([output.tag or ""], target)
    document = parse_document(
        file,
        read_whole(file),
        langs,
        markup=output.markup,
        fuzzy=not output.reviewed,
        attributes=output.attributes,
    )
    parts_done, total = 0, len(document.parts)
    with show_progress(total) as progress_of:
        for group in document.groups(FILE_LINES):
            count = len(list(parts_of(group)))
            on_batch = progress_of(parts_done, count)
            [text], text_counts = translate_texts(
                translator,
                [group],
                markup=document.markup,
                paragraphs=output.paragraphs or document.is_prose,
                on_batch=on_batch,
                first_line=parts_done + 1,
                tag=output.tag,
            )
            sys.stdout.buffer.write(document.encode(text))
            sys.stdout.buffer.flush()
            counts.update(text_counts)
            parts_done += count
    if document.is_prose and not output.tag and (known := translator.tokenizer.source.symbols):
        print(
            f"{file}: no --tag given, although this model was trained with {', '.join(known)}",
            file=sys.stderr,
        )
    for remark in document.remarks:
        print(remark, file=sys.stderr)


def _translated(
    translator: "LineTranslator",
    output: OutputOptions,
    drawing: SamplingConfig | None,
    chunk: Chunk,
    lines_before: int,
    counts: Counter[str],
    on_batch: "Progress | None",
) -> Iterable[str]:
    """Returns the output lines of a chunk that comes after `lines_before` lines."""
    from aiayn.data.placeholders import has_letters, split_symbol
    from aiayn.evaluation.translation_task import task_of
    from aiayn.search.translations import Translation

    task, tag = task_of(translator.task), output.tag
    lines = [f"{tag} {line}" if tag and line.strip() else line for line in chunk.lines]
    show = task.formats.get(output.style)
    if output.markup or output.paragraphs:
        from aiayn.apps.documents.texts import translate_texts

        translated_lines, counted = translate_texts(
            translator, lines, output.markup, output.paragraphs, on_batch, lines_before + 1
        )
        counts.update(counted)
        return chunk.written(translated_lines)
    lines = [task.source_line(line) for line in lines]
    # A text without letters, such as 1984, is its own translation.
    symbols = translator.tokenizer.source.symbols
    untagged = (split_symbol(line, symbols)[1] for line in chunk.lines)
    copied = [
        Translation(text) if task.reads_prose and not has_letters(text) else None
        for text in untagged
    ]
    searched = ["" if copy else line for line, copy in zip(lines, copied, strict=True)]
    if drawing:
        drawn = cast("Translator", translator).sample(searched, drawing, on_batch, lines_before + 1)
        n_best = [[translation] for translation in drawn]
    else:
        n_best = translator.n_best(searched, output.n_best or 1, on_batch, lines_before + 1)
    n_best = [[copy] if copy else best for copy, best in zip(copied, n_best, strict=True)]
    if output.style == "jsonl":
        return as_json(translator, lines, n_best, lines_before)
    if show:
        return (
            show(line, translation.text)
            for line, best in zip(lines, n_best, strict=True)
            for translation in best
        )
    if output.n_best:
        return (
            f"{n} ||| {translation.text} ||| {translation.score:.4f}"
            for n, best in enumerate(n_best, lines_before)
            for translation in best
        )
    if output.scores:
        return (f"{best.text}\t{best.score:.4f}" for best, *_ in n_best)
    return chunk.written([best.text for best, *_ in n_best])
