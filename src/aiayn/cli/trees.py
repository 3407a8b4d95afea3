"""`aiayn trees`: a treebank as text for training a parser (section 6.3)."""

from pathlib import Path
from typing import Annotated

from aiayn.cli.arguments import Option, Positional


def trees(
    files: Annotated[
        list[Path],
        Positional("Bracketed trees as in the Penn Treebank, plain or .gz.", metavar="FILES"),
    ],
    out: Annotated[
        Path,
        Option("Prefix of the output: PREFIX.words and PREFIX.trees.", metavar="PREFIX"),
    ],
) -> None:
    """Turns bracketed trees into training text for a parser.

    PREFIX.words has one sentence per line, with spaces between words. PREFIX.trees has its tree
    without the words: (S (NP DT NN )NP (VP VBZ )VP . )S. Traces, function tags and the outer label
    are removed. Train on them with data=treebank data.train=PREFIX.
    """
    from aiayn.errors import counted
    from aiayn.parsing.penn_files import convert

    converted = convert(files, out)
    print(
        f"{counted(converted.trees, 'tree')} with {converted.words:,} words and "
        f"{converted.constituents:,} constituents from {counted(len(files), 'file')}"
    )
    if converted.empty:
        print(f"{counted(converted.empty, 'tree')} left out: only traces")
    if converted.too_long:
        print(f"{counted(converted.too_long, 'tree')} left out: line too long")
    print(f"written: {out}.words, {out}.trees")
