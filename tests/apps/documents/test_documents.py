"""Documents come back with their texts in the other language and everything else byte for byte."""

import json
import re
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_trip import compared, rows

from aiayn.apps.documents.document import Document, in_lines, parse_document
from aiayn.apps.documents.markup import Checked, Part, parts_of, rendered
from aiayn.apps.documents.placement import UNIT, written
from aiayn.apps.documents.texts import Texts
from aiayn.data.text_files import read_lines
from aiayn.errors import DataError

LANGS = ("en", "de")


def document(name: str, content: str | bytes, markup: bool = False, **options: bool) -> Document:
    content = content.encode() if isinstance(content, str) else content
    return parse_document(Path(name), content, LANGS, markup, **options)


def word_for_word(text: str, shout: bool) -> tuple[str, np.ndarray]:
    """A translation of every word by itself, in capitals or the same, and how its words attend to
    these.
    """
    translation = UNIT.sub(
        lambda unit: unit[0].upper() if shout and not re.match("[{%&]|http", unit[0]) else unit[0],
        text,
    )
    return translation, np.eye(len(UNIT.findall(text)))


def translated(
    name: str, content: str | bytes, markup: bool = False, shout: bool = True, **options: bool
) -> str | bytes:
    """The document of a translator that shouts, or does not."""
    found = document(name, content, markup, **options)

    def text_of(part: Part) -> str:
        if not found.markup:
            return part.escape(part.text.upper())
        return written(part, *word_for_word(part.text, shout), Counter())

    text = rendered(found.pieces, text_of)
    return text if isinstance(content, str) else found.encode(text)


MARKDOWN = """---
title: kept
---
# a *big* house {#house}

two **old** cats see `rm -rf x` in [the house](http://x.org "a title") and <b>see</b>
[^1] over ![two](cats.png) lines.\x20\x20
a \\* star, a[0], <http://a.org>

> the man sees **the
> house**.

- [ ] one cat
  goes on

| cat | two \\| `x` | |
|-----|:---:|-|
| a   | b   | |

```sh
the cat
```

    the house

<div class="the house">a <i>cat</i><pre>the cat</pre></div>

the end
=======

[1]: http://x.org "the title"
[^1]: the note
"""

SHOUTED_MARKDOWN = """---
title: kept
---
# A *BIG* HOUSE {#house}

TWO **OLD** CATS SEE `rm -rf x` IN [THE HOUSE](http://x.org "a title") AND <b>SEE</b>\x20\
[^1] OVER ![two](cats.png) LINES.\x20\x20
A \\* STAR, A[0], <http://a.org>

> THE MAN SEES **THE HOUSE**.

- [ ] ONE CAT GOES ON

| CAT | TWO \\| `x` | |
|-----|:---:|-|
| A   | B   | |

```sh
the cat
```

    the house

<div class="the house">A <i>CAT</i><pre>the cat</pre></div>

THE END
=======

[1]: http://x.org "the title"
[^1]: THE NOTE
"""

CATALOGUE = r"""# the comment
msgid ""
msgstr ""
"Language: de_AT\n"
"Content-Type: text/plain; charset=UTF-8\n"


#: house.c:7  cat.c:8
#, c-format
msgctxt "the house"
msgid   "%d \"cat\" sees\n"
msgstr  ""

msgid ""
"the <b x=\"y\">man</b> "
"sees\n"
"\tthe end"
msgstr ""
#, fuzzy
msgid "one"
msgstr "eins?"

msgid "%d cat"
msgid_plural "%d cats"
msgstr[0] ""
msgstr[1] "%d Katzen"

#~ msgid "old"
#~ msgstr ""
"""

SHOUTED_CATALOGUE = (
    CATALOGUE.replace("#, c-format", "#, fuzzy, c-format")
    .replace('\n\nmsgid ""\n"the <b', '\n\n#, fuzzy\nmsgid ""\n"the <b')
    .replace('\nmsgid "%d cat"', '\n#, fuzzy\nmsgid "%d cat"')
    .replace('msgstr  ""', 'msgstr  "%d \\"CAT\\" SEES\\n"')
    .replace('the end"\nmsgstr ""', 'the end"\nmsgstr "THE <b x=\\"y\\">MAN</b> SEES\\n\\tTHE END"')
    .replace('msgstr[0] ""', 'msgstr[0] "%d CAT"')
)

XLIFF = """<?xml version='1.0' encoding="utf-8" ?>
<xliff version="1.2"><!-- the > comment --><file source-language='en-US'   target-language="de" original="a"><body>
  <trans-unit id="1">
    <source>the <g id="1">old</g> house&#160;&lt; 5<x id="2" /></source>
    <note>a note</note>
  </trans-unit>
  <trans-unit id="2"><source>two cats</source><target/></trans-unit>
  <trans-unit id="3"><source>two cats</source><target>zwei Katzen</target>
    <alt-trans><source>a cat</source><target></target></alt-trans></trans-unit>
  <trans-unit id="4" translate="no"><source>two cats</source><target></target></trans-unit>
  <trans-unit id="5"><source>see <ph id="1">&lt;b></ph>it</source><target state="new">see it</target></trans-unit>
  <trans-unit id="6"><source>One. Two.</source><seg-source><mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2"
    >Two.</mrk></seg-source></trans-unit>
</body></file></xliff>
"""

SHOUTED_XLIFF = (
    XLIFF.replace(
        '<x id="2" /></source>',
        '<x id="2" /></source>\n    <target>THE <g id="1">OLD</g> HOUSE&#160;&lt; '
        '5<x id="2" /></target>',
    )
    .replace("<target/>", "<target>TWO CATS</target>")
    .replace('state="new">see it', 'state="translated">SEE <ph id="1">&lt;b></ph>IT')
    .replace(
        "</seg-source>",
        '</seg-source><target><mrk mtype="seg" mid="1">ONE.</mrk> <mrk mtype="seg" mid="2"\n    '
        ">TWO.</mrk></target>",
    )
)

SUBTITLES = """1\r
00:00:01,000 --> 00:00:02,500 X1:40\r
the old <i>house</i>\r
of two cats and a man\r
\r
2\r
00:00:03,000 --> 00:00:04,000\r
{\\an8}- the cat\r
- 1984 -\r
\u2013 the end\r
\r
\r
note --\r
"""

SHOUTED_SUBTITLES = (
    (
        SUBTITLES.replace(
            "the old <i>house</i>\r\nof two cats and a man",
            "THE OLD <i>HOUSE</i>\r\nOF TWO CATS AND A MAN",
        )
    )
    .replace("- the cat", "- THE CAT")
    .replace("the end", "THE END")
    .replace("note", "NOTE")
)

TABLE = (
    'id,"English (US)",German\r\n1,the house,\r\n2,"two ""old"", cats", \r\n\r\n3,"the\nman" '
    ',""\r\n4,,x\r\n6,a cat,"eine\nKatze"\r\n5,"no,'
)
SHOUTED_TABLE = (
    'id,"English (US)",German\r\n1,the house,THE HOUSE\r\n2,"two ""old"", cats","TWO ""OLD"", '
    'CATS"\r\n\r\n3,"the\nman" ,"THE MAN "\r\n4,,x\r\n6,a cat,"eine\nKatze"\r\n5,"no,"NO"'
)

PAGE = """<!DOCTYPE html>\r\n<html lang="en"><head><title>the cat</title><style>p > b {}</style></head>
<!-- the <b>comment -->\r\n<body class='a>b'><p>the <a title="1 < 2" href=x>old</a> house<br/>&nbsp;&emsp; two &amp; cats &lt;
</p><script>if (a < b) the()</script><code>the cat</code></BODY></html>"""
SHOUTED_PAGE = """<!DOCTYPE html>\r\n<html lang="de"><head><title>THE CAT</title><style>p > b {}</style></head>
<!-- the <b>comment -->\r\n<body class='a>b'><p>THE <a title="1 < 2" href=x>OLD</a> HOUSE<br/>&nbsp;&emsp; TWO &amp; CATS &lt;
</p><script>if (a < b) the()</script><code>the cat</code></BODY></html>"""

