"""A small probabilistic grammar of English, for trees without a licence."""

import random
from pathlib import Path

from aiayn.parsing.linear_form import linear_form, sentence
from aiayn.parsing.tree import TOP, Leaf, Tree

# Each symbol's expansions with their weights; symbols without any are keys of WORDS. What is
# attached where can be told from the words: `of` belongs to nouns, other prepositions to verbs, and
# only simple noun phrases come before them.
RULES = {
    "S": [(6, "NP VP ."), (2, "PP , NP VP ."), (1, "S1 , CC S1 ."), (1, "ADVP , NP VP .")],
    "S1": [(1, "NP VP")],
    "NP": [
        (5, "DT NN"),
        (2, "DT JJ NN"),
        (2, "NNS"),
        (2, "PRP"),
        (2, "NP1 PP1"),
        (1, "NP1 SBAR"),
        (1, "NP1 CC NP1"),
    ],
    "NP1": [(3, "DT NN"), (1, "DT JJ NN"), (1, "NNS")],
    "PP": [(1, "IN NP1")],
    "PP1": [(1, "OF NP1")],
    "VP": [
        (3, "VBD NP"),
        (2, "VBD NP1 PP"),
        (2, "VBD"),
        (1, "VBD PRT NP1"),
        (2, "VBD ADVP"),
        (1, "MD VP1"),
        (1, "VBD SBAR1"),
    ],
    "VP1": [(1, "VB NP1"), (1, "VB")],
    "VP2": [(1, "VBD NP1"), (1, "VBD ADVP")],
    "SBAR": [(1, "WDT VP2")],
    "SBAR1": [(1, "CMP S1")],
    "ADVP": [(1, "RB")],
    "PRT": [(1, "RP")],
}
WORDS = {
    "DT": "the a this every some",
    "NN": "cat dog bird house river letter table doctor child garden window song train picture",
    "NNS": "cats dogs birds houses letters doctors children trains pictures songs",
    "JJ": "old small red quiet heavy young",
    "PRP": "she he they it we",
    "VBD": "saw heard found said knew left watched liked carried",
    "VB": "see hear find leave watch carry",
    "MD": "will can must",
    "IN": "in on with near under behind",
    "OF": "of",
    "RB": "quickly often there again",
    "RP": "up off out",
    "CC": "and or but",
    "WDT": "which that",
    "CMP": "because while",
    ",": ",",
    ".": ". !",
}
TAGS = {"OF": "IN", "CMP": "IN"}


def generated_trees(count: int, seed: int, most_words: int = 22) -> list[Tree]:
    """Returns different trees, the same for the same seed."""
    rng = random.Random(seed)
    found: dict[Tree, None] = {}
    while len(found) < count:
        node, words = _expanded("S", rng)
        if words <= most_words:
            found[Tree(TOP, (node,))] = None
    return list(found)


def _expanded(symbol: str, rng: random.Random) -> tuple[Tree | Leaf, int]:
    """Returns a random subtree and its number of words."""
    if symbol in WORDS:
        return Leaf(TAGS.get(symbol, symbol), rng.choice(WORDS[symbol].split(" "))), 1
    weights, expansions = zip(*RULES[symbol], strict=True)
    parts = [_expanded(part, rng) for part in rng.choices(expansions, weights)[0].split(" ")]
    return Tree(symbol.rstrip("12"), tuple(node for node, _ in parts)), sum(
        words for _, words in parts
    )


def write_split(prefix: Path, trees: list[Tree]) -> None:
    """Writes PREFIX.words and PREFIX.trees."""
    Path(f"{prefix}.words").write_text("".join(sentence(tree) + "\n" for tree in trees))
    Path(f"{prefix}.trees").write_text("".join(linear_form(tree) + "\n" for tree in trees))
