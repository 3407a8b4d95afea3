"""Figures that need no display, their files, and tokens as labels. matplotlib is imported
lazily.
"""

import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

from aiayn.errors import writing
from aiayn.files import atomic_write


def new_figure(width: float, height: float, **options: Any) -> Any:
    """Returns an empty figure, sizes in inches."""
    # Not pyplot, which needs a display and keeps every figure alive.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=120, **options)


def save_figure(figure: Any, *paths: Path) -> None:
    """Writes the figure once for every path, in the format of its suffix, .png or .svg; folders are
    created.

    Raises ResourceError where a file cannot be written.
    """
    for path in paths:
        content = render(figure, path.suffix[1:])
        with writing(path):
            atomic_write(path, content)


def render(figure: Any, image_format: str) -> bytes:
    """Returns the figure as png or svg. The same figure gives the same bytes; text in an SVG stays
    text.
    """
    import matplotlib

    file = BytesIO()
    with (
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "aiayn"}),
        warnings.catch_warnings(),
    ):
        # A script that the font lacks shows as boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(
            file, format=image_format, metadata={"Date": None} if image_format == "svg" else None
        )
    return file.getvalue()


def readable(token: str, longest: int = 24) -> str:
    """Returns a token as one short line: control characters are escaped, and long tokens are
    cut.
    """
    text = token if token.isprintable() else repr(token)[1:-1]
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def read_picture(path: Path) -> Any:
    """Returns the pixels of a PNG as an array, (height, width, 3), from 0 to 1."""
    from matplotlib.image import imread

    return imread(path)[..., :3]