JSON_LINES = (
    '{"id": 1e400, "en":"the \\"cat\\"", "n": 1.10, "big": 123456789012345678901234567890}\n\n'
    + (
        '{"x":"\\ud83d", "en":"two" , "x": 2 }\r\n{"translation": {"de": " " , "en": '
        '"a\\u0000b"}, "de": "y"}\n{"en": "two", "de": null}\n{"de": "zwei", "en": '
        '"two"}\n{"en": "two", "de": [1]}'
    )
)
SHOUTED_JSON_LINES = (
    JSON_LINES.replace("901234567890}", '901234567890, "de": "THE \\"CAT\\""}')
    .replace('"x": 2 }', '"x": 2, "de": "TWO" }')
    .replace('{"de": " " ,', '{"de": "A\\u0000B" ,')
    .replace("null", '"TWO"')
)

CASES = {
    "manual.md": (MARKDOWN, SHOUTED_MARKDOWN),
    "messages.po": (CATALOGUE, SHOUTED_CATALOGUE),
    "units.xliff": (XLIFF, SHOUTED_XLIFF),
    "film.srt": (SUBTITLES, SHOUTED_SUBTITLES),
    "table.csv": (TABLE, SHOUTED_TABLE),
    "page.html": (PAGE, SHOUTED_PAGE),
    "lines.jsonl": (JSON_LINES, SHOUTED_JSON_LINES),
    "plain.tsv": (
        'id\ten\tde\r\n1\tthe "house\t\r\n2\ttwo\tx\r\n\r\n',
        'id\ten\tde\r\n1\tthe "house\tTHE "HOUSE\r\n2\ttwo\tx\r\n\r\n',
    ),
    "hugo.md": (
        "+++\ntitle = 'the'\n+++\n[the cat] and [a][the cat]\n\n!!! note\n    see\n\n$$\na "
        "b\n$$\n\n[the cat]: x.org\n\nthe $a_b * c_d$ is $5, not $6 or $7\n",
        "+++\ntitle = 'the'\n+++\n[THE CAT][the cat] AND [A][the cat]\n\n!!! note\n    "
        "SEE\n\n$$\na b\n$$\n\n[the cat]: x.org\n\nTHE $a_b * c_d$ IS $5, NOT $6 OR $7\n",
    ),
    "film.vtt": (
        "WEBVTT - the\n\nNOTE the\n\nthe id\n00:01.000 --> 00:02.000\n\n00:03.000 --> "
        "00:04.000\nthe\n \n2\n00:05.000 --> 00:06.000\n<v Bob>the <00:05.500>cat</v>\n00:07.000 "
        "--> 00:08.000\nthe end\n",
        "WEBVTT - the\n\nNOTE the\n\nthe id\n00:01.000 --> 00:02.000\n\n00:03.000 --> "
        "00:04.000\nTHE\n \n2\n00:05.000 --> 00:06.000\n<v Bob>THE <00:05.500>CAT</v>\n00:07.000 "
        "--> 00:08.000\nTHE END\n",
    ),
    "template.html": (
        '<p {% if a > b %}class="x"{% endif %}>the {{ x|default("<b>") }} cat <%= a > 0 %> {{ x '
        "}}</p><i>{{ a<b }}</i>",
        '<p {% if a > b %}class="x"{% endif %}>THE {{ x|default("<b>") }} CAT <%= a > 0 %> {{ x '
        "}}</p><i>{{ a<b }}</i>",
    ),
    "blank.csv": ("\n\r\nSEP=;\nen;de\na, b;\n", "\n\r\nSEP=;\nen;de\na, b;A, B\n"),
    "excel.csv": ("sep=;\r\nen;de\r\na, b;\r\n", "sep=;\r\nen;de\r\na, b;A, B\r\n"),
    "late.csv": ("\n \t\nen\tde\na\t\n", "\n \t\nen\tde\na\tA\n"),
    "blanks.csv": ('en, de\n"a, b", ""\n "a",\n', 'en, de\n"a, b","A, B"\n "a",A\n'),
    "excel.tsv": ('"en"\t"de"\n"a ""b"""\t""\n', '"en"\t"de"\n"a ""b"""\t"A ""B"""\n'),
}


@pytest.mark.parametrize("name", CASES)
def test_texts_are_translated_and_everything_else_is_kept_byte_for_byte(name):
    source, expected = CASES[name]
    assert translated(name, source) == expected
    assert (
        translated(name, b"\xef\xbb\xbf" + source.encode()) == b"\xef\xbb\xbf" + expected.encode()
    )


def test_subtitles_keep_their_number_of_lines_where_words_have_no_blanks_between():
    text = "今天天气很好，我们去公园散步。他在<i>图书馆里</i>看书。"
    for count in (1, 2, 3):
        found = in_lines(text, [10] * count, ["\n"] * (count - 1)).split("\n")
        assert ("".join(found), len(found)) == (text, count)
        assert max(map(len, found)) < 2 * len(text) / count
        assert not any(line[0] in "，。" for line in found)
    film = document(
        "a.srt",
        "1\r\n00:01 --> 00:02\r\n今天\r\n天气 好\r\n\r\n2\r\n00:03 --> 00:04\r\n\u266a\r\n\u266a\r\n",
    )
    assert [piece.text for piece in film.parts] == ["今天天气 好"]
    assert "\u266a\r\n\u266a" in "".join(piece for piece in film.pieces if isinstance(piece, str))


