"""Parts of a text that stand for something else, and that a translation must repeat as they are."""

import re
from collections import Counter

# `{name}`, `{0}`, `${name}`, `{{name}}`; `%s`, `%1$s`, `%(x)d`, `%{x}`, `%.2f`; `&amp;`; web and mail addresses.
PLACEHOLDER = re.compile(
    r"\$?\{\{?[^\s{}]{0,60}\}?\}"
    r"|%(?:\d+\$)?[-+#0]*(?:\d+|\*)?(?:\.\d+)?(?:hh|h|ll|l|z|j|t|L)?[diouxXeEfFgGaAcspn](?![^\W\d_])"
    r"|%\([^\s()]{1,60}\)[-+# 0]*\d*(?:\.\d+)?[diouxXeEfFgGcrs]|%\{[^\s{}]{1,60}\}"
    r"|&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
    r"|(?:https?|ftp|file)://[^\s<>\"'«»“”„]*[^\s<>\"'«»“”„.,;:!?)\]}]"
    r"|\bwww\.[^\s<>\"'«»“”„]*[^\s<>\"'«»“”„.,;:!?)\]}]"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
)
# `<b>`, `</b>`, `<br/>`, `<a href="x">`, and the same written with entities, as in HTML that shows HTML.
TAG = re.compile(
    r"<!--.*?-->"
    r"|</?[A-Za-z][\w:.-]*(?:\s(?:\"[^\"<]*\"|'[^'<]*'|[^<>\"'])*)?/?>"
    r"|&lt;/?[A-Za-z][\w:.-]*(?:\s(?:(?!&[lg]t;)[^<>])*)?/?&gt;",
    re.DOTALL,
)
NUMBER = re.compile(r"\d+")


def placeholders(text: str) -> Counter[str]:
    """Returns the placeholders and tags of a text, with how often each occurs."""
    without_tags = TAG.sub(" ", text)
    return Counter(TAG.findall(text)) + Counter(PLACEHOLDER.findall(without_tags))


def numbers(text: str) -> Counter[int]:
    """Returns the runs of digits in a text as numbers: 1,234.5 and 1.234,5 have the same ones."""
    return Counter(int(digits) for digits in NUMBER.findall(text) if len(digits) < 40)
