"""Draw the pictures of README and docs that this checkout can draw, and name each one's commit.

    python tools/pictures.py

The metadata of a drawn picture has `commit`, that of the code that drew it. The others are
screenshots of pages, and measured times; theirs has `stored by`, the commit that stored them.
"""

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from PIL.PngImagePlugin import PngInfo

import aiayn
from aiayn.errors import RefusedError
from aiayn.files import source_commit
from aiayn.visualize.figures import draw_cross_attention, draw_paper_figures
from aiayn.visualize.maps import attention_maps

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "examples/en-de.aiayn"
PICTURES = ROOT / "docs/images"
README_SENTENCE = "I have never seen such a beautiful house."  # README shows its translation
FIGURES_SENTENCE = "The girl who is playing the piano in the next room is my younger sister."


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
    sys.path.insert(0, str(ROOT / "benchmarks"))
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
    commit = str(source_commit())
    if commit.endswith("-dirty"):
        raise RefusedError(f"{commit} has uncommitted changes; commit them and run again")
    with TemporaryDirectory() as folder:
        draw_attention(Path(folder))
        draw_results(Path(folder))
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
    main()