TIMES = "00:00:0{},000 --> 00:00:0{},500"
ONE, TWO, THREE = (TIMES.format(second, second) for second in (1, 2, 3))


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        (
            "dash.srt",
            f"1\n{ONE}\n- Where?\n\u2014 Here\nit is.\n-5 cats\n",
            "Where?|Here it is. -5 cats",
        ),
        ("after.srt", f"1\n{ONE}\nAn end.\n\nNo end.\n\n\n7\n{TWO}\nOne.", "An end.|No end.|One."),
        (
            "arrow.srt",
            f"1\n{ONE}\nA --> B\n12 --> 7 cats\n\n2\n{TWO}\nOne.\n",
            "A --> B 12 --> 7 cats|One.",
        ),
        (
            "doubled.srt",
            f"1\r\n\r\n{ONE}\r\n\r\nthe old\r\n\r\nhouse.\r\n\r\n\r\n\r\n2\r\n\r\n{TWO}\r\n\r\nOne.",
            "the old house.|One.",
        ),
        (
            "over.srt",
            f"1\n{ONE}\nHe sees, and\n\n2\n{TWO}\nwe <i>all\nsee</i>.\n",
            "He sees, and we all see.",
        ),
        (
            "comma.srt",
            f"1\n{ONE}\nSo,\n\n2\n{TWO}\nAnna sees\n\n3\n{THREE}\nAnna.",
            "So, Anna sees|Anna.",
        ),
        ("long.srt", f"1\n{ONE}\n{'a ' * 200}\n\n2\n{TWO}\nb", "a " * 199 + "a|b"),
        (
            "style.srt",
            f"1\n{ONE}\n{{\\an8}}\n<i>- One,</i>\n\n2\n{TWO}\n<i>- two</i>",
            "- One,|- two",
        ),
        ("class.vtt", f"WEBVTT\n\n{ONE}\n<v.a Bob>one <c.b>cat</c></v> --> two", "one cat --> two"),
        ("break.srt", f"1\n{ONE}\nthe old\\Nhouse.\\NOne.\n", "the old house. One."),
        (
            "arrows.srt",
            f"1\n{ONE}\nTrains\n9:00 \u2192 10:00 daily\n2\n0:00:03.0 -> 0:00:04.0\nOne.\n\n3\n"
            "00:00:05,000 \u2192 00:00:06,000\nTwo.\n\n4\n0:0:07,0 \u2014> 0:0:08,0\nThree.\n",
            "Trains 9:00 \u2192 10:00 daily|One.|Two.|Three.",
        ),
        (
            "names.srt",
            f"1\n{ONE}\nANNA M.: The\nold house\nJOE: a cat\n>> and",
            "ANNA M.: The old house|JOE: a cat|>> and",
        ),
        (
            "voices.vtt",
            f"WEBVTT\n\n{ONE}\n<v Anna>The\nhouse\n<v.loud Joe>a cat",
            "The house|a cat",
        ),
        ("path.srt", f"1\n{ONE}\nin C:\\NEW\n", r"in C:\NEW"),
        ("br.srt", f"1\n{ONE}\none<br>two\n\n2\n{TWO}\nthree", "one|two|three"),
        (
            "named.vtt",
            f"WEBVTT\n\nNOTE\nno text\n\na name\n{ONE} align:start\nAn end.\n\nNo end.\n\nNOTE no text\n\nb\n"
            f"{TWO}\nOne.",
            "An end.|No end.|One.",
        ),
    ],
)
def test_a_subtitle_goes_on_until_the_next_one_begins(name, content, texts):
    found = document(name, content)
    assert [part.text for part in found.parts] == texts.split("|")
    assert translated(name, content, shout=False) == content
    assert not found.remarks


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<p translate=no>no<p>one</p><p>two", "one|two"),
        ("<div><p class=notranslate>no <b>no</b></div>one", "one"),
        ("<p translate=no>no<br>no<script>x</script> no</p>one", "one"),
        ("<p translate=no>no<h2>one</h2>two", "one|two"),
        ("<p translate=no><ruby>no<rt>no</ruby> no</p><p>one", "one"),
        ("<table><td><p translate=no>no<td>one</table>", "one"),
        ("<ul><li translate=no>no<li>one</ul><p>two</p>", "one|two"),
        ("<ul><li translate=no>no<ul><li>no<li>no</ul>no<li>one</ul>two", "one|two"),
        ("<ol><li translate=no>no <b>no</b></ol>one", "one"),
        ("<ul><li translate=no>no<ol><li>no</li></ol></li><li>one</li></ul>", "one"),
        ("<dl><dt class=notranslate>no<dd>one<dt>two</dl>", "one|two"),
        ("<table><tr><td translate=no>no<td>one<tr><td>two</table>", "one|two"),
        ("<table><tr translate=no><td>no<td>no<tr><td>one</table>", "one"),
        ("<select><option translate=no>no<option>one</select>", "one"),
    ],
)
def test_a_kept_paragraph_without_a_closing_tag_ends_where_browsers_end_it(page, texts):
    assert [part.text for part in document("a.html", page).parts] == texts.split("|")
    assert translated("a.html", page, shout=False) == page


@pytest.mark.parametrize("name", ["a.srt", "a.vtt"])
def test_subtitles_with_carriage_returns_between_lines_are_translated_and_keep_them(name):
    head = "WEBVTT\r\r" if name == "a.vtt" else ""
    film = f"{head}1\r{ONE}\rthe old\rhouse.\r\r2\r{TWO}\rOne.\r"
    found = document(name, film)
    assert [part.text for part in found.parts] == ["the old house.", "One."]
    text = rendered(found.pieces, lambda part: part.text.upper())
    expected = film.replace("the old\rhouse.", "THE OLD\rHOUSE.").replace("One.", "ONE.")
    assert found.encode(text) == expected.encode()
    assert not found.remarks


def test_an_arrow_of_a_translation_does_not_end_a_subtitle_of_webvtt():
    film = f"WEBVTT\n\n{ONE}\nthe cat\n"
    found = rendered(document("a.vtt", film).pieces, lambda part: "die --> Katze")
    assert found == film.replace("the cat", "die --&gt; Katze")


def test_a_sentence_over_two_subtitles_is_divided_in_proportion_and_every_subtitle_stays():
    film = f"1\n{ONE}\nthe very old house\n\n2\n{TWO}\nof the three cats\n"
    for text, first, second in (
        ("das sehr alte Haus der drei Katzen", "das sehr alte Haus", "der drei Katzen"),
        ("Katzenhaus", "Katzenhaus", ""),
    ):
        found = rendered(document("a.srt", film).pieces, lambda part, text=text: text)
        assert found == f"1\n{ONE}\n{first}\n\n2\n{TWO}\n{second}\n"
    film = f"1\n{ONE}\nthe\ncats"
    found = rendered(document("a.srt", film).pieces, lambda part: "Katzen")
    assert found == f"1\n{ONE}\nKatzen"  # a blank line would end the subtitle


def test_subtitles_are_divided_alike_whether_accents_are_characters_of_their_own_or_not():
    film = f"1\n{ONE}\nđể ệ ữ ẫ ậ ồ ố\nmeet the three old cats\n"
    for form in ("NFC", "NFD"):
        pieces = document("a.srt", unicodedata.normalize(form, film)).pieces
        found = rendered(pieces, lambda part: "a b c d e f g h i j k l m")
        assert found == f"1\n{ONE}\na b c d e\nf g h i j k l m\n"


def test_what_stands_in_no_subtitle_is_counted():
    for content, remarks in (
        (
            f"the end\n1984\n\n1\n{ONE}\na cat",
            "1 line not translated (no timing above): the end",
        ),
        (
            f"WEBVTT the\n\nSTYLE\na\n\n{ONE}\na\n\nNOTE a\n\nb\nc",
            "2 lines not translated (no timing above): b",
        ),
        ("1\n00:01 - 00:02\na cat", "1 line not translated"),
    ):
        assert remarks in document("a.vtt", content).remarks[0]


@pytest.mark.parametrize(
    "message",
    [
        "{n, plural, one {a cat} other {# cats}}",
        "the {x,select, f {her} other {it}}",
        "the {0,choice,0#cats|1#cat}",
    ],
)
def test_messages_of_icu_are_left_alone(message):
    for name, text, expected in (
        (
            "a.po",
            'msgid "%s"\nmsgstr ""\n\nmsgid "a"\nmsgstr ""\n',
            'msgid "%s"\nmsgstr ""\n\n#, fuzzy\nmsgid "a"\nmsgstr "A"\n',
        ),
        ("a.xlf", "<xliff><trans-unit><source>%s</source></trans-unit></xliff>", ""),
        ("a.md", "%s\n\na cat\n", "%s\n\nA CAT\n"),
    ):
        assert translated(name, text.replace("%s", message)) == (expected or text).replace(
            "%s", message
        )
        remarks = document(name, text.replace("%s", message)).remarks
        assert (f"{name}: 1 ICU message not translated: line 1" in remarks) == (name != "a.md")


def test_xliff_2_and_prefixed_names_are_read_too():
    source = """<x:xliff version="2.0" srcLang="en" trgLang="de" xmlns:x="urn:oasis:names:tc:xliff:document:2.0">
    <x:file><x:unit><x:segment><x:source>see <x:pc id="1">the cat</x:pc></x:source></x:segment></x:unit></x:file>
    </x:xliff>"""
    target = '</x:source><x:target>SEE <x:pc id="1">THE CAT</x:pc></x:target>'
    assert translated("a.xlf", source) == source.replace("</x:source>", target)


