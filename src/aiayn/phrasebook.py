"""The built-in corpus: 40,000 pairs of generated English and German, without network or licence.

`tools/phrasebook/generate.py` makes its file. The test split measures composition: each of its
sentences contains a (verb, object) or (adjective, noun) pair that no other split has, while every
single word of it occurs in training.
"""

import bz2
from functools import cache
from importlib.resources import files

# Raise it when any sentence changes: prepared corpora of another version are then not used again.
VERSION = 2


@cache
def pairs(split: str) -> list[tuple[str, str]]:
    """Returns the (English, German) sentences of "train", "val" or "test", in their fixed order."""
    text = bz2.decompress(files("aiayn").joinpath("phrasebook.tsv.bz2").read_bytes()).decode()
    rows = (line.split("\t") for line in text.removesuffix("\n").split("\n"))
    return [(en, de) for name, en, de in rows if name == split]
