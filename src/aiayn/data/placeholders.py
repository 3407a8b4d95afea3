"""Placeholders and tags, which a translation must repeat unchanged."""

import re
from collections import Counter
from collections.abc import Collection

# All patterns take time in proportion to a text's length: no part of it is scanned again for each
# place where a match might begin.
# `{name}`, `{0}`, `${name}`, `{{ name }}`, `{% if x %}`, `{# note #}`; `%s`, `%1$s`, `%(x)d`,
# `%{x}`, `%.2f`; `%@` and `%1$@` of Apple, `%1` and `%L1` of Qt; `&amp;`; web and mail addresses,
# host names; emoji; versions such as `v2.13.0` and numbers of accounts (IBAN), in groups or not.
_EMOJI = (
    "[\u2139\u231a-\u23ff\u25aa-\u25fe\u2600-\u27bf\u2b05-\u2b55"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001faff]"
)
# in a form, a colour of skin, or of a region
_EMOJI += "[\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
SCHEME = "(?i:https?|ftps?|sftp|ssh|git|file)://"  # of an address
_ADDRESS_END = r"[^\s<>\"'«»“”„]*[^\s<>\"'«»“”„.,;:!?)\]}]"
# `example.com`, `docs.example.co.uk:80/path`, by their last label: in lower case, as two sentences
# meet in `end.The`. Last labels that are also words or endings of files (`end.it`, `run.sh`) need
# one label more, a path or a text of their own.
_LETTER = "A-Za-z0-9\u00c0-\u024f"
_LABEL = rf"[{_LETTER}-]{{1,63}}\."
_DOMAINS = (
    "com|org|net|edu|gov|mil|info|biz|io|dev|app|ai|eu|ar|au|bg|br|ca|ch|cl|cn|cz|de|dk|ee|es|fi|fr"
    "|gr|hk|hr|hu|ie|il|ir|jp|kr|lt|lv|mx|nl|nz|pt|ro|ru|se|sg|sk|tr|tv|tw|ua|uk|vn|za|COM|NET|ORG"
)
_WORDS = (
    "at|be|by|cc|cloud|co|fm|id|in|is|it|ly|md|me|my|no|online|pl|py|rs|sh|shop|site|so|st|to|us"
)
_PATH = rf"(?::\d{{1,5}})?[/?#](?:{_ADDRESS_END})?"
_HOST = (
    rf"(?<![{_LETTER}_@-])(?:(?:{_LABEL}){{1,8}}(?:(?:{_DOMAINS})|(?:{_WORDS})(?=(?::\d{{1,5}})?/))"
    rf"|(?:{_LABEL}){{1,8}}[{_LETTER}-]{{2,63}}\.(?:{_WORDS}))"
    rf"(?![{_LETTER}_@]|\.[a-z0-9])(?:{_PATH}|:\d{{2,5}}\b)?"
    rf"|^(?:{_LABEL}){{1,8}}(?:{_WORDS})$"
)
# First the characters that one may begin with, for this is much faster than to try every form.
PLACEHOLDER = re.compile(
    r"(?=[\w{$%&.+*#-]|[^\x00-\x7f])(?:\{\{[^{}]{1,100}\}\}|\{%[^{}%]{1,100}%\}|\{#[^{}#]{1,100}#\}|\$?\{\{?[^\s{}]{0,60}\}?\}"
    r"|%(?:\d{1,4}\$)?[-+#0]{0,5}(?:\d{1,4}|\*)?(?:\.\d{1,4})?(?:hh|h|ll|l|z|j|t|L)?[diouxXeEfFgGaAcspn](?![^\W\d_])"
    r"|%(?:\d{1,4}\$)?@|(?<!%)%L?[1-9]\d?(?!\w|\$|[.,]\d)"
    r"|%\([^\s()]{1,60}\)[-+# 0]{0,5}\d{0,4}(?:\.\d{1,4})?[diouxXeEfFgGcrs]|%\{[^\s{}]{1,60}\}"
    r"|&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
    rf"|(?:(?=[FGHSfghs]){SCHEME}|\b(?i:mailto|tel):|\bwww\.){_ADDRESS_END}"
    rf"|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+|{_HOST}"
    r"|\bv\d{1,6}(?:\.\d{1,6}){1,6}\b"
    r"|\b[A-Z]{2}\d\d ?[A-Z0-9]{4}(?: ?\d{4}){2}(?: ?\d[A-Z0-9]{0,3}){0,6}(?![^\W_])"
    rf"|{_EMOJI}(?:\u200d{_EMOJI})*|[\U0001f1e6-\U0001f1ff]{{1,2}}|[0-9#*]\ufe0f?\u20e3)"
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
    """Returns whether anything in a text can be translated: a letter outside its placeholders and
    tags.
    """
    return any(map(str.isalpha, text)) and any(
        map(str.isalpha, PLACEHOLDER.sub("", TAG.sub("", text)))
    )


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