@pytest.mark.parametrize(
    "unit",
    [
        '<segment id="a>b" subState="x:new" STATE>SOURCE<target></target></segment>',
        "<trans-unit>SOURCE<target\n state-qualifier='new'\n STATE></target></trans-unit>",
        '<trans-unit>SOURCE<a:target STATE xml:lang="de"></a:target></trans-unit>',
    ],
)
@pytest.mark.parametrize("state", ['state="STATE"', "state = 'STATE'"])
def test_an_xliff_unit_with_a_state_says_that_it_is_translated_now(unit, state):
    unit = unit.replace("SOURCE", '<source>a cat of state="new"</source>').replace("STATE", state)
    before, after = (
        f"<xliff>{unit.replace('STATE', word)}</xliff>" for word in ("new", "translated")
    )
    assert translated("a.xlf", before) == after.replace("></", '>A CAT OF STATE="NEW"</', 1)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ('<bpt id="1">&lt;b></bpt>', '<ept id="1">&lt;/b></ept>'),
        ('<bx id="1" rid="7"/>', '<ex id="2" rid="7"/>'),
        ('<sc id="1"/>', '<ec startRef="1"/>'),
    ],
)
def test_two_halves_of_a_code_stay_around_what_they_were_around(first, last):
    text = (
        f"<xliff><unit><segment><source>see {first}the cat{last} "
        "now</source></segment></unit></xliff>"
    )
    [part] = [piece for piece in document("a.xlf", text).pieces if isinstance(piece, Part)]
    assert part.text == "see the cat now"
    assert (
        written(part, "NOW CAT THE SEE", np.eye(4)[::-1], Counter())
        == f"NOW {first}CAT THE{last} SEE"
    )


def test_tags_in_the_fields_of_tables_are_kept_on_request():
    assert (
        translated("a.csv", "en,de\na <b>cat</b>,\n", markup=True)
        == 'en,de\na <b>cat</b>,"A <b>CAT</b>"\n'
    )
    found = translated("a.jsonl", r'{"en": "a <b x=\"y\">cat</b>"}', markup=True)
    assert json.loads(found)["de"] == 'A <b x="y">CAT</b>'


@pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-16"])
def test_a_file_stays_in_the_encoding_that_it_says(encoding):
    text = f'<html><meta charset="{encoding}"><p>für</p></html>'
    if encoding == "utf-16":
        text = "\ufeff<html><p>für</p></html>"
    content = text.encode("utf-16-le" if encoding == "utf-16" else encoding)
    assert translated("a.html", content) == content.replace(
        "für".encode(encoding)[-6:], "FÜR".encode(encoding)[-6:]
    )
    found = document("a.html", content)
    assert found.encode("ł") == (b"&#322;" if encoding == "iso-8859-1" else "ł".encode("utf-16-le"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.html", "<p>charset=iso-8859-1 für</p>"),
        ("a.html", "\n<p>Content-Type: text/html; charset=iso-8859-1 für</p>"),
        ("a.po", 'msgid "charset=koi8-r für"\nmsgstr ""\n'),
        (
            "a.xliff",
            '<?xml version="1.0"?><xliff><file><unit><segment><source>charset=iso-8859-1 für</source></segment></unit>'
            "</file></xliff>",
        ),
    ],
)
def test_what_the_text_says_of_encodings_is_text(name, content):
    found = document(name, content)
    assert found.encoding == "utf-8"
    assert [piece.text[-3:] for piece in found.parts] == ["für"]


def test_definitions_and_attributes_of_other_dialects_stay_on_lines_of_their_own():
    text = "# 1. a cat\n{: .no_toc }\n\nthe `x`\n: a *house*\n:   the man: old\n{: .note #b }\n"
    assert translated("a.md", text) == (
        "# 1. A CAT\n{: .no_toc }\n\nTHE `x`\n: A *HOUSE*\n:   THE MAN: OLD\n{: .note #b }\n"
    )
    assert translated(
        "a.md", "> [!NOTE]\n> the cat\n> sees\n\n> \\[!tip]- a title\n>\n> 5+ cats\n"
    ) == ("> [!NOTE]\n> THE CAT SEES\n\n> \\[!tip]- A TITLE\n>\n> 5+ CATS\n")


