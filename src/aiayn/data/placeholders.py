"""Placeholders and tags, which a translation must repeat unchanged."""

import re
from collections import Counter
from collections.abc import Collection

# All patterns take time in proportion to a text's length, whatever is in it: no part of it is
# scanned for each of many places where a match might begin.
# `{name}`, `{0}`, `${name}`, `{{ name }}`, `{% if x %}`, `{# note #}`; `%s`, `%1$s`, `%(x)d`,
# `%{x}`, `%.2f`; `%@` and `%1$@` of Apple, `%1` and `%L1` of Qt; `&amp;`; web and mail addresses;
# emoji; versions such as `v2.13.0` and numbers of accounts (IBAN), in groups or not.
_EMOJI = (
    "[\u2139\u231a-\u23ff\u25aa-\u25fe\u2600-\u27bf\u2b05-\u2b55"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001faff]"
)
# in a form, a colour of skin, or of a region
_EMOJI += "[\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
SCHEME = "(?i:https?|ftps?|sftp|ssh|git|file)://"  # of an address
PLACEHOLDER = re.compile(
    r"\{\{[^{}]{1,100}\}\}|\{%[^{}%]{1,100}%\}|\{#[^{}#]{1,100}#\}|\$?\{\{?[^\s{}]{0,60}\}?\}"
    r"|%(?:\d{1,4}\$)?[-+#0]{0,5}(?:\d{1,4}|\*)?(?:\.\d{1,4})?(?:hh|h|ll|l|z|j|t|L)?[diouxXeEfFgGaAcspn](?![^\W\d_])"
    r"|%(?:\d{1,4}\$)?@|(?<!%)%L?[1-9]\d?(?!\w|\$|[.,]\d)"
    r"|%\([^\s()]{1,60}\)[-+# 0]{0,5}\d{0,4}(?:\.\d{1,4})?[diouxXeEfFgGcrs]|%\{[^\s{}]{1,60}\}"
    r"|&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
    rf"|(?:{SCHEME}|\b(?i:mailto|tel):|\bwww\.)[^\s<>\"'«»“”„]*[^\s<>\"'«»“”„.,;:!?)\]}}]"
    r"|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|\bv\d{1,6}(?:\.\d{1,6}){1,6}\b"
    r"|\b[A-Z]{2}\d\d ?[A-Z0-9]{4}(?: ?\d{4}){2}(?: ?\d[A-Z0-9]{0,3}){0,6}(?![^\W_])"
    rf"|{_EMOJI}(?:\u200d{_EMOJI})*|[\U0001f1e6-\U0001f1ff]{{1,2}}|[0-9#*]\ufe0f?\u20e3"
)
# `<b>`, `</b>`, `<br/>`, `<a href="x">`, and the same written with entities, to count them in pairs
# of text and to find those that a model has written. It does not read HTML;
# `apps/documents/markup.py` does.
TAG = re.compile(
    r"<!--(?:-?>|(?:(?!<!--).)*?-->)"
    r"|</?[A-Za-z_][\w:.-]*(?:\s(?:\"[^\"<]*\"|'[^'<]*'|[^<>\"'])*)?/?>"
    r"|&lt;/?[A-Za-z_][\w:.-]*(?:\s(?:(?!&[lg]t;)[^<>])*)?/?&gt;",
    re.DOTALL,
)
# Chinese and Japanese, with their punctuation: nothing separates words, and no blank belongs beside
# them.
CJK = (
    "\u3001-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff01-\uff9f\U00020000-\U000323af"
)


def has_letters(text: str) -> bool:
    """Returns whether anything in a text can be translated: a letter outside its placeholders."""
    return any(map(str.isalpha, text)) and any(map(str.isalpha, PLACEHOLDER.sub("", text)))


def split_symbol(text: str, symbols: Collection[str]) -> tuple[str, str]:
    """Splits a text into the symbol that it begins with, such as the tag <2de>, and the rest; the
    symbol is empty without one.
    """
    first, _, rest = text.partition(" ")
    return (first, rest) if first in symbols else ("", text)


def placeholders(text: str) -> Counter[str]:
    """Returns the placeholders and tags of a text, with how often each occurs."""
    without_tags = TAG.sub("\n", text)  # no placeholder contains a line feed
    return Counter(TAG.findall(text)) + Counter(PLACEHOLDER.findall(without_tags))
