"""The encodings of documents: that of a mark, the one that a file declares, or UTF-8."""

import codecs
import re
from contextlib import suppress
from pathlib import Path

from aiayn.data.text_files import opened, refuse_utf_16, refuse_utf_32, suffix
from aiayn.errors import DataError

MAX_DOCUMENT = 256 << 20  # bytes of a file that is parsed as a whole
# In HTML, in the header of a catalogue (which does not begin with a tag) and in XML: elsewhere it
# is text.
DECLARED = re.compile(
    rb"(?i:<meta\s[^>]*|\A(?!\s*<)(?s:.*?)content-type:[^\n]*)\bcharset\s*=\s*[\"']?\s*([\w.:-]+)"
    rb"|<\?xml[^>]*\sencoding=[\"']([\w.:-]+)"
)
# Of those that the WHATWG's standard has, Python's names, and which of them it reads as another
# one. Python has further codecs, such as UTF-7 and escapes, in which text that is harmless to every
# browser may hide tags.
_TEXT_CODECS = (
    "utf-8 cp866 koi8-r koi8-u mac-roman mac-cyrillic cp874 cp949 gbk gb18030 big5 euc_jp "
    "iso2022_jp cp932"
)
ENCODINGS = {
    *_TEXT_CODECS.split(),
    *(f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
    *(f"cp125{page}" for page in range(9)),
}
READ_AS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
}
READ_AS |= {"euc_kr": "cp949", "shift_jis": "cp932", "gb2312": "gbk"}
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def read_whole(path: Path) -> bytes:
    """Returns the content of a file that is parsed as a whole, plain or compressed."""
    with opened(path) as stream:
        content = stream.read(MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        raise DataError(
            f"{path}: files of this kind are limited to {MAX_DOCUMENT >> 20} MB; divide it"
        )
    return content


def decode_document(path: Path, content: bytes, may_declare: bool = True) -> tuple[str, str]:
    """Returns the text of a file and its encoding: that of its mark, the one that it declares, or
    UTF-8.
    """
    refuse_utf_32(content, path)
    encoding = next((name for mark, name in MARKS.items() if content.startswith(mark)), "")
    start = re.sub(rb"(?s)<!--.*?(?:-->|\Z)", b"", content[:4096])
    declared = DECLARED.search(start) if may_declare and not encoding else None
    if declared and declared[1] != b"CHARSET":  # of a catalogue that nobody has begun
        label = (declared[1] or declared[2]).decode()
        name = _codec_of(label)
        # Browsers read windows-1252 where a page says Latin-1.
        is_page = suffix(path.name) in ("html", "htm", "xhtml")
        encoding = READ_AS.get(name, name) if is_page else name
        if name not in ENCODINGS and name not in READ_AS:
            raise DataError(
                f"{path}: the encoding {label} is not supported; convert the file to UTF-8"
            )
        with suppress(UnicodeDecodeError):
            if name != "utf-8" and not content.isascii() and content.decode("utf-8"):
                raise DataError(
                    f"{path}: declares the encoding {label} but is UTF-8; correct its declaration"
                )
    if not encoding:
        refuse_utf_16(content[:64], path)
    try:
        return content.decode(encoding or "utf-8"), encoding or "utf-8"
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}: line {line} is not {encoding or 'UTF-8'}; correct or convert it"
        ) from None


def _codec_of(label: str) -> str:
    """Returns Python's name of an encoding; empty if it has none.

    Browsers know further labels, such as x-sjis, windows-874 and iso-8859-8-i.
    """
    plain = re.sub(r"(?i)^(?:x-|cs)|-[ei]$", "", label)
    for name in (label, plain, re.sub(r"(?i)^(?:windows|dos)-", "cp", plain)):
        with suppress(LookupError, UnicodeError):
            return codecs.lookup(name).name
    return ""