DIALECTS = {
    "[^1]: the cat\n[^two]: the house\n": "[^1]: THE CAT\n[^two]: THE HOUSE\n",
    "a[^1] cat[^b]\n\n[^1]: http://x.org\n[^b]: http://y.org\n": None,
    "a cat[^1]\n[^1]: the house\n\n    - two cats\n\n    see them\n\nthe end\n": None,
    "# a cat {#the-cat .old}\n": None,
    "see [it](x.md){target=_blank} and {ref}`the-cat`\n": None,
    "the [[a page|cat]] sees [[a page]]\n": "THE [[a page|cat]] SEES [[a page]]\n",
    "!!! note\n\n    the cat\n\n    - two cats\n\nthe end\n": None,
    '???+ tip "a title"\n    the cat\n': '???+ tip "A TITLE"\n    THE CAT\n',
    '=== "a"\n\n    the cat\n\n    === "b"\n\n        two\n\n        !!! note\n': (
        '=== "A"\n\n    THE CAT\n\n    === "B"\n\n        TWO\n\n        !!! note\n'
    ),
    ":::note\nthe cat\n:::\n": None,
    "::: tip a title {.x}\nthe cat\n:::\n": "::: tip A TITLE {.x}\nTHE CAT\n:::\n",
    ":::{note} a title\nthe cat\n:::\n": ":::{note} A TITLE\nTHE CAT\n:::\n",
    "/// tip | a title\nthe cat\n///\n": "/// tip | A TITLE\nTHE CAT\n///\n",
    "> [!tip]- a title\n> the cat\n": "> [!tip]- A TITLE\n> THE CAT\n",
    "[[_TOC_]]\nthe cat\n": "[[_TOC_]]\nTHE CAT\n",
    "@[toc]\nthe cat\n[TOC]\n": "@[toc]\nTHE CAT\n[TOC]\n",
    "see ![[a cat.png|two]] and :cat: and 10:30:45\n": (
        "SEE ![[a cat.png|two]] AND :cat: AND 10:30:45\n"
    ),
    "{% raw %}\nthe {{ cat }}\n{% endraw %}\nsees\n": (
        "{% raw %}\nTHE {{ cat }}\n{% endraw %}\nSEES\n"
    ),
    "% a note\n+++\n{/* the cat */}\nthe cat\n": "% a note\n+++\n{/* the cat */}\nTHE CAT\n",
    "$$\na = b\n$$ (one)\n\nsee\n\\begin{align}\na &= b\n\\end{align}\n": (
        "$$\na = b\n$$ (one)\n\nSEE\n\\begin{align}\na &= b\n\\end{align}\n"
    ),
    "the \\(a_b\\) is \\(old\\), \\$5 and \\:cat\\: \n": (
        "THE \\(a_b\\) IS \\(OLD\\), \\$5 AND \\:CAT\\: \n"
    ),
    "see {{% button href='x' %}}see{{% /button %}} {{< a >}}the cat{{< /a >}} {{< ref x >}}\n": (
        "SEE {{% button href='x' %}}SEE{{% /button %}} {{< a >}}THE CAT{{< /a >}} {{< ref x >}}\n"
    ),
    "[@doe99, p. 3] and @doe:old see [-@doe], @the/house and x@y.org, x:@a\n": (
        "[@doe99, P. 3] AND @doe:old SEE [-@doe], @the/house AND x@y.org, X:@A\n"
    ),
    "see <gh: @Name> and @doe > b\n": "SEE <GH: @NAME> AND @doe > B\n",
    "see \\ref{fig:cat} and \\cite{doe}, a\\b\n": "SEE \\ref{fig:cat} AND \\cite{doe}, A\\B\n",
    "press ++ctrl+alt+del++ or ++c++ now\n": "PRESS ++ctrl+alt+del++ OR ++C++ NOW\n",
    "the cat ^the-cat\n\n2 ^ a ^b c\n": "THE CAT ^the-cat\n\n2 ^ A ^B C\n",
    "/// tip | a title\n    type: note\n    open: true\nthe cat\n///\n": (
        "/// tip | A TITLE\n    type: note\n    open: true\nTHE CAT\n///\n"
    ),
    "<Note kind='x'>\n  the **cat**\n  <Tab>sees</Tab>\n</Note>\n": (
        "<Note kind='x'>\n  THE **CAT** <Tab>SEES</Tab>\n</Note>\n"
    ),
    "</Note>\nthe cat\n\n<pre>\nthe cat\n</pre>\n": "</Note>\nTHE CAT\n\n<pre>\nthe cat\n</pre>\n",
    "+---+\n| a |\n+===+\n| **cat** |\n": "+---+\n| a |\n+===+\n| **cat** |\n",
    "> | the cat\n> |   sees\n\n[a](x) | b\n": "> | THE CAT\n> |   sees\n\n[A](x) | B\n",
    "> ::: tip\n> the cat\n> :::\n": None,
    "> [!tip] a **cat** sees\n> the house\n": "> [!tip] A **CAT** SEES\n> THE HOUSE\n",
    '!!! note "the **cat** `x`"\n    sees\n': '!!! note "THE **CAT** `x`"\n    SEES\n',
    '!!! note "note"\n    sees\n': '!!! note "NOTE"\n    SEES\n',
    ":::note[the **cat** [sees](x)]\n\nit\n\n:::\n": ":::note[THE **CAT** [SEES](x)]\n\nIT\n\n:::\n",
    ":::{card} a cat\n:link: the cat\n:open:\nsees\n:::\n": (
        ":::{card} A CAT\n:link: the cat\n:open:\nSEES\n:::\n"
    ),
    "```{admonition} the *cat*\n:name: a cat\n\nsees\n\n    - code\n```\nit\n": (
        "```{admonition} THE *CAT*\n:name: a cat\n\nSEES\n\n    - code\n```\nIT\n"
    ),
    "```{figure} a/cat.png\nthe cat\n```\n\n```{python} a\nthe cat\n```\n": (
        "```{figure} a/cat.png\nTHE CAT\n```\n\n```{python} a\nthe cat\n```\n"
    ),
    "the cat\n\n:   the *house*\n    is\n\n    old\n\n:   red\n": (
        "THE CAT\n\n:   THE *HOUSE* IS\n\n    OLD\n\n:   RED\n"
    ),
    "the \\\\(a_b\\\\)\n\n\\[\na_b\n\\]\n": "THE \\\\(a_b\\\\)\n\n\\[\na_b\n\\]\n",
    '{\n  "title": "the cat"\n}\n\nthe cat\n': '{\n  "title": "the cat"\n}\n\nTHE CAT\n',
    "[the](x)\n| [cat](y)\n| sees!!!\n": "[THE](x) | [CAT](y) | SEES!!!\n",
    "the cat\nimport of goods from 'a cat'\n": "THE CAT IMPORT OF GOODS FROM 'A CAT'\n",
    "# a cat :an-icon:{ .old .red } { #cat }\n": "# A CAT :an-icon:{ .old .red } { #cat }\n",
    "see ![a](b.png){ width=3 } and **old**{ .x } and `a`{=html} [c](d){ .x }\n": (
        "SEE ![a](b.png){ width=3 } AND **OLD**{ .x } AND `a`{=html} [C](d){ .x }\n"
    ),
    "[^1]: the cat\n[cat]: x.org\n[the]: <y.org> 'the'\nsees\n": (
        "[^1]: THE CAT\n[cat]: x.org\n[the]: <y.org> 'the'\nSEES\n"
    ),
    "{ #the-cat .old }\nthe cat\n": "{ #the-cat .old }\nTHE CAT\n",
    "{~~the~>a~~} cat and :badge[new]{x=y} is {the + 1} of {old(the)}, {a cat}\n": (
        "{~~the~>a~~} CAT AND :badge[NEW]{x=y} IS {the + 1} OF {old(the)}, {A CAT}\n"
    ),
    "```{figure} a.png\n---\nname: the cat\n---\nthe cat\n```\n": (
        "```{figure} a.png\n---\nname: the cat\n---\nTHE CAT\n```\n"
    ),
    "the ==old cat== ^^b^^ H~2~O 8^2^, a == b == c, a==b==c, ==a **b**== [the cat]{.x}\n": (
        "THE ==OLD CAT== ^^B^^ H~2~O 8^2^, A == B == C, A==B==C, ==A **B**== [THE CAT]{.x}\n"
    ),
    "<div markdown>\nthe *cat* ![the cat](b/c.png){ .x } sees\n</div>\n": (
        "<div markdown>\nTHE *CAT* ![the cat](b/c.png){ .x } SEES\n</div>\n"
    ),
}
UNKNOWN = [
    *("*[HTML]: the language", "{{% note %}}", '{{< figure src="a b" >}}', "(the-cat)="),
    *('--8<-- "the/cat.md"', "<<< @/the/cat.js{2}", "!include the/cat.md"),
    *("import Cat from './the/cat'", "export const cat = 1"),
    *("\\newcommand{\\the}{a cat}", "\\newpage", "\\the{}[cat]"),
    *("*[HTML]: the **language** of `a` [b](c)", "export const cat = <b>the cat</b>"),
    *(
        "@include the/cat",
        '!INCLUDE "the/cat.md"',
        "[!INCLUDE [the cat](x.md)]",
        "@[code](a/cat.js)",
    ),
    *("::include{file=the/cat.md}", '::: moniker range="the"', "> [!div class='the']"[2:]),
    *("#. the cat", "(@) the cat"),
    *("import {the, cat} from 'x'", "import * as cat from 'x'", "export * from './the/cat'"),
]
# Blocks of several lines, and what follows them
UNKNOWN_BLOCKS = [
    "import {\n  The,\n  Cat,\n} from './the/cat'",
    "export const cat = {\n  the: 'old (house',\n\n  b: [1, 2],\n}",
    "export const cat = () => (\n  <div>\n\n    the cat\n\n  </div>\n)",
    "export default function Cat({the}) {\n  return <b>the cat</b>\n}",
    "export const cat =\n  `the\n\n{cat`",
    '<Cat\n  the="old > house"\n  b={() => { "the" }}\n>',
    "<Cat the={old > 'house'} />",
    '{{< figure\n  src="x"\n  caption="the cat"\n>}}',
    "--8<--\nthe/cat.md\n--8<--",
    ":::mermaid\ngraph the\n:::",
    "{{< highlight go >}}\nthe\n\n    cat\n{{< / highlight >}}",
    "{% highlight c %}\nthe\n{% endhighlight %}",
    "{% comment %}\nthe cat\n\nsees\n{%- endcomment -%}",
    "{::comment}\nthe cat\n{:/comment}",
    "{/* the\ncat */}",
]


@pytest.mark.parametrize("text", DIALECTS)
def test_text_of_dialects_is_translated_and_what_they_add_to_it_stays(text):
    kept = r"\[\^.*?\]|\{[#r].*?\}|`.*?`|\(.*?\)|\{.*?\}|http.*|(?:!!!|\?\?\?|===|:::).*"
    cut = re.split(f"({kept})", text)
    shouted = "".join(part if number % 2 else part.upper() for number, part in enumerate(cut))
    assert translated("a.md", text) == (DIALECTS[text] or shouted)
    assert translated("a.md", text, shout=False) == text


def test_links_by_a_name_that_is_their_words_are_written_as_before_if_it_stays():
    names = "\n\n[the cat]: x.org\n[`b`]: y.org\n[a\nc]: z.org\n"
    text = f"see [the cat], [a c][], [`b`] and [one][the cat]{names}"
    assert translated("a.md", text, shout=False) == text
    shown = "SEE [THE CAT][the cat], [A C][a c], [`b`] AND [ONE][the cat]"
    assert translated("a.md", text) == f"{shown}{names}"


def test_code_before_a_bracket_escapes_none_and_the_ending_of_a_link_of_code_stays_behind_it():
    text = "see (`\\`) and [`Cat`][]s, [`a`](x.org)ed\n\n[`Cat`]: x.org\n"
    assert translated("a.md", text, shout=False) == text


