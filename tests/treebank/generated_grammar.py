"""A small probabilistic grammar of English, to have trees without a licence: sentences with attachment to decide."""

import random

from aiayn.treebank.tree import TOP, Leaf, Tree

# Label: its expansions with their weights. Lower-case names are tags' keys in WORDS.
RULES = {
    "S": [(6, "NP VP ."), (2, "PP , NP VP ."), (1, "S1 , CC S1 ."), (1, "ADVP NP VP .")],
    "S1": [(1, "NP VP")],
    "NP": [(5, "DT NN"), (2, "DT JJ NN"), (2, "NNS"), (2, "NP PP"), (1, "NP SBAR"), (2, "PRP"), (1, "NP CC NP")],
    "VP": [
        (3, "VBD NP"),
        (2, "VBD NP PP"),
        (2, "VBD"),
        (1, "VBD PRT NP"),
        (2, "VBD ADVP"),
        (1, "MD VP1"),
        (1, "VBD SBAR"),
    ],
    "VP1": [(1, "VB NP"), (1, "VB")],
    "PP": [(1, "IN NP")],
    "SBAR": [(1, "WDT VP"), (1, "CMP S1")],
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
    "RB": "quickly often there again",
    "RP": "up off out",
    "CC": "and or but",
    "WDT": "which that",
    "CMP": "because while",
    ",": ",",
    ".": ". !",
}
TAGS = {"CMP": "IN"}
LABELS = {"S1": "S", "VP1": "VP"}


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
    return Tree(LABELS.get(symbol, symbol), tuple(node for node, _ in parts)), sum(words for _, words in parts)
