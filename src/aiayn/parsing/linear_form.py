"""Trees as a model reads and writes them, after "Grammar as a Foreign Language" (Vinyals et al.,
arXiv 1412.7449).

The linear form leaves the words out and keeps their tags; closing brackets repeat the label, spaces
separate all symbols, and TOP is not written: `(S (NP DT NN )NP (VP VBZ )VP . )S`. With the words it
gives the tree back.
"""

from collections import Counter

from aiayn.errors import DataError
from aiayn.parsing.tree import TOP, Leaf, Tree, leaves, walk

UNKNOWN_TAG = "XX"  # the tag of words for which a model wrote none


def sentence(tree: Tree) -> str:
    """Returns the words with a space between them."""
    return " ".join(leaf.word for leaf in leaves(tree))


def linear_form(tree: Tree) -> str:
    """Returns the tree without its words, on one line."""
    brackets = {"open": "(", "close": ")"}
    events = list(walk(tree))[1:-1]  # without TOP
    return " ".join(
        node.tag if isinstance(node, Leaf) else brackets[event] + node for event, node in events
    )


def read_linear_form(words: str, text: str, location: str) -> Tree:
    """Returns the tree of a sentence. Raises DataError with `location` for text that is not its
    linear form.
    """
    tree, malformed = repaired_tree(words, text)
    if malformed:
        raise DataError(
            f"{location} is not the linear tree of its sentence; make it with `aiayn trees`: "
            f"{text:.80}"
        )
    return tree


def repaired_tree(words: str, text: str) -> tuple[Tree, bool]:
    """Returns a tree of exactly these words, and whether the text had to be repaired to give one.

    The repairs:
    - A closing bracket closes the innermost open constituent of its label, and those inside it. It
      is ignored where no open constituent has its label. Brackets without a label are ignored.
    - Tags for which no word is left are ignored.
    - Constituents without a word are dropped.
    - At the end, open constituents close. Words that are left over get the tag XX and join the last
      constituent below TOP, or TOP itself where a leaf is last.
    """
    left = words.split()[::-1]  # the next one is the last
    # Open constituents, each with its children so far
    stack: list[tuple[str, list[Tree | Leaf]]] = [(TOP, [])]
    open_labels = Counter[str]()  # of all but the first
    repaired = False

    def close_innermost() -> bool:
        """Closes the innermost constituent. Returns whether it had a word; else it is dropped."""
        label, children = stack.pop()
        open_labels[label] -= 1
        if children:
            stack[-1][1].append(Tree(label, tuple(children)))
        return bool(children)

    for symbol in text.split():
        label = symbol[1:]
        if symbol[0] not in "()" and left:
            stack[-1][1].append(Leaf(symbol, left.pop()))
        elif symbol[0] == "(" and label:
            stack.append((label, []))
            open_labels[label] += 1
        elif symbol[0] == ")" and open_labels[label]:
            repaired |= stack[-1][0] != label
            while stack[-1][0] != label:
                close_innermost()
            repaired |= not close_innermost()
        else:
            repaired = True
    repaired |= len(stack) > 1 or bool(left)
    while len(stack) > 1:
        close_innermost()
    [(_, top)] = stack
    missing = tuple(Leaf(UNKNOWN_TAG, word) for word in reversed(left))
    if top and isinstance(top[-1], Tree):
        top[-1] = Tree(top[-1].label, top[-1].children + missing)
    else:
        top += missing
    return Tree(TOP, tuple(top)), repaired