def test_the_model_sees_placeholders_at_the_end_of_a_line_too_but_no_names_of_roles_and_no_marks():
    text = "see {ref}`the cat` of {name}\n\n**the {name}**\n"
    assert [part.text for part in document("a.md", text).parts] == [
        "see the cat of {name}",
        "the {name}",
    ]
    assert translated("a.md", text) == "SEE {ref}`the cat` OF {name}\n\n**THE {name}**\n"
    text = "the ==old== H~2~O, x^2^ and [cat]{.x}\n"
    assert [part.text for part in document("a.md", text).parts] == ["the old H2O, x2 and cat"]


@pytest.mark.parametrize("line", UNKNOWN)
def test_a_line_of_an_unknown_dialect_stays_and_is_counted(line):
    text = f"a cat\n\n{line}\nthe house\n\n{line}\n\nthe end\n"
    expected = f"A CAT\n\n{line}\nTHE HOUSE\n\n{line}\n\nTHE END\n"
    assert translated("a.md", text) == expected
    [remark] = document("a.md", text).remarks
    assert remark == "a.md: 2 lines in a dialect of Markdown left untranslated: line 3, 6"


@pytest.mark.parametrize("block", UNKNOWN_BLOCKS)
def test_a_block_of_an_unknown_dialect_stays_and_its_lines_are_counted(block):
    text = f"a cat\n\n{block}\n\nthe end\n"
    assert translated("a.md", text) == f"A CAT\n\n{block}\n\nTHE END\n"
    [remark] = document("a.md", text).remarks
    count = len([line for line in block.split("\n") if line])
    assert remark.startswith(f"a.md: {count} line{'s' * (count > 1)} in a dialect of Markdown")


@pytest.mark.parametrize(
    "text",
    ["export const cat = {", "<Cat the={", "{{< cat", "--8<--", "```{note}", ":::mermaid", "{/*"],
)
def test_a_block_of_an_unknown_dialect_that_has_no_end_takes_no_other_with_it(text):
    assert translated("a.md", f"{text}\n\nthe end\n").endswith(("\n\nTHE END\n", "\n\nthe end\n"))
    assert translated("a.md", f"{text}\n\nthe end\n", shout=False) == f"{text}\n\nthe end\n"


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<html lang=en><p>a</p>", "<html lang=de><p>A</p>"),
        ('<HTML xml:lang="en-US" LANG="en">a', '<HTML xml:lang="de" LANG="de">A'),
        ('<html lang="fr"><p lang="en">a</p>', '<html lang="fr"><p lang="en">A</p>'),
    ],
)
def test_a_page_says_the_language_that_it_is_in(page, expected):
    assert translated("a.html", page) == expected


def test_alt_and_title_of_html_are_translated_on_request():
    page = (
        '<html lang="en"><p title="a &quot;cat&quot;">the <a TITLE = \'two  cats\' href="alt=x">house'
        '</a></p><img alt="a cat" src="cat.png"><img alt="12"><code title="kept">a</code>\n'
        "<p translate=no>a <b title='a cat'>b</b></p>"
    )
    shown = (
        '<html lang="de"><p title="A &quot;CAT&quot;">THE <a TITLE = \'TWO CATS\' href="alt=x">HOUSE'
        '</a></p><img alt="A CAT" src="cat.png"><img alt="12"><code title="kept">a</code>\n'
        "<p translate=no>a <b title='a cat'>b</b></p>"
    )
    assert translated("a.html", page, attributes=True) == shown
    assert 'alt="a cat"' in translated("a.html", page)


def test_a_control_character_of_a_translation_stays_out_of_xliff():
    text = "<xliff><segment><source>a cat</source></segment></xliff>"
    [part] = document("a.xlf", text).parts
    assert part.escape("a\x00\x1b<&\ufffe") == "a&lt;&amp;"


def test_a_row_of_a_table_does_not_become_a_heading():
    text = "a | b\n--|--\nthe cat | 2\n"
    first = document("a.md", text).pieces
    found = rendered(first, lambda part: f"# {part.text}" if part.text == "the cat" else part.raw)
    assert found == text.replace("the", "\\# the")


def test_what_would_be_a_mark_in_markdown_is_written_as_text():
    for text in (
        "1\\. the",
        "\\# the",
        "\\- the",
        "the \\<b>",
        "\\`a\\`",
        "\\_the\\_ snake_case",
        "\\[a\\](b)",
    ):
        found = translated("a.md", f"a\n\n{text}\n")
        assert found == f"A\n\n{text.upper()}\n"
        assert all(not part.tags for part in document("a.md", found).parts)


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("see a[0]! now", "see ![x](y) now"),
        ("2 * 3 cats", "see *cats* now"),
        ("a cat\n---", "|cat"),
        ("see a_ [b", "see [_x_](y) now"),
    ],
)
def test_words_that_would_become_marks_leave_a_block_as_it_was(text, translation):
    page = document("a.md", f"a cat\n\n{text}\n")
    checked = [piece for piece in page.pieces if isinstance(piece, Checked)][-1]
    [part] = page.parts[-1:]
    weights = np.zeros((len(UNIT.findall(translation)), len(UNIT.findall(part.text))))
    kept = checked.accept(written(part, translation, weights, Counter()))
    assert kept in text
    [remark] = page.remarks
    assert remark.startswith("a.md: 1 block left unchanged")
    assert remark.endswith("line 3")


WORDS = st.sampled_from(
    [
        "or",
        "org",
        "json",
        "a",
        "b.",
        "5",
        "x_y",
        ".",
        "-",
        "\\*",
        "\\_a\\_",
        "\\_\\_a\\_\\_",
        "&amp;",
        "[0]",
        "it's",
        "\n",
    ]
)
INLINE = st.one_of(
    WORDS,
    st.lists(WORDS.filter(lambda word: word.isalnum()), min_size=1, max_size=3)
    .map(" ".join)
    .flatmap(
        lambda inside: st.sampled_from(
            [
                f"`{inside}`",
                f"**{inside}**",
                f"_{inside}_",
                f"[{inside}](x.org '{inside}')",
                f"<b>{inside}</b>",
                "<br/>",
            ]
        )
    ),
)
PARAGRAPH = st.lists(INLINE, min_size=1, max_size=8).map(" ".join)
BLOCK = st.one_of(
    PARAGRAPH,
    PARAGRAPH.map(lambda text: "## " + text.replace("\n", " ")),
    PARAGRAPH.map(lambda text: "> " + text.replace("\n", "\n> ")),
    PARAGRAPH.map(lambda text: "- " + text.replace("\n", "\n  ")),
    PARAGRAPH.map(
        lambda text: "| a | b |\n|---|---|\n| " + text.replace("\n", " ") + " | `a\\|b` or |"
    ),
    st.sampled_from(
        [
            "```\nthe `code`\n```",
            "    a <b>",
            "<div>\n<p>a <i>b</i></p></div>",
            "---",
            "[x]: y.org 'z'",
        ]
    ),
)


@given(st.lists(BLOCK, max_size=5).map("\n\n".join))
def test_markdown_keeps_its_blocks_and_marks_and_what_stays_the_same_is_no_other_byte(text):
    assert compared("a.md", text, "marks every word") != "different"
    assert compared("a.md", text, "copies") == "identical"


