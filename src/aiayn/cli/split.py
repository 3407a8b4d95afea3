"""`aiayn split`: a development and a test set cut off from parallel text."""

from pathlib import Path
from typing import Annotated

from aiayn.cli.arguments import Option, Positional
from aiayn.config import program
from aiayn.config.rules import language_code, require, tagged
from aiayn.errors import counted


def split(
    files: Annotated[
        list[str],
        Positional("Prefixes, or files of pairs, as in data.train.", metavar="FILES"),
    ],
    src_lang: Annotated[str, Option("Source language.", metavar="LANG")],
    tgt_lang: Annotated[str, Option("Target language.", metavar="LANG")],
    out: Annotated[Path, Option("Folder for train, val and test.", metavar="FOLDER")],
    val: Annotated[int, Option("Number of development pairs.", min=1)] = 1000,
    test: Annotated[int, Option("Number of test pairs.", min=1)] = 1000,
    seed: Annotated[int, Option("Random seed of the split.")] = 0,
) -> None:
    """Divides parallel text into training, development and test sets.

    The development and test pairs are drawn evenly from all pairs. The training text leaves out
    every pair that shares its source or its target with one of these pairs, ignoring case and
    punctuation.
    """
    language_code("--src-lang", src_lang)
    language_code("--tgt-lang", tgt_lang)
    require(
        src_lang != tgt_lang, f"--src-lang and --tgt-lang are both {src_lang}: name two languages"
    )
    from aiayn.data.held_out import hold_out
    from aiayn.data.languages import TARGET_TAG

    train, leaking, report = hold_out(files, (src_lang, tgt_lang), (val, test), seed, out)
    print(
        f"{counted(len(train), 'pair')} for training, {val:,} for development, {test:,} for test; "
        f"left out: {leaking:,} that share a side with held-out pairs, {report.dropped.total():,} "
        "unusable"
    )
    if report.dropped:
        print(f"unusable pairs, with the first of each reason: {report.reasons()}")
    texts = f"data.train={out}/train data.val={out}/val data.test={out}/test"
    print(f"next     {program.typed('train')} data=files {texts} \\")
    tags = {tagged(name)[0] for name in files}
    first_words = sorted({src.partition(" ")[0] for src, _ in train})
    learned = [word for word in first_words if word in tags or TARGET_TAG.fullmatch(word)]
    words = ",".join(f'"{word}"' for word in learned)
    symbols = f" 'data.symbols=[{words}]'" if words else ""
    print(f"           data.src_lang={src_lang} data.tgt_lang={tgt_lang}{symbols} name=mine")
