"""Trees as a model reads and writes them, after "Grammar as a Foreign Language" (Vinyals et al., arXiv 1412.7449).

The linear form leaves the words out and keeps their tags; closing brackets repeat the label, spaces separate all
symbols, and TOP is not written: `(S (NP DT NN )NP (VP VBZ )VP . )S`. With the words it gives the tree back.
"""

from aiayn.errors import DataError
from aiayn.parsing.tree import TOP, Leaf, Tree, leaves, walk

UNKNOWN_TAG = "XX"  # the tag of words for which a model wrote none


def sentence(tree: Tree) -> str:
    """Returns the words with a space between them."""
    return " ".join(leaf.word for leaf in leaves(tree))


def linear_form(tree: Tree) -> str:
    """Returns the tree without its words, on one line."""
    symbols = []
    for kind, item in list(walk(tree))[1:-1]:  # without TOP
        if isinstance(item, Leaf):
            symbols.append(item.tag)
        else:
            symbols.append(f"({item}" if kind == "open" else f"){item}")
    return " ".join(symbols)


def read_linear_form(words: str, text: str, place: str) -> Tree:
    """Returns the tree of a sentence. Raises DataError, which names `place`, where the text is not its linear form."""
    tree, malformed = repaired_tree(words, text)
    if malformed:
        raise DataError(f"{place} is not the linear form of a tree with the words of its sentence: {text:.80}")
    return tree


def repaired_tree(words: str, text: str) -> tuple[Tree, bool]:
    """Returns a tree of exactly these words, and whether the text had to be repaired to give one.

    The repairs:
    - A closing bracket closes the innermost open constituent of its label, and those inside it. It is ignored where
      no open constituent has its label. Brackets without a label are ignored.
    - Tags for which no word is left are ignored.
    - Constituents without a word are dropped.
    - At the end, open constituents close. Words that are left over get the tag XX and join the last constituent
      below TOP, or TOP itself where a leaf is last.
    """
    builder = _Builder(words.split())
    for symbol in text.split():
        if symbol[0] not in "()":
            builder.leaf(symbol)
        elif symbol[0] == "(":
            builder.open(symbol[1:])
        else:
            builder.close(symbol[1:])
    return builder.finish(), builder.repaired


class _Builder:
    """A tree under construction: the labels of the open constituents, and the children that each has so far."""

    def __init__(self, words: list[str]):
        self.words = words[::-1]  # the next one is the last
        self.labels: list[str] = [TOP]
        self.children: list[list[Tree | Leaf]] = [[]]
        self.repaired = False

    def leaf(self, tag: str) -> None:
        if self.words:
            self.children[-1].append(Leaf(tag, self.words.pop()))
        else:
            self.repaired = True

    def open(self, label: str) -> None:
        if label:
            self.labels.append(label)
            self.children.append([])
        else:
            self.repaired = True

    def close(self, label: str) -> None:
        if label not in self.labels[1:]:
            self.repaired = True
            return
        while self.labels[-1] != label:
            self._close_innermost()
            self.repaired = True
        self._close_innermost()

    def _close_innermost(self) -> None:
        label, children = self.labels.pop(), self.children.pop()
        if children:
            self.children[-1].append(Tree(label, tuple(children)))
        else:
            self.repaired = True

    def finish(self) -> Tree:
        while len(self.labels) > 1:
            self._close_innermost()
            self.repaired = True
        top = self.children[0]
        if self.words:
            self.repaired = True
            missing = tuple(Leaf(UNKNOWN_TAG, word) for word in reversed(self.words))
            if top and isinstance(top[-1], Tree):
                top[-1] = Tree(top[-1].label, top[-1].children + missing)
            else:
                top += missing
        return Tree(TOP, tuple(top))