DOCUMENTS = {
    "soft.md": "the *old\n  house* of\r\ntwo  cats &mdash; see  \nthe\tend\\\n2. no item\n\n> a\nb\n>   c\n",
    "escapes.md": "1986\\. \\*a\\* \\! a_b_ [a]\n[b] (c)\n\nA\n: - b\n\n> [!NOTE]\n> a\n> b\n\n[a][A] [a]\n\n[a]: x\n",
    "table.md": "a|b\n-|-\n `a\\|b`  |  *c*  d\\|e\n\n***a*  b**\n===\n",
    "entities.html": '<p>R&D &amp; &copy;&nbsp;2020 &#8212;\n a  > b\n\n<b>x\t</b> &quot;"</p>&eacute;t&eacute;',
    "page.html": "<HTML lang='en'>\r\n<p>a<br>b  <i>c\n</i>&nbsp;<td>&lt;b&gt;  c</p >",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_block_whose_translation_is_its_text_is_written_as_it_was(name):
    text = DOCUMENTS[name]
    assert compared(name, text, "copies") == "identical"
    assert compared(name, text, "marks every word") != "different"
    # As sentences, with an engine that copies these
    found = document(name, text)
    texts = Texts([found.pieces], "en", found.markup, found.is_prose)
    weights = [([0] * 9, [0] * 9, None) for _ in texts.sentences.marked]
    [restored], _ = texts.restore(texts.sentences.lines, weights)
    assert restored.replace("lang='de", "lang='en") == text


def test_subtitles_whose_words_stay_keep_their_lines():
    film = f"1\n{ONE}\n a\n<i>very long line,</i>\n\n2\n{TWO}\nand   b\n<p>c\n"
    assert translated("a.srt", film, shout=False) == film


def test_one_other_word_changes_no_other_paragraph():
    text = "the old\nhouse\n\na cat\nsees\n"
    found = rendered(
        document("a.md", text).pieces,
        lambda part: written(part, part.text.replace("cat", "dog"), np.eye(3), Counter()),
    )
    assert found == "the old\nhouse\n\na dog sees\n"


@pytest.mark.parametrize(
    ("text", "translation", "written_text"),
    [
        ("R&amp;D &copy;", "&D © R", "&amp;D &copy; R"),
        ("&#8212; a &#x2014; b", "b \u2014 a", "b &#x2014; a"),
        ("a&nbsp;5 &mdash; b \u2014", "b\u00a0\u2014 a", "b&nbsp;\u2014 a"),
        ("&eacute;t&eacute;", "\u00e9t\u00e9 <b>", "&eacute;t&eacute; &lt;b&gt;"),
        ("a & b &#38; c &gt; d", "c & > a", "c &amp; &gt; a"),
        ('&quot;a&quot; <b title="&uuml;">\u00fc</b>', 'b \u00fc "', "b \u00fc &quot;"),
    ],
)
def test_characters_that_a_paragraph_writes_as_entities_are_written_so_in_its_translation(
    text, translation, written_text
):
    [part] = document("a.html", text).parts
    assert part.escape(translation) == written_text


def test_real_documents_are_compared_by_format_and_engine(tmp_path):
    for name, text in DOCUMENTS.items():
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "METADATA").write_text("a: text/markdown\n\n# a\nb\n")
    (tmp_path / "again.md").write_text("# a\nb\n")
    found = {(row["format"], row["engine"]): row for row in rows([tmp_path])}
    for suffix, count in (("md", 4), ("html", 2)):
        row = found[suffix, "copies"]
        assert row["identical"] == row["documents"] == count
        assert found[suffix, "marks every word"]["different"] == 0


@pytest.mark.slow
def test_documents_of_installed_packages_come_back_as_they_were_and_keep_their_structure():
    found = rows([Path(np.__file__).parents[1]])
    assert len(found) == 4
    for row in found:
        assert row["documents"] > 3
        assert row["different"] == 0
        assert row["identical"] == row["documents"] or row["engine"] != "copies"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.po", 'msgid "a"\n', "line 1: a message needs msgid and msgstr"),
        ("a.po", 'msgid "a"\nmsgstr ""\nhello\n', "line 3 is not valid in a PO catalogue"),
        (
            "a.po",
            'msgid ""\nmsgstr "Language: fr\\n"\n',
            "its header has the language fr, but the model translates into de",
        ),
        ("a.po", b'msgid "\xff"\nmsgstr ""\n', "line 1 is not UTF-8"),
        (
            "a.po",
            'msgid ""\nmsgstr "Content-Type: text/plain; charset=nothing"\n',
            "the encoding nothing is not supported",
        ),
        ("a.html", "<meta charset=idna><p>a", "the encoding idna is not supported"),
        ("a.xliff", "<xliff><file>\n<a></b>", "line 2 is not well-formed XML"),
        ("a.xliff", "<tmx/>", "not an XLIFF file"),
        ("a.xliff", "<g>" * 999, "line 1 is nested 200 elements deep"),
        (
            "a.xliff",
            '<!DOCTYPE x [<!ENTITY a "b">]><xliff>&a;</xliff>',
            "custom XML entities are not supported",
        ),
        (
            "a.xliff",
            '<xliff srcLang="fr"><segment><source>a</source></segment></xliff>',
            "line 1 is fr, but the model translates en to de",
        ),
        (
            "a.csv",
            "a,b\n",
            "the columns are not named en and de; write en and de as their heads",
        ),
        (
            "a.tsv",
            "a\tb\n",
            "add --tsv N to translate column N and keep the others, or write en and de as their heads",
        ),
        ("a.csv", "en,de\na,b\na,b,c\n", "line 3 has 3 columns instead of 2"),
        ("a.jsonl", '{"fr": "a"}\n{"en": null}\n', "line 1 is not a JSON object with a text"),
        ("a.jsonl", '{"en": "a"}\n{"en": "a"\n', "line 2 is not JSON"),
        ("a.jsonl", '{"en": "a\\ud800"}\n', "line 1 contains a lone surrogate"),
        ("a.jsonl", '{"en": 5}', "line 1 is not a JSON object with a text"),
        ("a.jsonl", "[" * 99_999, "line 1 is not JSON"),
        ("a.tmx", "<tmx><body/></tmx>", "no unit has exactly one text in en"),
    ],
)
def test_what_is_not_of_its_kind_is_refused_with_file_and_place(name, content, message):
    with pytest.raises(DataError) as refusal:
        document(name, content)
    assert message in str(refusal.value)
    assert str(refusal.value).startswith(name)
    assert "\n" not in str(refusal.value)


def test_an_encoding_that_is_declared_in_a_comment_is_none():
    page = "<!-- <meta charset=koi8-r> --><p>f\u00fcr</p>".encode()
    assert document("a.html", page).parts[0].text == "f\u00fcr"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.html", "<meta charset=koi8-r><p>f\u00fcr</p>"),
        (
            "a.po",
            'msgid ""\nmsgstr "Content-Type: a; charset=koi8-r"\nmsgid "f\u00fcr"\nmsgstr ""\n',
        ),
        ("a.xlf", '<?xml version="1.0" encoding="koi8-r"?><xliff>f\u00fcr</xliff>'),
    ],
)
def test_utf_8_that_says_to_be_another_encoding_is_refused(name, content):
    with pytest.raises(DataError, match="declares the encoding koi8-r but is UTF-8; correct"):
        document(name, content)


def test_a_character_that_the_encoding_lacks_is_named():
    found = document("a.po", 'msgid ""\nmsgstr "content-type: text/plain; charset=iso-8859-1"\n')
    with pytest.raises(DataError, match=r"a\.po: .* contains '„', .* encoding iso8859-1 lacks"):
        found.encode("„")


def test_groups_have_all_pieces_in_order_and_few_parts():
    found = document("a.jsonl", "".join(json.dumps({"en": f"the {n}"}) + "\n" for n in range(7)))
    groups = list(found.groups(3))
    assert [len(list(parts_of(group))) for group in groups] == [3, 3, 1]
    assert [one for group in groups for one in group] == found.pieces


