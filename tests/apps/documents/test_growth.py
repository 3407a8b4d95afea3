"""Twice the text takes less than two and a half times the time, whatever is in it."""

import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from aiayn.apps.documents.document import parse_document
from aiayn.apps.documents.markup import rendered
from aiayn.apps.localisation.readers import (
    read_catalogue_pairs,
    read_memory_pairs,
    read_xliff_pairs,
)
from aiayn.errors import DataError

XLIFF = '<xliff version="{}" source-language="en" target-language="de" srcLang="en" trgLang="de">'
UNIT = XLIFF.format("1.2") + "<file><trans-unit>"
# By the format, and what begins in it
BEGINNINGS = {
    "md": "",
    "html": "",
    "srt": "1\n00:00:01,000 --> 00:00:02,000\n",
    "vtt": "WEBVTT\n\n00:00:01,000 --> 00:00:02,000\n",
    "po": 'msgid "a"\nmsgstr ""\n',
    "xliff": "<xliff><file><trans-unit><source>",
    "xlf": '<xliff xml:space="preserve"><file><trans-unit><source>',
    "jsonl": '{"en": "a"}\n{"en": "',
    "csv": "en,de\n",
    "tsv": "en\tde\n",
    "txt": "",
    "tmx": '<tmx version="1.4"><body>',
    "tmx unit": '<tmx version="1.4"><body><tu>',
    "tmx text": '<tmx version="1.4"><body><tu><tuv xml:lang="en"><seg>',
    "po file": "",
    "po c": '#, c-format\nmsgid "',
    "po braces": '#, python-brace-format\nmsgid "',
    "po java": '#, java-format\nmsgid "%s',
    "po mark-up": 'msgid "',
    "xlf codes": f"{UNIT}<source>",
    "xlf unit": f"{UNIT}<source>a</source>",
    "xlf tag": XLIFF.format("1.2") + "<file><trans-unit ",
    "xlf 2": XLIFF.format("2.0") + "<file>",
}
ENDINGS = {"xlf": "b</source></trans-unit></file></xliff>"}
ENDINGS |= {
    **dict.fromkeys(("xliff", "xlf codes"), ENDINGS["xlf"]),
    **dict.fromkeys(("po c", "po braces", "po java", "po mark-up"), '"\nmsgstr ""\n'),
    "tmx": "</body></tmx>",
    "tmx unit": "</tu></body></tmx>",
    "tmx text": "</seg></tuv></tu></body></tmx>",
    "xlf unit": "</trans-unit></file></xliff>",
    "xlf tag": 'a=""><source>a</source></trans-unit></file></xliff>',
    "xlf 2": "</file></xliff>",
}
READERS = {"tmx": read_memory_pairs, "po": read_catalogue_pairs, "xlf": read_xliff_pairs}
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
        *(
            "{/*\n\n",
            "{% comment %}\n\n",
            "{ .a",
            "{~~",
            "{a(",
            "[a]: ",
            "<a>[a](",
            "```{a}\n---\n",
        ),
        *(
            "==a",
            "a^",
            "a~b",
            "[a]{",
            "==a== ",
            "\n| a",
            "///\n    a: b\n",
            "\n    a: b",
            "<A>\n",
            "</A>\na\n\n",
            "<a",
        ),
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
    "csv": [
        '"',
        '""',
        '"a',
        '"a\n',
        ' "',
        '",',
        '","',
        ",",
        "a,\n",
        '"a\n,',
        "\r",
        '"""\n',
        '"a"""',
    ],
    "tsv": ['"', '"\t"', "a\t\n", "\r\n", '"a\n', "\t", '""\t"'],
    "txt": ["a", "\n", "a. ", "a\n\n", "(", "A.B.", "\u4eca\u3002", "a.b"],
    "tmx": [
        "<tu>",
        "<tu/>",
        '<tu><tuv xml:lang="en"><seg>a</seg></tuv></tu>',
        "a",
        "<!-- -->",
        "\n",
    ],
    "tmx unit": ['<tuv xml:lang="en"><seg>a</seg></tuv>', '<tuv xml:lang="en"/>', "<prop>a</prop>"],
    "tmx text": [
        "<ph/>",
        "<ph>a</ph>",
        " \n",
        "a<it/>a",
        "<hi>",
        "<hi>a</hi>",
        "<![CDATA[a]]>",
        "&lt;",
    ],
    "po file": ["#, c-format\n", "# a\n", "#| a\n", "\n", 'msgid ""\n', 'msgctxt "a"\n', ' "a"\n'],
    "po c": ["%", "%'", "% ", "%1", "%1$", "%%", "&", "_a", "<a", "a&b", "\\n"],
    "po braces": ["{", "{{", "{a", "{0", "}", "{a[", "{:"],
    "po java": ["%<s ", "%<s%%", "{", "{0", "'{", "'"],
    "po mark-up": [
        *("``a``", "``a ", "`a <b>`_ ", "`a <", "*a", "**", "$(", "@a@", "&a", "a_", "[#", "|a"),
        *("<a>b</a>", ":a:`b`", ":a:`"),
    ],
    "xlf codes": [
        *('<bpt id="1">a</bpt>', '<ept id="1"/>', '<bx id="1"/>a', '<g id="1">', '<g id="1">a</g>'),
        *(
            "<mrk>a</mrk>",
            "<ph>a</ph>",
            "<!--a-->",
            "<?a?>",
            "&#10;",
            '<bpt id="1"/>a<ept id="1"/>',
        ),
    ],
    "xlf unit": ['<target state="new"/>', "<note>a</note>", '<note a=" state=">a</note>'],
    "xlf tag": ['a="b" ', 'state="a" ', "state=", " ", "'"],
    "xlf 2": [
        *("<segment><source>a</source></segment>", "<unit/>", "<group>", "<note>a</note>"),
        '<unit><segment><source>a<sc id="1"/>b<ec startRef="1"/></source></segment></unit>',
    ],
}


def seconds(beginning: str, text: str) -> float:
    """Returns how long the text takes as a document, read and written, and as text to train on."""
    text += ENDINGS.get(beginning, "")
    suffix = beginning.partition(" ")[0]
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"x.{suffix}"
        path.write_text(text, "utf-8")
        start = time.process_time()
        with suppress(DataError):
            pieces = parse_document(path, text.encode(), ("en", "de")).pieces
            rendered(pieces, lambda part: part.escape(part.text.swapcase()))
        with suppress(DataError):
            list(READERS[suffix](path, "en", "de") if suffix in READERS else ())
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
