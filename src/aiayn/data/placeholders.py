"""Placeholders and tags, which a translation must repeat unchanged."""

import re
from collections import Counter

# All patterns take time in proportion to a text's length, whatever is in it: no part of it is scanned for each of many
# places where a match might begin.
# `{name}`, `{0}`, `${name}`, `{{ name }}`, `{% if x %}`, `{# note #}`; `%s`, `%1$s`, `%(x)d`, `%{x}`, `%.2f`; `%@` and
# `%1$@` of Apple, `%1` and `%L1` of Qt; `&amp;`; web and mail addresses.
PLACEHOLDER = re.compile(
    r"\{\{[^{}]{1,100}\}\}|\{%[^{}%]{1,100}%\}|\{#[^{}#]{1,100}#\}|\$?\{\{?[^\s{}]{0,60}\}?\}"
    r"|%(?:\d{1,4}\$)?[-+#0]{0,5}(?:\d{1,4}|\*)?(?:\.\d{1,4})?(?:hh|h|ll|l|z|j|t|L)?[diouxXeEfFgGaAcspn](?![^\W\d_])"
    r"|%(?:\d{1,4}\$)?@|(?<!%)%L?[1-9]\d?(?!\w|\$|[.,]\d)"
    r"|%\([^\s()]{1,60}\)[-+# 0]{0,5}\d{0,4}(?:\.\d{1,4})?[diouxXeEfFgGcrs]|%\{[^\s{}]{1,60}\}"
    r"|&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
    r"|(?:(?:https?|ftp|file)://|\bwww\.)[^\s<>\"'«»“”„]*[^\s<>\"'«»“”„.,;:!?)\]}]"
    r"|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
)
# `<b>`, `</b>`, `<br/>`, `<a href="x">`, and the same written with entities, to count them in pairs of text and to find
# those that a model has written. It does not read HTML: `search/markup.py` does.
TAG = re.compile(
    r"<!--(?:-?>|(?:(?!<!--).)*?-->)"
    r"|</?[A-Za-z_][\w:.-]*(?:\s(?:\"[^\"<]*\"|'[^'<]*'|[^<>\"'])*)?/?>"
    r"|&lt;/?[A-Za-z_][\w:.-]*(?:\s(?:(?!&[lg]t;)[^<>])*)?/?&gt;",
    re.DOTALL,
)
# Chinese and Japanese, with their punctuation: nothing separates words, and no blank belongs beside them.
CJK = "\u3001-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f\U00020000-\U000323af"


def placeholders(text: str) -> Counter[str]:
    """Returns the placeholders and tags of a text, with how often each occurs."""
    without_tags = TAG.sub("\n", text)  # which is in none of them
    return Counter(TAG.findall(text)) + Counter(PLACEHOLDER.findall(without_tags))