@pytest.mark.parametrize(
    "name",
    [
        "utf-7",
        "unicode_escape",
        "raw_unicode_escape",
        "punycode",
        "idna",
        "utf-16",
        "utf_8_sig",
        "rot13",
        "cp037",
        "hz",
    ],
)
@pytest.mark.parametrize(
    "document", ["<meta charset={}><p>a", '<?xml version="1.0" encoding="{}"?><p>a</p>']
)
def test_encodings_that_browsers_do_not_have_are_refused(name, document):
    with pytest.raises(DataError, match=f"the encoding {name} is not supported"):
        parse_document(Path("a.html"), document.format(name).encode(), ("en", "de"))


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("x-sjis", "cp932", "\u65e5\u672c"),
        ("iso-8859-8-i", "iso8859-8", "\u05e9\u05dc"),
        ("windows-874", "cp874", "\u0e44\u0e17"),
        ("x-cp1251", "cp1251", "\u0434\u0430"),
    ],
)
def test_labels_of_encodings_that_only_browsers_know_are_read(label, codec, text):
    page = f"<meta charset={label}><p>{text}</p>".encode(codec)
    found = document("a.html", page)
    assert found.parts[0].text == text
    assert found.encode(page.decode(codec)) == page


def test_latin_1_of_a_page_is_windows_1252_and_comes_back_byte_for_byte():
    page = b"<meta charset=iso-8859-1><p>\x93quoted\x94 \x80 5</p>"
    document = parse_document(Path("a.html"), page, ("en", "de"))
    assert [part.text for part in document.parts] == ["\u201cquoted\u201d \u20ac 5"]
    assert document.encode(page.decode("cp1252")) == page


@pytest.mark.parametrize(
    "text",
    [
        "Where is the old house?\r\n",
        "\u041f\u0440\u0438\u0432\u0435\u0442",
        "\u0928\u092e \u0926\u0941",
    ],
)
@pytest.mark.parametrize("name", ["UTF-16LE", "UTF-16BE"])
def test_utf_16_without_a_mark_is_refused_in_every_alphabet(text, name, tmp_path):
    with pytest.raises(DataError, match=f"UTF-16 without a mark; convert it: iconv -f {name}"):
        document("a.txt", text.encode(name))
    path = tmp_path / "lines"
    path.write_bytes(text.encode(name))
    with pytest.raises(DataError, match=f"iconv -f {name}"):
        read_lines(path)


@pytest.mark.parametrize("name", ["utf-32-le", "utf-32-be"])
def test_utf_32_is_refused_and_not_taken_for_utf_16(name, tmp_path):
    content = "\ufeffa cat\n".encode(name)
    (tmp_path / "lines").write_bytes(content)
    for read in (lambda: document("a.txt", content), lambda: read_lines(tmp_path / "lines")):
        with pytest.raises(DataError, match="the file is UTF-32; convert it: iconv -f UTF-32"):
            read()


def test_columns_of_single_letters_are_not_taken_for_utf_16():
    for text in ("1\t2\t3\t4\t", "\t\t\t\t\ta", "\u4eca\u5929", "a\x0b"):
        assert document("a.txt", text).pieces[1].text == text


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        (
            '<p>a <b class="x NoTranslate">cat</b> sees</p><div class=notranslate>two</div>',
            "a cat sees",
        ),
        ('<p>the<br class="notranslate">cat<hr translate=no>sees', "the|cat|sees"),
        ("<p>an <ruby>old<rp>(</rp><rt>alt</rt><rp>)</rp></ruby> cat</p>", "an old cat"),
        ("<p>an <ruby>old<rt>alt<rt>two</ruby> cat", "an old cat"),
        (
            "<p>an <ruby>old<rp>(<rt>alt<rp>)</ruby> cat <ruby>x<rt>one</p><p>two",
            "an old cat x|two",
        ),
    ],
)
def test_what_a_page_says_is_not_to_be_translated_and_readings_of_words_stay(page, texts):
    parts = document("a.html", page).parts
    assert [part.text for part in parts] == texts.split("|")
    assert translated("a.html", page, shout=False) == page


@pytest.mark.parametrize(
    "preserved", ['<trans-unit xml:space="preserve"><source>', '<source xml:space="preserve">']
)
def test_line_ends_and_columns_of_xliff_stay_where_it_says_so(preserved):
    text = "  one <g id='1'>two\n  three</g>:   four\tfive\r\n\r\n"
    unit = f"<trans-unit><source>{text}</source></trans-unit>".replace(
        "<trans-unit><source>", preserved
    )
    unit = unit if unit.startswith("<trans") else f"<trans-unit>{unit}"
    page = f'<xliff xml:space="default"><file><body>{unit}</body></file></xliff>'
    parts = [part.text for part in document("a.xlf", page).parts]
    assert parts == ["one two", "three:", "four", "five"]
    assert f">{text.upper().replace('G', 'g').replace('ID', 'id')}</target>" in translated(
        "a.xlf", page
    )
    by_default = document("a.xlf", page.replace("preserve", "default"))
    assert [part.text for part in by_default.parts] == ["one two three: four five"]


def test_line_ends_of_preserved_xliff_stay_however_they_are_written():
    text = "one&#10;two &#xD;&#x0A; three&#9;four\u2028five"
    unit = f"<segment xml:space='preserve'><source>{text}</source></segment>"
    found = translated("a.xlf", f"<xliff>{unit}</xliff>")
    shown = "ONE&#10;TWO &#xD;&#x0A; THREE&#9;FOUR\u2028FIVE"
    assert found == f"<xliff>{unit}</xliff>".replace(
        "</source>", f"</source><target>{shown}</target>"
    )


def test_records_without_a_text_are_left_and_counted():
    lines = '{"en": "a"}\n{"en": null}\nnull\n{"de": "b"}\n{"en": "c"}\n'
    found = document("a.jsonl", lines)
    assert [part.text for part in found.parts] == ["a", "c"]
    assert translated("a.jsonl", lines) == lines.replace('"a"', '"a", "de": "A"').replace(
        '"c"', '"c", "de": "C"'
    )
    assert found.remarks == [
        "a.jsonl: 3 lines left unchanged, not a JSON object with a text, "
        '{"en": "..."}: line 2, 3, 4'
    ]


def test_a_unit_of_xliff_that_is_translated_in_part_stays_and_is_counted():
    segments = '<mrk mtype="seg" mid="1">{}</mrk> <mrk mtype="seg" mid="2">{}</mrk>'
    unit = (
        "<trans-unit><source>One. Two.</source>"
        f"<seg-source>{segments.format('One.', 'Two.')}</seg-source>"
        f"<target>{segments.format('Eins.', '')}</target></trans-unit>"
    )
    page = f"<xliff><file>{unit}</file></xliff>"
    assert translated("a.xlf", page) == page
    assert "1 unit kept, already translated in part: line 1" in document("a.xlf", page).remarks[1]


def test_what_is_between_marks_of_xliff_that_forbid_to_translate_it_stays():
    text = 'see <sm id="1" translate="no"/>the cat<em startRef="1"/> now'
    page = f"<xliff><unit><segment><source>{text}</source></segment></unit></xliff>"
    shown = text.replace("see", "SEE").replace("now", "NOW")
    assert f"<target>{shown}</target>" in translated("a.xlf", page)


def test_only_tags_of_xliff_say_that_a_unit_is_translated():
    source = '<![CDATA[<target state="x"> the cat]]>'
    unit = f"<trans-unit><source>{source}</source></trans-unit>"
    document = parse_document(
        Path("a.xlf"), f"<xliff><file>{unit}</file></xliff>".encode(), ("en", "de")
    )
    assert source in "".join(piece for piece in document.pieces if isinstance(piece, str))


def test_a_subtitle_before_the_beginning_is_translated_and_styles_are_no_text():
    cue = b"1\n-00:00:01,000 --> 00:00:02,000\nthe cat\n"
    assert len(parse_document(Path("a.srt"), cue, ("en", "de")).parts) == 1
    styles = b"WEBVTT\n\nSTYLE\n::cue { color: red }\n\n00:01.000 --> 00:02.000\nthe cat\n"
    document = parse_document(Path("a.vtt"), styles, ("en", "de"))
    assert len(document.parts) == 1
