"""What all pictures share: a figure without a display, its files, and tokens that are fit to be drawn."""

import warnings
from pathlib import Path
from typing import Any


def new_figure(width: float, height: float, layout: str | None = None) -> Any:
    """An empty figure of so many inches."""
    # Not pyplot: a figure of its own needs no display and leaves no state behind.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout, dpi=120)


def save_figure(figure: Any, *paths: Path) -> None:
    """Writes the figure once for every path, as what its suffix says. Raises OSError where that is impossible."""
    import matplotlib

    # In an SVG letters stay letters, and the same figure is the same file.
    settings = {"svg.fonttype": "none", "svg.hashsalt": paths[0].stem}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a script that the font lacks shows as boxes
        for path in paths:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def readable(token: str, longest: int = 24) -> str:
    """A token as one short line: control characters are spelled out, and long tokens are cut."""
    text = token if token.isprintable() else repr(token)[1:-1]
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
