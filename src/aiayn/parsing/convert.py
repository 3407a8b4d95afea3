"""From bracketed files to aligned lines of sentences and linear trees."""

from dataclasses import dataclass
from pathlib import Path

from aiayn.data.text_files import MAX_LINE_BYTES
from aiayn.errors import DataError, writing
from aiayn.files import atomic_file
from aiayn.parsing.linear_form import linear_form, sentence
from aiayn.parsing.penn_files import read_trees
from aiayn.parsing.tree import walk


@dataclass
class Converted:
    """What `convert` wrote, and the trees that it left out: those that hold traces only, and too
    long ones.
    """

    trees: int = 0
    words: int = 0
    constituents: int = 0  # TOP not counted
    empty: int = 0
    too_long: int = 0  # left out because no line of text may be so long


def convert(files: list[Path], prefix: Path) -> Converted:
    """Writes the trees of all files to PREFIX.words and PREFIX.trees, line N of one for line N of
    the other.

    Raises DataError with file and line for a file that is not a treebank, ResourceError where
    nothing can be written.
    """
    converted = Converted()
    sentences, linear = [], []
    for file in files:
        for tree in read_trees(file):
            if tree is None:
                converted.empty += 1
                continue
            lines = sentence(tree), linear_form(tree)
            if max(len(line.encode()) for line in lines) > MAX_LINE_BYTES:
                converted.too_long += 1
                continue
            kinds = [event for event, _ in walk(tree)]
            converted.words += kinds.count("leaf")
            converted.constituents += kinds.count("open") - 1
            sentences.append(lines[0] + "\n")
            linear.append(lines[1] + "\n")
    converted.trees = len(sentences)
    if not sentences:
        raise DataError(f"{', '.join(map(str, files))}: no trees; name files with bracketed trees")
    with writing(prefix, "choose another --out"):
        prefix.parent.mkdir(parents=True, exist_ok=True)
        # Renamed once both are complete: no side of one treebank is left beside that of another.
        with (
            atomic_file(Path(f"{prefix}.words")) as words,
            atomic_file(Path(f"{prefix}.trees")) as trees,
        ):
            words.write("".join(sentences).encode())
            trees.write("".join(linear).encode())
    return converted
