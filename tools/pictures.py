"""Draw README's picture, an attention map, with the model in examples/.

    python tools/pictures.py

The picture's metadata names the commit of the code that drew it.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from PIL.PngImagePlugin import PngInfo

import aiayn
from aiayn.errors import RefusedError
from aiayn.files import source_commit
from aiayn.visualize.figures import draw_cross_attention
from aiayn.visualize.maps import attention_maps

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "examples/en-de.aiayn"
PICTURE = ROOT / "docs/images/attention_map.png"
SENTENCE = "I have never seen such a beautiful house."  # README shows its translation


def draw(folder: Path) -> Path:
    """Draw the picture into a folder, which gets a copy of the model. Return its file."""
    # Loading converts the model beside its file.
    translator = aiayn.load(shutil.copy(MODEL, folder))
    picture = folder / PICTURE.name
    draw_cross_attention(attention_maps(translator, SENTENCE), picture)
    return picture


def main() -> None:
    commit = str(source_commit())
    if commit.endswith("-dirty"):
        raise RefusedError(f"{commit} has uncommitted changes; commit them and run again")
    about = PngInfo()
    about.add_text("commit", commit)
    with TemporaryDirectory() as folder:
        Image.open(draw(Path(folder))).save(PICTURE, pnginfo=about)
    print(PICTURE)


if __name__ == "__main__":
    main()
