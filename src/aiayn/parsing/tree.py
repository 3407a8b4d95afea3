"""Constituency trees of sentences, and the ways in which they are printed."""

from collections.abc import Iterator
from dataclasses import dataclass

TOP = "TOP"  # label of the node around every sentence; it is not written into the linear form


@dataclass(frozen=True)
class Leaf:
    """A word with its part-of-speech tag."""

    tag: str
    word: str


@dataclass(frozen=True)
class Tree:
    """A constituent: its label, such as NP, and what it consists of."""

    label: str
    children: tuple["Tree | Leaf", ...]


# What `walk` yields: ("open", label), ("leaf", Leaf) or ("close", label).
Event = tuple[str, str | Leaf]


def walk(tree: Tree) -> Iterator[Event]:
    """Yields the brackets and leaves of a tree from left to right.

    Keeps its own stack, because a model can write more nested brackets than Python allows nested
    calls.
    """
    todo: list[Tree | Leaf | str] = [tree]  # a string is the label of a constituent to close
    while todo:
        node = todo.pop()
        if isinstance(node, Tree):
            yield "open", node.label
            todo.append(node.label)
            todo += reversed(node.children)
        elif isinstance(node, Leaf):
            yield "leaf", node
        else:
            yield "close", node


def leaves(tree: Tree) -> list[Leaf]:
    """Returns the leaves from left to right."""
    return [node for _, node in walk(tree) if isinstance(node, Leaf)]


def penn_brackets(tree: Tree) -> str:
    """Returns a tree in the brackets of the Penn Treebank, on one line: `(TOP (S (NP (NN Time))
    ...))`.
    """
    parts = []
    for event, node in walk(tree):
        if isinstance(node, Leaf):
            parts.append(f" {_leaf(node)}")
        else:
            parts.append(f" ({node}" if event == "open" else ")")
    return "".join(parts).lstrip()


def indented(tree: Tree) -> str:
    """Returns a tree on many lines, two spaces deeper for every level; TOP is left out."""
    lines: list[str] = []
    depth = 0
    leaves_only = False  # every child of the innermost open constituent so far is a leaf
    for event, node in walk(tree):
        if node == TOP:
            continue
        if isinstance(node, Leaf):
            if leaves_only:
                lines[-1] += f" {_leaf(node)}"
            else:
                lines.append("  " * depth + _leaf(node))
        elif event == "open":
            lines.append("  " * depth + f"({node}")
            depth, leaves_only = depth + 1, True
        else:
            lines[-1] += ")"
            depth, leaves_only = depth - 1, False
    return "\n".join(lines)


def _leaf(leaf: Leaf) -> str:
    """Returns (TAG word), with round brackets in the word spelled as in the Penn Treebank."""
    return f"({leaf.tag} {escape_brackets(leaf.word)})"


def escape_brackets(text: str) -> str:
    """Returns text with -LRB- and -RRB- for round brackets, as the Penn Treebank spells them."""
    return text.replace("(", "-LRB-").replace(")", "-RRB-")


def right_branching(gold: Tree) -> Tree:
    """Returns the baseline tree: every word starts a constituent that reaches to the last word.

    The outermost constituent is labelled S, all others NP, the most frequent label. Final
    punctuation stays in S.
    """
    words = leaves(gold)
    last = words[-1:] if len(words) > 1 and words[-1].tag == "." else []
    inner: tuple[Tree | Leaf, ...] = ()
    for leaf in reversed(words[1 : len(words) - len(last)]):
        inner = (Tree("NP", (leaf, *inner)),)
    return Tree(TOP, (Tree("S", (*words[:1], *inner, *last)),))
