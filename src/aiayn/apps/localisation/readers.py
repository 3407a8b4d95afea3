"""Training text from translators' files: translation memories, catalogues of messages, XLIFF."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from aiayn.apps.encodings import decode_document, read_whole
from aiayn.apps.localisation.catalogue import read_messages
from aiayn.apps.localisation.exchange import read_memory, read_xliff
from aiayn.data.languages import best_match
from aiayn.data.raw_text import RawPair
from aiayn.data.text_files import opened
from aiayn.errors import DataError, counted

log = logging.getLogger(__name__)


def read_memory_pairs(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    file, pairs, incomplete = str(path), 0, 0
    seen: set[str] = set()
    with opened(path) as stream:
        for unit in read_memory(path, stream, (src_lang, tgt_lang)):
            seen |= unit.languages
            if unit.flaw or len(unit.texts) == 2:
                src, tgt = (unit.texts.get(lang, "").encode() for lang in (src_lang, tgt_lang))
                yield RawPair(file, unit.line, src, tgt, unit.flaw)
                pairs += not unit.flaw
            else:
                incomplete += 1
    if not pairs:
        explanation = (
            f"its languages are {', '.join(sorted(seen)[:20])}" if seen else "it has no unit (tu)"
        )
        raise DataError(
            f"{path}: no pairs of {src_lang} and {tgt_lang} ({explanation}); choose another file"
        )
    if incomplete:
        units = counted(incomplete, "unit")
        log.info("%s: %s left out, without %s or %s", path, units, src_lang, tgt_lang)


def read_catalogue_pairs(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    """Yields the messages that have a translation which is not fuzzy; every form of a plural is
    one.
    """
    text, _ = decode_document(path, read_whole(path))
    is_reversed = False
    for message in read_messages(text.removeprefix("\ufeff"), path):
        if not message.texts["msgid"]:
            code = message.language
            is_reversed = best_match(code, (src_lang, tgt_lang)) == src_lang
            if code and not best_match(code, (src_lang, tgt_lang)):
                raise DataError(
                    f"{path}: its language is {code:.40}, neither {src_lang} nor {tgt_lang}; "
                    "choose another file, or correct its header"
                )
        elif not message.is_fuzzy:
            texts = ((message.source(name), target) for name, target in message.targets.items())
            yield from _pairs(path, message.line, texts, is_reversed)


def read_xliff_pairs(path: Path, src_lang: str, tgt_lang: str) -> Iterator[RawPair]:
    """Yields the units that have a translation, except those that are not to be translated."""
    content = decode_document(path, read_whole(path))[0].encode()
    for unit in read_xliff(content, path):
        src, tgt = (code and best_match(code, (src_lang, tgt_lang)) for code in unit.languages)
        if None in (src, tgt) or (src and src == tgt):
            direction = " to ".join(filter(None, unit.languages))
            raise DataError(
                f"{path}: line {unit.line}: it is {direction}, not {src_lang} to {tgt_lang}; "
                "choose another file, or correct its languages"
            )
        texts = [] if unit.is_kept else [(unit.text, unit.translation)]
        yield from _pairs(path, unit.line, texts, src == tgt_lang or tgt == src_lang)


def _pairs(
    path: Path, line: int, texts: Iterable[tuple[str, str]], is_reversed: bool
) -> Iterator[RawPair]:
    """Yields a text and its translations, if there are any."""
    for pair in texts:
        src, tgt = (
            text.replace("\n", " ").strip().encode()
            for text in (pair[::-1] if is_reversed else pair)
        )
        if src and tgt:
            yield RawPair(str(path), line, src, tgt)
