"""Draw the pictures of README and docs that this checkout can draw, and name each one's commit.

    python tools/pictures.py

Pages are drawn by a headless Chromium: the one that the environment's CHROMIUM names, or else the
first on PATH of the usual names (apt-get install chromium-headless-shell).

The metadata of a drawn picture has `commit`, that of the code that drew it. A picture of measured
times has `stored by`, the commit that stored it.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from PIL.PngImagePlugin import PngInfo

import aiayn
from aiayn.errors import ConfigError, RefusedError, UserError
from aiayn.files import source_commit
from aiayn.reports.report import write_report
from aiayn.visualize.explorer import position_tables, write_explorer
from aiayn.visualize.figures import draw_cross_attention, draw_paper_figures
from aiayn.visualize.maps import attention_maps

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tests")]
from chromium import Chromium, find_chromium  # noqa: E402
from studies import RESULTS, unpack  # noqa: E402

MODEL = ROOT / "examples/en-de.aiayn"
PICTURES = ROOT / "docs/images"
README_SENTENCE = "I have never seen such a beautiful house."  # README shows its translation
FIGURES_SENTENCE = "The girl who is playing the piano in the next room is my younger sister."
SERVED_TEXT = f"{README_SENTENCE}\nWhere did you learn to play the piano?"
# “gesehen” in a head that attends to “seen” and in one that attends to “house”.
TWO_HEADS = "show=cross&head=4.4&with=1.4&queries=9"
CLICKED = "schönes"  # the word of the served page whose attention is shown
MARGIN = 16  # pixels below the part of a page that is drawn
SECONDS = 60  # until a page has to show what is drawn


def draw_attention(folder: Path) -> None:
    """Draw README's map and the paper's Figures 3 to 5 with the model in examples/."""
    with TemporaryDirectory() as beside:  # Loading converts the model beside its file.
        translator = aiayn.load(shutil.copy(MODEL, beside))
        draw_cross_attention(
            attention_maps(translator, README_SENTENCE), folder / "attention_map.png"
        )
        for path in draw_paper_figures(attention_maps(translator, FIGURES_SENTENCE), folder):
            if path.suffix == ".png":
                path.rename(folder / f"attention_{path.name}")


def draw_results(folder: Path) -> None:
    """Draw the pictures of result pages, from results/ and from an untrained base model."""
    import cross_check
    import how_much_text
    import multi30k_quarter
    import paper_claims
    import table3_quarter

    paper_claims.draw(folder)
    _, changes = table3_quarter.tables_of_study()
    table3_quarter.draw_differences(changes, folder / "table3_quarter.png")
    multi30k_quarter.draw(folder / "multi30k_quarter.png")
    how_much_text.draw(how_much_text.facts(), folder / "how_much_text.png")
    cross_check.draw_curves(folder / "cross_check.png")


def find_browser() -> str:
    """Return the Chromium to draw with. Raises ConfigError where there is none."""
    program = find_chromium()
    if program is None:
        raise ConfigError(
            "no Chromium: apt-get install chromium-headless-shell, or name one in the "
            f"environment's CHROMIUM (now {os.environ.get('CHROMIUM', 'unset')})"
        )
    return program


def draw_pages(folder: Path, program: str) -> None:
    """Draw the attention explorer, the page of `aiayn serve` and that of a sweep in a browser."""
    with TemporaryDirectory() as beside:
        model = Path(shutil.copy(MODEL, beside))
        browser = Chromium(program, Path(beside, "profile"))
        try:
            _draw_explorer(browser, model, folder / "attention_explorer.png")
            _draw_served_page(browser, model, folder / "serve.png")
            _draw_sweep(browser, Path(beside), folder / "report_table3_quarter.png")
        finally:
            browser.close()


def _draw_explorer(browser: Chromium, model: Path, picture: Path) -> None:
    translator = aiayn.load(model)
    transformer = translator.in_torch().models[0]
    page = model.parent / "index.html"
    maps = attention_maps(translator, README_SENTENCE)
    write_explorer(page, maps, position_tables(transformer), transformer.config, model.name)
    browser.open(f"{page.as_uri()}#{TWO_HEADS}", width=1160, height=720)
    browser.screenshot(picture)


def _draw_served_page(browser: Chromium, model: Path, picture: Path) -> None:
    with _serving(model) as address:
        browser.open(address, width=1200, height=690)
        _wait_until(browser, "document.documentElement.dataset.ready === 'true'")
        browser.run("document.querySelector('#source').select()")
        browser.command("Input.insertText", text=SERVED_TEXT)
        browser.run("document.querySelector('#source').blur()")  # A caret blinks.
        n_lines = len(SERVED_TEXT.splitlines())
        translated = "document.querySelectorAll('#translation p > .word:first-child').length"
        _wait_until(browser, f"{translated} === {n_lines}")
        words = "[...document.querySelectorAll('.word')]"
        browser.run(f"{words}.find((word) => word.innerText === '{CLICKED}').click()")
        _wait_until(browser, "document.querySelector('#drawing .looked') !== null")
        browser.screenshot(picture)


@contextmanager
def _serving(model: Path) -> Iterator[str]:
    """Yield the address of a server of the model, which ends with the context."""
    command = [sys.executable, "-m", "aiayn", "serve", model, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lines = iter(server.stdout)
        yield next(match[0] for line in lines if (match := re.search(r"http://\S+", line)))
    finally:
        server.terminate()
        server.wait()


def _wait_until(browser: Chromium, condition: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not browser.run(condition):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the page does not show {condition}")
        time.sleep(0.1)


def _draw_sweep(browser: Chromium, beside: Path, picture: Path) -> None:
    """Draw the page as far as its first table and the note below that."""
    page = write_report(unpack(RESULTS / "table3_quarter.jsonl", beside))
    browser.open(page.as_uri(), width=1195, height=900)
    bottom = browser.run("document.querySelector('.scroll + p.dim').getBoundingClientRect().bottom")
    browser.open(page.as_uri(), width=1195, height=round(bottom) + MARGIN)
    browser.screenshot(picture)


def store(drawn: Path, picture: Path, key: str, commit: str) -> None:
    """Write a drawn picture over a stored one, with a commit in its metadata."""
    about = PngInfo()
    about.add_text(key, commit)
    with Image.open(drawn) as image:
        image.load()
        image.save(picture, pnginfo=about, optimize=True)


def pixels(picture: Path) -> tuple[tuple[int, int], bytes]:
    with Image.open(picture) as image:
        return image.size, image.convert("RGBA").tobytes()


def main() -> None:
    browser = find_browser()
    commit = str(source_commit())
    if commit.endswith("-dirty"):
        raise RefusedError(f"{commit} has uncommitted changes; commit them and run again")
    with TemporaryDirectory() as folder:
        draw_attention(Path(folder))
        draw_results(Path(folder))
        draw_pages(Path(folder), browser)
        for picture in sorted(PICTURES.glob("*.png")):
            drawn = Path(folder) / picture.name
            if drawn.exists():
                if pixels(drawn) != pixels(picture):  # else it keeps the commit that drew the same
                    store(drawn, picture, "commit", commit)
            elif "stored by" not in Image.open(picture).info:
                log = ["git", "log", "-1", "--format=%h", "--abbrev=12", "--", picture]
                last = subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=True)
                store(picture, picture, "stored by", last.stdout.strip())


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
