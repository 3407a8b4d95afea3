"""Reads bracketed files as the Penn Treebank has them, reduces their trees to what a parser learns,
and writes these as aligned lines of sentences and linear trees.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aiayn.data.text_files import MAX_LINE_BYTES, read_lines
from aiayn.errors import DataError, writing
from aiayn.files import atomic_file
from aiayn.parsing.linear_form import linear_form, sentence
from aiayn.parsing.tree import TOP, Leaf, Tree, walk

OUTER_LABELS = {"", "TOP", "ROOT", "S1", "VROOT"}
TRACE = "-NONE-"
# Only ASCII spaces separate symbols. Other spaces occur inside words, and become `_`: a sentence is
# split at spaces.
SYMBOL = re.compile(r"[()]|[^() \t\r\f\v]+")
OTHER_SPACE = re.compile(r"\s")
# The first of these ends a label: NP-SBJ-1, NP=2, ADVP|PRT.
LABEL_END = re.compile(r"[-=|]")

# In a bracket: a symbol, or another bracket; None: one of nothing but traces
Item = str | Tree | Leaf | None


def read_trees(path: Path) -> Iterator[Tree | None]:
    """Yields every tree of a bracketed file, plain or .gz: TOP around one or more constituents.

    Traces (-NONE-), constituents that consist of traces only, function tags, indices and the outer
    label are removed.
    A tree of nothing but traces gives None. Raises DataError with file and line for text that is no
    sequence of trees.
    """
    stack: list[list[Item]] = []  # the contents of each open bracket
    start = number = 0  # the lines of the tree's first bracket and of the symbol
    for number, line in enumerate(read_lines(path), 1):
        for symbol in SYMBOL.findall(line):
            if symbol == "(":
                start = start if stack else number
                stack.append([])
            elif not stack:
                raise DataError(
                    f"{path}: line {number}: {symbol} is outside of brackets; correct the file"
                )
            elif symbol != ")":
                stack[-1].append(symbol)
            else:
                node = _closed(stack.pop(), f"{path}: line {number}", start if stack else None)
                if stack:
                    stack[-1].append(node)
                else:
                    yield _with_top(node)
    if stack:
        raise DataError(
            f"{path}: line {number}: the file ends inside the tree that begins in line {start}; "
            "close its brackets"
        )


def _closed(inside: list[Item], location: str, start: int | None) -> Tree | Leaf | None:
    """Returns the leaf or constituent of a bracket, None for a trace. Raises DataError for anything
    else.

    `start` is the line where the tree around the bracket begins; None for the outermost bracket.
    """
    label = inside[0] if inside and isinstance(inside[0], str) else None
    words = [child for child in inside[label is not None :] if isinstance(child, str)]
    children = [child for child in inside if not isinstance(child, str)]
    if words and (children or len(words) > 1 or label is None):
        raise DataError(
            f"{location}: ({label or ''} {' '.join(words)}) mixes words and constituents; write a "
            "tag and one word, or a label and constituents"
        )
    if words and label is not None:
        return None if label == TRACE else Leaf(plain_label(label), OTHER_SPACE.sub("_", words[0]))
    if label is None and start is not None:
        raise DataError(
            f"{location}: a bracket inside the tree that begins in line {start} has no label; add "
            "one, or close that tree"
        )
    if not children:
        raise DataError(
            f"{location}: ({label or ''}) is empty; a bracket holds a tag and a word, or "
            "constituents"
        )
    kept = tuple(child for child in children if child is not None)
    return Tree(plain_label(label or ""), kept) if kept else None


def plain_label(label: str) -> str:
    """Returns a label or tag without function tags, indices and spaces: NP of NP-SBJ-1; -LRB-
    stays.
    """
    label = OTHER_SPACE.sub("_", label)
    return label if label.startswith("-") else LABEL_END.split(label, maxsplit=1)[0] or label


def _with_top(node: Tree | Leaf | None) -> Tree | None:
    """Returns a sentence with TOP in place of its outer label, or around it where it has none."""
    if node is None:
        return None
    children: tuple[Tree | Leaf, ...] = (node,)
    while (
        len(children) == 1 and isinstance(children[0], Tree) and children[0].label in OUTER_LABELS
    ):
        children = children[0].children
    return Tree(TOP, children)


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
            events = [event for event, _ in walk(tree)]
            converted.words += events.count("leaf")
            converted.constituents += events.count("open") - 1
            sentences.append(lines[0] + "\n")
            linear.append(lines[1] + "\n")
    converted.trees = len(sentences)
    if not sentences:
        raise DataError(f"{', '.join(map(str, files))}: no trees; name files with bracketed trees")
    # Renamed once both are complete: no side of one treebank is left beside that of another.
    with (
        writing(prefix, "choose another --out"),
        atomic_file(Path(f"{prefix}.words")) as words,
        atomic_file(Path(f"{prefix}.trees")) as trees,
    ):
        words.write("".join(sentences).encode())
        trees.write("".join(linear).encode())
    return converted
