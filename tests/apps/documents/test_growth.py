"""Twice the text takes less than two and a half times the time, whatever is in it."""

import time
from contextlib import suppress
from pathlib import Path

import pytest

from aiayn.apps.documents.document import parse_document
from aiayn.errors import DataError

BEGINNINGS = {
    "md": "",
    "html": "",
    "srt": "1\n00:00:01,000 --> 00:00:02,000\n",
    "vtt": "WEBVTT\n\n00:00:01,000 --> 00:00:02,000\n",
    "po": 'msgid "a"\nmsgstr ""\n',
    "xliff": "<xliff><file><trans-unit><source>",
    "xlf": '<xliff xml:space="preserve"><file><trans-unit><source>',
    "jsonl": '{"en": "a"}\n{"en": "',
}
ENDINGS = {"xlf": "b</source></trans-unit></file></xliff>"}
ENDINGS["xliff"] = ENDINGS["xlf"]
REPEATED = {
    "md": [
        "[^",
        "[^a] ",
        "[^a]:\n",
        "![",
        "${",
        "a\n\n",
        "$a ",
        "`a",
        "- a\n",
        "a|b\n-|-\n",
        "\\begin{a}",
        "\\(a_",
        "{% a %} ",
        "::: a ",
        "[a][a] ",
        *("@a", "@a.", "++a", "a++a+", "\\ab{", "\\ab", "a ^a", "{{%", "{{% a ", "{{< ", "+--"),
        *("export {\n\n", "export *\n", "<A {\n", "<A\n\n", "{{<\n\n", "--8<--\n\n", "```{note}\n"),
        *(
            ":::mermaid\n",
            "/*",
            ":a: b\n",
            ":::{a}\n:a: b\n",
            ": a\n",
            "[!a ",
            '!!! a "',
            ":::a[b]\n",
        ),
        *("\n| a", "///\n    a: b\n", "\n    a: b", "<A>\n", "</A>\na\n\n", "<a"),
    ],
    "html": [
        "<",
        "<!--",
        "<a ",
        "{{",
        "&lt;a",
        "<b><i>",
        "<ruby>a<rt>b",
        "<rt>",
        "</rt>",
        "&#8212;",
        "&a",
        "&a;<b>",
    ],
    "srt": ["-->", "\n", "{\\", "1\n", "1\n\n", "a\n", "a\n\n", "1:", " ", "1\n1:1-->1:1\na\n\n"],
    "vtt": ["NOTE\n\n", "NOTE a\n", "a\n\n", "a\n1:1-->1:1\na\n\n", "\n \n"],
    "po": ['msgstr[1] "a"\n', '"a"\n', "#~ a\n", 'msgid "a"\nmsgstr ""\n'],
    "xliff": ["<", "<x/>", "&lt;", " ", "<![CDATA[<target ]]>"],
    "xlf": [" ", "\t", "\n", " a", "\n a", "</source></trans-unit><trans-unit><source>a"],
    "jsonl": ["[", "{", '{"en": ', "null\n", '{"en": "a"}\n', "\\"],
}


def seconds(suffix: str, text: str) -> float:
    text += ENDINGS.get(suffix, "")
    start = time.process_time()
    with suppress(DataError):
        parse_document(Path(f"x.{suffix}"), text.encode(), ("en", "de"))
    return time.process_time() - start


@pytest.mark.parametrize(
    ("suffix", "repeated"),
    [
        pytest.param(suffix, part, marks=pytest.mark.slow if part == "${" else ())
        for suffix in REPEATED
        for part in REPEATED[suffix]
    ],
)
def test_time_grows_with_the_size_of_a_document_and_not_with_its_square(suffix, repeated):
    text = BEGINNINGS[suffix] + repeated * (4_000 // len(repeated))
    once = min(seconds(suffix, text) for _ in range(2))
    if once < 0.01:  # too short to be measured: a hundred times would be noticed
        assert seconds(suffix, text + repeated * (36_000 // len(repeated))) < 0.5
        return
    twice = text + repeated * (4_000 // len(repeated))
    # Both are measured anew each time, for a busy machine slows one of them down; a square would
    # take four times as long.
    assert any(seconds(suffix, twice) < 2.5 * seconds(suffix, text) + 0.01 for _ in range(5))
