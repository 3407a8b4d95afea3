"""`aiayn`: what a trained run can do on the command line."""

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from aiayn.config import SearchOverrides
from aiayn.errors import ConfigError, DataError, ResourceError, UserError

if TYPE_CHECKING:
    from aiayn.inference.translator import Translation, Translator

STREAM_BYTES = 1 << 17  # at most so much of a stream is translated at once: some 2,000 lines
FILE_LINES = 2000

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, such as outputs/quickstart.")]
CheckpointName = Annotated[
    str | None, typer.Option(help="averaged, last or a file; else averaged where there is one, and last.")
]
Accelerator = Annotated[str, typer.Option(help="auto, cpu or gpu.")]
BeamSize = Annotated[int | None, typer.Option(help="Hypotheses kept per sentence; 1 is greedy search.")]
Alpha = Annotated[float | None, typer.Option(help="alpha: 0 favours short translations.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]


@app.callback(invoke_without_command=True)
def _no_command(context: typer.Context) -> None:
    """Uses a trained Transformer; all it needs is the run's folder. `aiayn COMMAND --help` says more."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def translate(
    run: RunFolder,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Text, plain or .gz; none or -: standard input.")
    ] = None,
    n_best: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="N translations a line, as INDEX ||| TEXT ||| SCORE.")
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Append a tab and the score to every translation.")] = False,
    beam_size: BeamSize = None,
    length_penalty: Alpha = None,
    checkpoint: CheckpointName = None,
    accelerator: Accelerator = "auto",
    debug: Debug = False,
) -> None:
    """Translates text, one line for one line.

    The order is kept, and a blank line stays blank. Without FILE, on a terminal, it asks for lines.

    A score is the log-probability of the translation divided by its length penalty. With --n-best every line gives up
    to N lines, best first; INDEX counts input lines from 0, as in Moses.
    """
    from aiayn.data.corpus import read_lines

    on_stream = file is None or str(file) == "-"
    lines = [] if on_stream else read_lines(file)
    translator = _translator(run, checkpoint, beam_size, length_penalty, accelerator)
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
    for chunk in chunks:
        results = enumerate(translator.n_best(chunk, n_best or 1, first_line=done + 1), done)
        _write([line for index, found in results for line in _shown(index, found, n_best is not None, scores)])
        done += len(chunk)


@app.command()
def attention(
    run: RunFolder,
    sentence: Annotated[str, typer.Argument(help="A sentence of the source language, in quotes.")],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where to; else RUN/attention.")] = None,
    checkpoint: CheckpointName = None,
    accelerator: Accelerator = "auto",
    debug: Debug = False,
) -> None:
    """Draws where each layer looks: layer_1.png, ...

    The sentence is translated; every picture shows one layer's attention from the translation to the sentence, head by
    head, and within both.
    """
    from aiayn.evaluation.attention_maps import attention_maps
    from aiayn.evaluation.plots import draw_attention_maps

    maps = attention_maps(_translator(run, checkpoint, None, None, accelerator), sentence)
    for layer in range(len(maps.cross)):
        path = (out or run / "attention") / f"layer_{layer + 1}.png"
        draw_attention_maps(maps, path, layer)
        print(path)


def main() -> None:
    """The console script. What a user can cause ends it with one line and its exit code."""
    # Whoever reads may leave early (`aiayn translate ... | head`): end like any other filter, without a word.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        code = app(standalone_mode=False)
    except UserError as error:
        _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", 130)
    except Exception as error:
        # typer's own, for a misspelt option and the like; its base class has no public name in every version.
        if not hasattr(error, "format_message"):
            raise
        _fail(f"{error.format_message()} (--help lists what there is)", ConfigError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def _translator(
    run: Path, checkpoint: str | None, beam_size: int | None, length_penalty: float | None, accelerator: str
) -> "Translator":
    search = SearchOverrides(
        beam_size=beam_size, length_penalty=length_penalty, penalty=None, max_extra_tokens=None, max_tokens=None
    )
    from aiayn.inference.translator import Translator

    return Translator.from_run(run, checkpoint, search, accelerator)


def _shown(index: int, found: "list[Translation]", n_best: bool, scores: bool) -> Iterator[str]:
    """The lines of output for line `index` of the input."""
    for translation in found:
        if n_best:
            yield f"{index} ||| {translation.text} ||| {translation.score:.4f}"
        else:
            yield f"{translation.text}\t{translation.score:.4f}" if scores else translation.text


def _write(lines: list[str]) -> None:
    """Writes lines at once, as bytes: neither locale nor platform may change text or line ends."""
    try:
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
        sys.stdout.buffer.flush()
    except OSError as error:
        # Python would try the same again at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise ResourceError(f"standard output cannot be written ({error.strerror}); make room and run again") from error


def _stream() -> Iterator[list[str]]:
    """Whole lines of standard input, as many as there are at the moment: output starts before the input ends."""
    pending, done = b"", 0
    while block := sys.stdin.buffer.read1(STREAM_BYTES):
        *lines, pending = (pending + block).split(b"\n")
        if lines:
            yield _decoded(lines, done + 1)
            done += len(lines)
    if pending:
        yield _decoded([pending], done + 1)


def _decoded(lines: list[bytes], first_line: int) -> list[str]:
    texts = []
    for number, line in enumerate(lines, first_line):
        try:
            texts.append(line.decode())
        except UnicodeDecodeError as error:
            raise DataError(
                f"standard input: line {number} is not UTF-8 ({error.reason}); convert it with iconv"
            ) from error
    return texts


def _prompted(greeting: str) -> Iterator[list[str]]:
    """Lines typed on a terminal, one at a time."""
    import readline  # noqa: F401  (gives `input` its arrow keys)

    print(greeting, file=sys.stderr)
    while True:
        try:
            yield [input("> ")]
        except EOFError:
            print()
            return


def _fail(message: str, exit_code: int) -> NoReturn:
    """Ends the program with one line; --debug, an option of every command, adds a traceback."""
    if "--debug" in sys.argv:
        traceback.print_exc()
    print(f"error: {message}", file=sys.stderr)
    sys.exit(exit_code)
