"""Makes English-German text with and without mark-up from the translation catalogues of real
manuals:

    git clone https://github.com/GNOME/gnome-user-docs
    git clone https://github.com/deepin-community/manpages-l10n
    python benchmarks/manuals.py gnome-user-docs/gnome-help/de/de.po manpages-l10n/po/de/man* --out manuals

writes `train` and `val` without mark-up, a sentence per line, and for `benchmarks/markup.py`
`gnome` and `man`, a paragraph with tags per line. Those come from pages of their own, less what is
in the training text, too. The model of the published results (15 processor minutes):

    python train.py data=files data.train=manuals/train data.val=manuals/val data.src_lang=en data.tgt_lang=de \\
      data.vocab_size=4000 data.tokens_per_step=2048 data.max_length=100 model.n_layers=2 model.d_model=192 \\
      model.d_ff=384 model.n_heads=4 model.dropout=0.1 optim.warmup_steps=200 optim.lr_scale=0.5 \\
      trainer.max_steps=1750 trainer.checkpoint_every=50 trainer.average_last=8 logger=none name=manuals

`manuals-reverse`, for `benchmarks/score_filter.py`, has the same options but data.src_lang=de
data.tgt_lang=en.
"""

import argparse
import hashlib
import html
import random
import re
from collections.abc import Iterator
from pathlib import Path

from aiayn.apps.documents.texts import split_paragraph
from aiayn.apps.localisation.catalogue import read_messages
from aiayn.data.cleaning import folded
from aiayn.data.placeholders import TAG

FONT = re.compile(r"([BI])<((?:[^<>]|E<(?:lt|gt)>)*)>")
Pair = tuple[str, str]


def entries(path: Path) -> Iterator[tuple[set[str], str, str]]:
    """Yields the pages and the two texts of every finished entry of a gettext catalogue."""
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        pages = set(
            re.findall(r"(\S+\.page):\d+", "".join(re.findall(r"^#:.*", block, re.MULTILINE)))
        )
        for message in read_messages(block, path):
            src, tgt = message.texts["msgid"], message.texts.get("msgstr")
            if src and tgt and not message.is_fuzzy:
                yield pages or {path.name}, src, tgt


def from_roff(text: str) -> str:
    """Writes the fonts of a manual page as tags: B<ls> is <b>ls</b>."""
    text = (
        re.sub(r"\\[,/]|\\&|\\\|", "", text)
        .replace("\\-", "-")
        .replace("\\(aq", "'")
        .replace("&", "&amp;")
    )
    while FONT.search(text):
        text = FONT.sub(lambda m: f"\1{m[1].lower()}\2{m[2]}\1/{m[1].lower()}\2", text)
    text = text.replace("E<lt>", "&lt;").replace("E<gt>", "&gt;")
    return text.replace("\1", "<").replace("\2", ">")


def plain(text: str) -> str:
    """Returns a text without tags and entities."""
    return " ".join(html.unescape(TAG.sub("", text)).split())


def sentences(pair: Pair) -> list[Pair]:
    """Cuts a pair into sentences where both sides have the same number of them."""
    src, tgt = (
        split_paragraph(text, lang)[1::2] for text, lang in zip(pair, ("en", "de"), strict=True)
    )
    return list(zip(src, tgt, strict=True)) if len(src) == len(tgt) else [pair]


def usable(pair: Pair) -> bool:
    words = [len(text.split()) for text in pair]
    return (
        min(words) >= 3
        and max(words) <= 100
        and max(words) <= 2.5 * min(words)
        and pair[0] != pair[1]
        and "\\" not in "".join(pair)
    )


def is_held_out(page: str) -> bool:
    """Whether a page is for testing: every sixth of GNOME's, every sixteenth manual page."""
    return hashlib.sha256(page.encode()).digest()[0] % (6 if page.endswith(".page") else 16) == 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "catalogues", nargs="+", type=Path, help=".po files, or folders of them (manual pages)"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=500, help="of each text with mark-up")
    args = parser.parse_args()
    marked: dict[str, dict[str, Pair]] = {"gnome": {}, "man": {}}
    training: dict[Pair, None] = {}
    for catalogue in args.catalogues:
        for path in sorted(catalogue.glob("*.po")) if catalogue.is_dir() else [catalogue]:
            for pages, *texts in entries(path):
                manual = "man" if catalogue.is_dir() else "gnome"
                pair = tuple(
                    " ".join((from_roff(t) if manual == "man" else t).split()) for t in texts
                )
                held = [is_held_out(page) for page in pages]
                if all(held) and TAG.search(pair[0]) and usable(tuple(map(plain, pair))):
                    marked[manual].setdefault(folded(plain(pair[0])), pair)
                elif not any(held):
                    training |= dict.fromkeys(filter(usable, sentences(tuple(map(plain, pair)))))
    trained = {folded(side) for pair in training for side in pair}
    args.out.mkdir(parents=True, exist_ok=True)
    for manual, pairs_by_source in marked.items():
        clean = [
            p
            for p in pairs_by_source.values()
            if not any(folded(s) in trained for q in sentences_of(p) for s in q)
        ]
        write(args.out / manual, random.Random(1).sample(clean, min(args.lines, len(clean))))
    pairs = list(training)
    random.Random(1).shuffle(pairs)
    write(args.out / "val", pairs[:500])
    held = {side for pair in pairs[:500] for side in pair}
    write(args.out / "train", [pair for pair in pairs[500:] if not held & set(pair)])


def sentences_of(marked: Pair) -> list[Pair]:
    """The sentences of a pair with mark-up, and the whole, without it."""
    pair = tuple(map(plain, marked))
    return [pair, *sentences(pair)]


def write(prefix: Path, pairs: list[Pair]) -> None:
    for side, lang in enumerate(("en", "de")):
        prefix.with_name(f"{prefix.name}.{lang}").write_text(
            "".join(f"{pair[side]}\n" for pair in pairs), "utf-8"
        )
    print(f"{prefix}: {len(pairs):,} pairs")


if __name__ == "__main__":
    main()
