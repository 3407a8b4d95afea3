"""`aiayn trees`: a treebank as text for training a parser (section 6.3)."""

from pathlib import Path
from typing import Annotated

import typer


def trees(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES", help="Bracketed trees as in the Penn Treebank, plain or .gz."
        ),
    ],
    out: Annotated[
        Path, typer.Option(metavar="PREFIX", help="Writes PREFIX.words and PREFIX.trees.")
    ],
) -> None:
    """Turns bracketed trees into text that a parser trains on.

    PREFIX.words has a sentence a line, its words separated by spaces. PREFIX.trees has its tree
    without the words:
    (S (NP DT NN )NP (VP VBZ )VP . )S. Traces, function tags and the outer label are removed. Train
    on them with data=treebank data.train=PREFIX.
    """
    from aiayn.parsing.convert import convert

    converted = convert(files, out)
    print(
        f"{converted.trees:,} trees with {converted.words:,} words and {converted.constituents:,} "
        f"constituents from {len(files):,} files"
    )
    if converted.empty:
        print(f"{converted.empty:,} trees left out: they hold traces only")
    if converted.too_long:
        print(
            f"{converted.too_long:,} trees left out: their lines are longer than any text that is "
            "read"
        )
    print(f"written: {out}.words, {out}.trees")
