"""Mark-up comes back whole, around the translations of the words that it was around."""

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from applications import translator_of, write_run
from hypothesis import example, given
from hypothesis import strategies as st

from aiayn.apps.documents import texts
from aiayn.apps.documents.markup import Part, Pieces, parse_markup
from aiayn.apps.documents.placement import UNIT, unit_weights, written
from aiayn.apps.documents.texts import Texts, split_paragraph, translate_texts
from aiayn.data.placeholders import PLACEHOLDER, TAG, placeholders
from aiayn.errors import DataError
from aiayn.search import alignment
from aiayn.search.translations import Translation
from aiayn.search.translator import Translator

TAG_START = re.compile("(?:<|&lt;)(?=[A-Za-z_/!?])")  # here a parser of HTML or XML begins a tag


@pytest.fixture(scope="module")
def translator(tmp_path_factory) -> Translator:
    return translator_of(write_run(tmp_path_factory.mktemp("outputs") / "tiny"))


# A translation, and how much its words attend to those of its source
Translated = tuple[str, np.ndarray]


def perfect(source: str, backwards: bool, spoil: bool = False) -> Translated:
    """A translation word for word, in capitals, perhaps in reverse order, and its alignment."""
    words = words_of(source)[:: -1 if backwards else 1]
    kept = [word if PLACEHOLDER.fullmatch(word) else word.upper() for word in words]
    kept = ["xyz" if spoil and PLACEHOLDER.fullmatch(word) else word for word in kept]
    weights = np.eye(len(words))
    return " ".join(kept), weights[::-1] if backwards else weights


def words_of(text: str) -> list[str]:
    return [unit[0] for unit in UNIT.finditer(text)]


def parts_of(text: str, is_html: bool = False) -> list[Part]:
    return [piece for piece in parse_markup(text, is_html=is_html) if isinstance(piece, Part)]


def restored(
    pieces: Pieces, translate: Callable[[str], Translated], places: Counter[str] | None = None
) -> str:
    places = Counter() if places is None else places
    return "".join(
        one if isinstance(one, str) else written(one, *translate(one.text), places)
        for one in pieces
    )


def translated(
    text: str, backwards: bool = False, is_html: bool = False, spoil: bool = False
) -> str:
    return restored(
        parse_markup(text, is_html=is_html), lambda source: perfect(source, backwards, spoil)
    )


@pytest.mark.parametrize(
    ("text", "forwards", "backwards"),
    [
        ("open <b>the file</b> now", "OPEN <b>THE FILE</b> NOW", "NOW <b>FILE THE</b> OPEN"),
        (
            'see <a href="x>y">the page</a>',
            'SEE <a href="x>y">THE PAGE</a>',
            '<a href="x>y">PAGE THE</a> SEE',
        ),
        ("a <b>b <i>c</i> d</b> e", "A <b>B <i>C</i> D</b> E", "E <b>D <i>C</i> B</b> A"),
        ("press <icon/> now", "PRESS <icon/> NOW", "<icon/> NOW PRESS"),
        ("<icon/> click it", "<icon/> CLICK IT", "<icon/> IT CLICK"),
        ("click on <icon/>", "CLICK ON <icon/>", "ON CLICK <icon/>"),
        ("one<br/>two <b>three", "ONE<br/>TWO <b>THREE", "ONE<br/><b>THREE TWO"),
        ("<b>all of it</b>", "<b>ALL OF IT</b>", "<b>IT OF ALL</b>"),
        ("&lt;b&gt;save&lt;/b&gt; it", "&lt;b&gt;SAVE&lt;/b&gt; IT", "IT &lt;b&gt;SAVE&lt;/b&gt;"),
        ("<b></b>", "<b></b>", "<b></b>"),
        ("a < b > c", "A < B > C", "C > B < A"),
        ("  <p>one</p>  ", "  <p>ONE</p>  ", "  <p>ONE</p>  "),
        ("a<sup>2</sup> b", "<sup>A2</sup> B", "B <sup>A2</sup>"),
        ("see it<x/> now", "SEE IT<x/> NOW", "NOW IT<x/> SEE"),
        (
            "see 12<wbr>34 <b>AB<wbr>CD<wbr>EF</b>",
            "SEE 12<wbr>34 <b>AB<wbr>CD<wbr>EF</b>",
            "<b>AB<wbr>CD<wbr>EF</b> 12<wbr>34 SEE",
        ),
        ("see no<wbr>word", "SEE <wbr>NOWORD", "<wbr>NOWORD SEE"),
    ],
)
def test_tags_come_back_around_the_same_words_wherever_these_went(text, forwards, backwards):
    assert translated(text) == forwards
    assert translated(text, backwards=True) == backwards


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s<b>times</b>", "%s <b>TIMES</b>"),
        ("see <b>https://a.org/b</b>now", "SEE <b>https://a.org/b</b> NOW"),
        ("at<i></i><b>www.a.org</b>", "AT <i></i><b>www.a.org</b>"),
        ("{x<b>} y</b>", "{ X <b>} Y</b>"),
    ],
)
def test_where_a_tag_was_all_that_kept_a_placeholder_from_a_word_they_are_not_joined(
    text, expected
):
    assert translated(text) == expected
    assert [placeholders(part.text) for part in parts_of(text)] == [
        Counter(PLACEHOLDER.findall(TAG.sub(" ", text)))
    ]


@pytest.mark.parametrize(
    "name",
    [
        "%s",
        "%1$s",
        "%@",
        "%2$@",
        "%1",
        "%L2",
        "%(count)d",
        "{name}",
        "{0}",
        "${HOME}",
        "https://a.org/b?c=d",
        "&amp;",
    ],
)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_spoilt_placeholder_takes_the_place_of_what_is_aligned_with_it(name, backwards):
    text = f"read {name} first"
    assert translated(text, backwards) == translated(text, backwards, spoil=True)
    for spoil, expected in ((True, Counter(by_alignment=1)), (False, Counter(by_model=1))):
        places = Counter()
        written(Part(text), *perfect(text, backwards, spoil), places)
        assert places == expected


def test_a_placeholder_that_nothing_attends_to_is_put_at_the_end_and_counted_as_guessed():
    places, part = Counter(), Part("open %s now")
    assert written(part, "AUF", np.array([[1.0, 0.0, 0.0]]), places) == "AUF %s"
    assert written(part, "", np.zeros((0, 3)), places) == "%s"
    assert places == Counter(guessed=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<key>Ctrl</key><key>Alt</key>", "Ctrl Alt"),
        ("Click<x/>here", "Click here"),
        ("Click<img src='x'>here", "Click here"),
        ("a <code>x</code>s, <code>y</code>ed", "a xs, yed"),
        ("<code>x</code>False a", "x False a"),
        ("<svg><g>x</g></svg>a <code>x</code><code>a</code>", "a x a"),
        ("<b>S</b>ave <i>H<sub>2</sub></i>O", "Save H2O"),
        ("long<wbr>word <u>a</u>-<u>b</u>", "longword a-b"),
    ],
)
def test_words_of_two_elements_are_two_and_a_tag_within_a_word_leaves_it_one(text, words):
    assert [part.text for part in parts_of(text)] == [words]


@pytest.mark.parametrize(
    "text",
    [
        "is 2<sup>31</sup>-1 H<sub>2</sub>O",
        "<b>t</b>ag <b>La</b>2<i>Te</i>x<wbr>y",
        "<b>a x<i>y</i>z</b> and <i>b</i>",
    ],
)
def test_an_element_of_a_part_of_a_word_stays_there_if_the_word_is_copied(text):
    def copied(source: str) -> Translated:
        return source, np.eye(len(words_of(source)))

    assert restored(parse_markup(text), copied) == text
    assert translated("the 2<sup>nd</sup> cat") == "THE <sup>2ND</sup> CAT"


def test_html_is_read_and_written_as_html():
    text = (
        "<p>R&amp;D <b>costs</b> &lt; 3&nbsp;%</p>\n<script>if (a < b) x()</script><pre>keep  "
        "this</pre>"
    )
    assert [part.text for part in parts_of(text, is_html=True)] == ["R&D costs < 3\u00a0%"]
    found = translated(text, is_html=True)
    assert (
        found
        == "<p>R &amp; D <b>COSTS</b> &lt; 3 %</p>\n<script>if (a < b) x()</script><pre>keep  "
        "this</pre>"
    )
    assert (
        translated("<p>&nbsp; two <b>cats</b> see</p>", is_html=True)
        == "<p>&nbsp; TWO <b>CATS</b> SEE</p>"
    )
    kept = '<p>Call <b translate="no">this one</b> now.</p>'
    assert '<b translate="no">this one</b>' in translated(kept, is_html=True)


# Valid HTML: what is between tags is text with entities, what is in quotation marks may hold
# anything but its own.
ATTRIBUTES = st.one_of(
    st.just(""),
    st.text("ab<>'&= /!-", max_size=8).map(lambda value: f' title="{value}"'),
    st.text('ab<>"&= /!-', max_size=8).map(lambda value: f" data-x='{value}'"),
    st.sampled_from([" hidden", " id=x", '\n class="<script>"']),
)
HTML_TEXT = st.sampled_from(
    [
        "a",
        "dog ",
        " runs",
        ".",
        "&lt;b&gt;",
        "&amp;",
        "5 &lt; 7",
        "&#60;i&#62;",
        "%s",
        "\n",
        "{{ x }}",
    ]
)
OTHERS = st.sampled_from(
    [
        *(
            "<!-- <b> -- > <img src=x> -->",
            "<!-->",
            "<!-- x --!>",
            "<!DOCTYPE html>",
            "<?php if (1 > 0) echo '<b>' ?>",
        ),
        *(
            "<![CDATA[ a & <b> ]]>",
            "<![if !IE]>",
            "<script>if (a < b) x('<b>')</script>",
            "<style>p > b {}</style>",
        ),
        *(
            "<textarea><b>a</textarea>",
            "<pre>a <b>dog</b></pre>",
            "<svg><g><text>a</text></g></svg>",
        ),
        *(
            "<code>rm -rf</code>",
            "<code>&nbsp;</code>",
            "<kbd>Ctrl+<b>C</b></kbd>",
            '<i translate="no">A <i>dog</i></i>',
        ),
    ]
)


TEXT = HTML_TEXT.map(lambda text: [("", text)])  # pieces: what must stay, and text
VOID = st.builds(
    lambda name, given: f"<{name}{given}>", st.sampled_from(["br", "img", "hr"]), ATTRIBUTES
)
PAGES = st.recursive(
    st.one_of(TEXT, TEXT, st.one_of(OTHERS, VOID).map(lambda raw: [(raw, "")])),
    lambda inner: st.lists(
        st.one_of(
            inner,
            st.builds(
                lambda name, given, inside: [
                    (f"<{name}{given}>", ""),
                    *inside,
                    (f"</{name.upper()}>", ""),
                ],
                *(st.sampled_from(["b", "a", "span", "p", "div", "my-x"]), ATTRIBUTES, inner),
            ),
        ),
        max_size=4,
    ).map(lambda found: [piece for pieces in found for piece in pieces]),
    max_leaves=12,
)


@given(PAGES, st.booleans(), st.booleans())
def test_valid_html_keeps_its_tags_and_all_that_is_not_text_and_text_becomes_no_tag(
    pieces, backwards, spoil
):
    page = "".join(map("".join, pieces))
    found = translated(page, backwards, is_html=True, spoil=spoil)
    stays = Counter(raw for raw, _ in pieces if raw)
    known = re.compile("|".join(sorted(map(re.escape, stays), key=len, reverse=True)) or "(?!)")
    assert Counter(known.findall(found)) == stays
    assert not re.search("[<>]", known.sub("", found))


@pytest.mark.parametrize(
    "page",
    [
        'A man <a title="<img src=x onerror=alert(1)>">walks</a> in the park.',
        "<p title='<script>alert(1)</script>'>A man walks.</p>",
        "<!-- <img src=x onerror=alert(1)> <!-- --> A man walks.",
        'A man <abbr title="1 < 2">walks</abbr> in the park.',
        '<!DOCTYPE html><html lang="en"><head><title>A '
        "dog</title><style>p{}</style></head><p>x</p></html>",
        '<?xml version="1.0" encoding="utf-8"?><html><body><p>A dog runs.</p></body></html>',
        "<p>A dog runs.</p><![CDATA[ A man & <b> ]]>",
        "<p>A dog runs.</p><!-- unclosed <b> ",
        "<p>A dog runs.</p><!-- unclosed <b> x",
        "<p>A dog <b>runs</b></> now.</p>",
        "<p>A dog {% if x %}runs{% endif %} {{ name }}.</p>",
        '<p class="note"\n   id="x">A dog\nruns.</p>',
        "A dog &#xZ; &# and &; <b>runs</b> &#; now <i>and</i> &#",
    ],
)
def test_pages_that_were_damaged_once_come_back_whole(page):
    marks = re.compile(r"<[^<>]*>|\{[^{}]*\}|[\"'=]")
    for is_html, backwards in ((True, False), (True, True), (False, False), (False, True)):
        assert Counter(marks.findall(translated(page, backwards, is_html))) == Counter(
            marks.findall(page)
        )
    again = parts_of(translated(page, is_html=True), is_html=True)
    assert ["".join(part.text.upper().split()) for part in parts_of(page, is_html=True)] == [
        "".join(part.text.upper().split()) for part in again
    ]


@pytest.mark.parametrize("name", ["code", "kbd", "samp", "var", "time"])
def test_the_model_sees_the_words_of_code_which_replaces_what_becomes_of_them(name):
    text = f"run <{name} x='1'>rm now</{name}> today"
    [part] = parts_of(text)
    assert part.text == "run rm now today"
    assert translated(text) == f"RUN <{name} x='1'>rm now</{name}> TODAY"
    assert translated(text, backwards=True) == f"TODAY <{name} x='1'>rm now</{name}> RUN"
    both = f"run <{name}>rm {{}} now</{name}> of {{}}"  # a placeholder in code and beside it
    assert translated(both) == f"RUN <{name}>rm {{}} now</{name}> OF {{}}"
    assert translated(both, backwards=True) == f"{{}} OF <{name}>rm {{}} now</{name}> RUN"
    nothing = restored([part], lambda source: ("LOS", np.zeros((1, 4))))
    assert nothing == f"LOS <{name} x='1'>rm now</{name}>"
    copied = restored([part], lambda source: ("rm now LOS", np.full((3, 4), 0.25)))
    assert copied == f"<{name} x='1'>rm now</{name}> LOS"


@pytest.mark.parametrize("line", ["A\u00a0. B runs.", "Mr\u2009. x\u00a0. Y"])
def test_a_line_that_makes_the_splitter_panic_is_split_or_stays_whole(line, capfd):
    assert "".join(split_paragraph(line, "en")) == line
    assert capfd.readouterr().err == ""


def test_a_line_stays_whole_if_the_splitter_fails(monkeypatch):
    class PanicError(BaseException):
        pass

    def fail(code: str, line: str) -> list[str]:
        raise PanicError

    monkeypatch.setattr("sentencex.segment", fail)
    assert split_paragraph("One. Two.\nThree.", "en")[1::2] == ["One. Two.", "Three."]


def test_tags_in_a_title_are_text():
    assert (
        translated("<title>a <b>dog</title><p>runs</p>", is_html=True)
        == "<title>A &lt;B&gt; DOG</title><p>RUNS</p>"
    )


def test_tags_of_templates_are_placed_like_tags():
    text = "a dog {% if x %}runs{% else %}walks{% endif %} {{ name }}."
    assert translated(text) == "A DOG {% if x %}RUNS {% else %}WALKS{% endif %} {{ name }} ."
    assert translated(text, backwards=True).count("{") == text.count("{")


WORDS = st.sampled_from(["a", "Haus", "%s", "{x}", "https://a.de/b", ",", "&amp;", "é", "<", "5"])
TAGS = st.sampled_from(
    [
        *(
            "<b>",
            "</b>",
            "<i x='1'>",
            "</i>",
            "<br>",
            "<x/>",
            "</p>",
            "&lt;u&gt;",
            "<!-- n -->",
            "<a href='>'>",
        ),
        *("<code x='%s'>%s</code>", "<kbd>a {x}</kbd>", "<var>b</var>"),
    ]
)


@given(
    st.lists(st.one_of(WORDS, TAGS, st.just(" ")), max_size=14).map("".join),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
@example("%s<b>a", False, False, False)
def test_no_tag_and_no_placeholder_is_lost_or_doubled(text, backwards, is_html, spoil):
    found = translated(text, backwards, is_html, spoil)
    assert Counter(TAG.findall(found)) == Counter(TAG.findall(text))
    if not is_html:
        assert placeholders(found) == placeholders(text)
    # Halves of one name may stand in another order in the translation, and then make a pair.
    assert nesting(found) <= nesting(text) or has_halves_beside_others_of_their_name(text)


def has_halves_beside_others_of_their_name(text: str) -> bool:
    """Whether a tag without its other half in the same part is not the only one of its name."""
    names, halves, around = Counter(), set(), []
    for slash, name, end in re.findall(r"<(/?)(\w+)[^<>]*?(/?)>", text):
        names[name] += 1
        if name in ("br", "p"):
            halves, around = halves.union(around), []
        elif slash and name in around:
            at = len(around) - 1 - around[::-1].index(name)
            halves, around = halves.union(around[at + 1 :]), around[:at]
        elif slash:
            halves.add(name)
        elif not end:
            around.append(name)
    return any(names[name] > 1 for name in halves.union(around))


def nesting(text: str) -> int:
    """How many elements are closed by a tag in another element."""
    crossed, around = 0, []
    for slash, name, end in re.findall(r"<(/?)(\w+)[^<>]*?(/?)>", text):
        if slash and name in around:
            crossed += around[-1] != name
            around = around[: len(around) - 1 - around[::-1].index(name)]
        elif not slash and not end:
            around.append(name)
    return crossed


def test_with_a_model_all_mark_up_comes_back_and_plain_text_is_translated_as_without(translator):
    plain = ["the old house", "", "two cats see", "  the man "]
    marked = ["<b>the old</b> house", "<b> </b>", "two {x} cats <i>see", "  <p>the man</p> %s "]
    found, places = translate_texts(translator, [*plain, *marked])
    assert found[:3] == translator.translate(plain[:3])
    assert found[3] == f"  {translator.translate(['the man'])[0]} "
    assert list(map(placeholders, found[4:])) == list(map(placeholders, marked))
    assert places.total() - places["removed"] == 3


def test_paragraphs_equal_their_sentences_with_the_blanks_between(translator):
    text = "  The cat sees. Two cats see!  The man\n\nsees  the house.\tThe end "
    paragraph = split_paragraph(text, "en")
    assert paragraph[1::2] == [
        "The cat sees.",
        "Two cats see!",
        "The man",
        "sees  the house.",
        "The end",
    ]
    assert "".join(paragraph) == text
    [found], _ = translate_texts(translator, [text.replace("\n\n", " ")], paragraphs=True)
    parts = translator.translate(
        ["The cat sees.", "Two cats see!", "The man sees  the house.", "The end"]
    )
    assert found == f"  {parts[0]} {parts[1]}  {parts[2]}\t{parts[3]} "


@given(st.text(), st.sampled_from(["en", "de", "pt-BR", "xx"]))
def test_sentences_and_blanks_are_the_whole_text(text, language):
    paragraph = split_paragraph(text, language)
    assert "".join(paragraph) == text
    assert all(
        sentence == sentence.strip() != "" and "\n" not in sentence for sentence in paragraph[1::2]
    )
    assert not "".join(paragraph[::2]).strip()


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("en", "Dr. Smith paid 3.50 dollars. Mr. Jones, e.g., did not!", 2),
        ("de", "Das ist z. B. gut. Am 3. Oktober kam Dr. Müller.", 2),
        ("fr", "M. Dupont est venu. Il a dit « oui ».", 2),
    ],
)
def test_abbreviations_end_no_sentence(language, text, sentences):
    assert len(split_paragraph(text, language)[1::2]) == sentences


def test_the_alignment_of_words_is_that_of_their_subwords(translator):
    text = "  the old house. é 猫 sees.\nx"
    cut = split_paragraph(text, "en")
    read = Texts([[Part(text)]], "en", True, True)
    best = [found for found, *_ in translator.n_best(read.sentences.lines, 1)]
    attention = read.sentences.attend(translator, best, [0, 1, 2])
    assert read.sentences.lines == cut[1::2]
    translated = list(cut)
    translated[1::2] = [one.text for one in best]

    found = unit_weights(translated, cut, attention)

    assert np.abs(found.sum(1) - 1).max() < 1e-4
    done = [0, 0]
    for number, (sentence, one) in enumerate(zip(cut[1::2], best, strict=True)):
        alone = unit_weights(["", one.text, ""], ["", sentence, ""], attention[number : number + 1])
        assert alone.shape == (len(words_of(one.text)), len(words_of(sentence)))
        rows, columns = (
            slice(start, start + size) for start, size in zip(done, alone.shape, strict=True)
        )
        assert np.allclose(found[rows, columns], alone)
        done = [rows.stop, columns.stop]
    assert found.shape == tuple(done)
    empty = Texts([[Part("")]], "en", True, False).sentences.attend(
        translator, [Translation()], [0]
    )
    assert unit_weights(["", "", ""], ["", "", ""], empty).shape == (0, 0)


def test_the_space_of_a_first_subword_belongs_to_its_sentence_without_a_blank_before_it():
    pieces = ["", "a.", "", "b c", ""]
    # `a.` and then a space alone, `b`, ` c`
    lengths = ([3], [1, 1, 2])
    attention = [(some, some, np.full((len(some), len(some)), 1 / len(some))) for some in lengths]
    found = unit_weights(pieces, pieces, attention)
    assert np.allclose(found[:2], [0.5, 0.5, 0, 0])
    assert np.allclose(found[2:], [0, 0, 2 / 3, 1 / 3])


def test_a_word_attends_to_what_its_subwords_attend_to():
    # Subwords, with their first blank: _ab c | _d e f; é (2 bytes) is cut in two.
    attention = np.array([[0.5, 0.1, 0.2, 0.1], [0.2, 0.4, 0.1, 0.1], [0.1, 0.0, 0.3, 0.3]])
    found = unit_weights(
        ["", "xé y", ""], ["", "ab c.", ""], [([3, 1, 2], [3, 2, 1, 0], attention)]
    )
    sums = np.array([[0.7, 0.5, 0.5], [0.1, 0.0, 0.6]])
    assert np.allclose(found, sums / sums.sum(1, keepdims=True))


@pytest.mark.parametrize(
    ("pieces", "number"),
    [
        (["彼得", "现在", "看到", "房子。"], 1),
        (["เขา", "อ่าน", "หนังสือ"], 2),
        ([" मेरी", " हिन्दी", " किताब"], 1),
        ([" שָׁלוֹם", " עולם"], 0),
        ([" cafe\u0301", " no\u0308tig"], 0),
    ],
)
def test_an_element_is_around_its_words_in_every_script_and_between_no_letter_and_its_signs(
    pieces, number
):
    # The model writes these subwords; the second word of the source is what the one of this number
    # attends to.
    text = "".join(pieces)
    lengths = [len(piece.encode()) for piece in pieces]
    lengths[0] += not text.startswith(" ")
    attention = np.tile([0.9, 0.1, 0.0], (len(pieces), 1))
    attention[number] = [0.0, 1.0, 0.0]
    [part] = parts_of("one <b>two</b> three")
    weights = unit_weights(
        ["", text.strip(), ""], ["", part.text, ""], [(lengths, [4, 4, 6], attention)]
    )
    around = pieces[number].strip(" 。")
    expected = text.strip().replace(around, f"<b>{around}</b>")
    assert written(part, text.strip(), weights, Counter()) == expected


def test_no_blank_is_put_beside_chinese():
    [part] = parts_of("see {name} now")
    weights = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1.0]])
    assert written(part, "看她吧。", weights, Counter()) == "看{name}吧。"
    assert [one.text for one in parts_of("<b>看</b><i>她</i>")] == ["看她"]


HOSTILE = [
    "<",
    "<b>",
    "</b>",
    "<i></b>",
    "<!--",
    "<script>",
    "<b translate=no>",
    "x<br>",
    "a<b>",
    "&lt;a ",
    '<a "x ',
]


def lines_executed(work: Callable[[], object]) -> int:
    """How many lines of Python run."""
    count, before = 0, sys.gettrace()

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("hostile", HOSTILE)
def test_the_work_of_parsing_grows_no_faster_than_the_text(hostile):
    parse_markup(hostile, is_html=True)  # patterns are compiled once
    texts = [hostile * times for times in (150, 300)]
    short, long = (lines_executed(partial(parse_markup, text, is_html=True)) for text in texts)
    assert long <= 2.1 * short + 50


MARKED = [
    "<b>x</b> ",
    "<i>",
    "%s ",
    "{a}{b}",
    "<b><i></i></b>y ",
    "x<img>",
    "<b>%s{c}</b>",
    "} ",
    "</b>z<b>",
]


@pytest.mark.quick("-True")
@pytest.mark.parametrize("spoil", [False, True])
@pytest.mark.parametrize("hostile", MARKED)
def test_the_work_of_placing_grows_no_faster_than_the_text(hostile, spoil):
    def work(times: int) -> int:
        [part] = parts_of(f"word {hostile * times}")
        sentence = perfect(part.text, backwards=True, spoil=spoil)
        return lines_executed(lambda: written(part, *sentence, Counter()))

    work(20)
    assert work(240) <= 2.1 * work(120) + 50


def test_elements_may_stand_in_each_other_as_deep_as_a_line_is_long():
    text = "<b>" * 4000 + "word" + "</b>" * 4000
    assert translated(text) == text.upper().replace("B>", "b>")
    assert translated(text.replace("word", "")) == text.replace("word", "")
    inside = f"one <u>{text.replace('word', '')}</u> two"
    assert translated(inside).count("b>") == 8000


@pytest.mark.parametrize(
    ("source", "translation", "expected", "places"),
    [
        (
            "print {name} on (%s).",
            "DRUCKE %s{name} } AUF (%s).",
            "DRUCKE {name} AUF (%s).",
            Counter(by_model=2, removed=2),
        ),
        ("all is new", "{x} ALL %s IS %(y)d", "ALL IS", Counter(removed=3)),
        ("all %s new", "% ALL }s IS", "% ALL %s IS", Counter(by_alignment=1, removed=1)),
        ("see it", "SIEH www.a.org, ES", "SIEH, ES", Counter(removed=1)),
        ("is new", "%}{y}s", "% s", Counter(removed=2)),
        ("a {b} c", "A {B} C", "A {b} C", Counter(by_alignment=1)),
        ("{a} {b} is", "{b} X Y", "{a} {b} X Y", Counter(by_model=1, by_alignment=1)),
        ("a { b", "A { B", "A { B", Counter()),
        ("new", "%s", "", Counter(removed=1)),
        ("new file", "<b>NEW</b> <a href='#'>FILE", "NEW FILE", Counter(removed=3)),
        ("new", "NEW<br/>", "NEW", Counter(removed=1)),
        ("new", "<!-- x -->&lt;i&gt;NEW&lt;/i&gt;", "NEW", Counter(removed=3)),
        (
            "a <i>new</i> file",
            "<i></i>A NEW FILE",
            "A <i>NEW</i> FILE",
            Counter(by_alignment=1, removed=2),
        ),
        ("5 < 7 > x", "5 < 7 > X", "5 < 7 > X", Counter()),
        ("the <new file", "DIE <NEU DATEI>", "DIE <NEU DATEI>", Counter()),
        ("if x <y", "<WENN X <Y", "WENN X <Y", Counter(removed=1)),
        ("new", "<{x}b> <b", "< b> b", Counter(removed=2)),
    ],
)
def test_a_placeholder_or_tag_that_the_source_lacks_is_removed_and_counted(
    source, translation, expected, places
):
    found = Counter()

    def from_the_end(text: str) -> Translated:
        units, src_units = words_of(translation), words_of(text)
        weights = np.zeros((len(units), len(src_units)))
        for number in range(len(units)):
            weights[-1 - number, max(len(src_units) - 1 - number, 0)] = 1
        return translation, weights

    assert restored(parse_markup(source), from_the_end, found) == expected
    assert found == places


PIECES = st.one_of(
    st.sampled_from(
        [
            "%s",
            "%",
            "s",
            "{x}",
            "{",
            "}",
            "{y}",
            "x",
            "(x)",
            "d",
            "%(x)",
            " ",
            ".",
            "2f",
            "www.",
            "a@",
            "b.de",
            "$",
        ]
    ),
    st.sampled_from(
        [
            "<",
            "</",
            ">",
            "b",
            "<b>",
            '"',
            "<!--",
            "-->",
            "&lt;",
            "&gt;",
            "<i x='1'>",
            "</b>",
            "<br/>",
        ]
    ),
)
MARKED_WORDS = st.sampled_from(
    [
        "%s",
        "{x}",
        "a b",
        "<b>%s</b>",
        "<code>%s</code>",
        "<code>c</code>",
        "<kbd>a {x}</kbd>",
        "<i>",
        "&amp;",
    ]
)


def written_by_a_model(source: str, translation: str, random: Random) -> Translated:
    """A translation with any attention."""
    shape = len(words_of(translation)), len(words_of(source))
    weights = np.array([random.random() ** 8 for _ in range(shape[0] * shape[1])]).reshape(shape)
    return translation, weights / weights.sum(1, keepdims=True).clip(1e-9)


@given(
    st.lists(PIECES, max_size=9).map("".join),
    st.lists(PIECES, max_size=12).map("".join),
    st.randoms(),
)
@example("{<}", "", Random(0))
@example("s{}", "", Random(0))
@example("&lt;<i x='1'>s&gt;", "", Random(0))
@example("<!--<i x='1'>x", "-->", Random(0))
@example("<s", "<!--%s-->", Random(0))
@example("s&lt;&gt;", "&lt;x", Random(0))
@example("s%s&lt;&gt;", "&lt;x", Random(0))
@example("s&lt;&gt;", "&lt;www.", Random(0))
def test_a_translation_has_the_placeholders_of_its_source_whatever_the_model_wrote(
    source, translation, random
):
    for part in parts_of(source):
        found = written(
            Part(part.text), *written_by_a_model(part.text, translation.strip(), random), Counter()
        )
        assert Counter(PLACEHOLDER.findall(found)) == Counter(PLACEHOLDER.findall(part.text))
        copied = "".join(PLACEHOLDER.findall(part.text)).count("<")
        assert found.count("<") <= translation.count("<") + copied
        assert TAG_START.search(part.text) or not re.search("<[A-Za-z_/!?]", found)
    whole = restored(
        parse_markup(source), lambda text: written_by_a_model(text, translation.strip(), random)
    )
    if not any(
        TAG_START.search(part.text) for part in parts_of(source)
    ):  # halves of tags, which may pair off anew
        assert Counter(TAG.findall(whole)) == Counter(TAG.findall(source))


@given(
    st.lists(MARKED_WORDS, max_size=7).map(" ".join),
    st.lists(PIECES, max_size=9).map(" ".join),
    st.randoms(),
)
def test_what_stays_as_it_is_replaces_no_placeholder_and_doubles_none(source, translation, random):
    found = restored(
        parse_markup(source), lambda text: written_by_a_model(text, translation.strip(), random)
    )
    assert placeholders(found) == placeholders(source)


@given(st.lists(st.sampled_from("vwxyz"), max_size=9).map(" ".join), st.randoms())
def test_elements_and_tags_alone_are_in_no_element_that_they_were_not_in_whatever_the_model_attends_to(
    words, random
):
    source = "<b>one <i>two three</i> <x/>four</b> five <u>six <y/> seven</u> <z/> eight"
    found = restored(parse_markup(source), lambda text: written_by_a_model(text, words, random))
    inside = {
        (around.tag, one.tag)
        for around in ElementTree.fromstring(f"<p>{found}</p>").iter()
        for one in around
    }
    assert inside <= {("b", "i"), ("b", "x"), ("u", "y"), *(("p", name) for name in "bixuyz")}


@pytest.mark.parametrize("character", ["a", "0", "%", "<!--", "%0", "a.", "<", "{"])
def test_a_line_of_the_greatest_length_has_no_placeholders_that_are_not_there(character):
    # Patterns that looked through the rest of the line from every character would take minutes
    # here.
    line = character * (32_768 // len(character))
    assert set(placeholders(line)) <= {"%%"}


def test_a_line_with_more_words_than_memory_allows_is_refused_by_its_number_before_anything_is_translated(
    translator, monkeypatch
):
    monkeypatch.setattr(texts, "MAX_WORDS", 4)
    monkeypatch.setattr(translator, "n_best", None)
    with pytest.raises(
        DataError, match=r"text 12 has 5 words without a tag .* are supported: divide it"
    ):
        translate_texts(
            translator,
            ["one <br>two three, four", "one <br>two <b>three</b>, four five"],
            first_line=11,
        )


def test_long_pairs_are_aligned_in_smaller_batches(translator, monkeypatch):
    sources = ["the", "the old house of two cats", "two cats", "", "the man sees the old house"]
    src_ids = translator.source_ids(sources)
    outputs = [best.tokens for best, *_ in translator.n_best(sources, 1)]
    expected = alignment.alignment_weights(translator, src_ids, outputs)
    sizes = []
    decode = translator.model.decode
    monkeypatch.setattr(
        translator.model, "decode", lambda ids, *rest: sizes.append(len(ids)) or decode(ids, *rest)
    )
    monkeypatch.setattr(alignment, "BATCH_TOKENS", 20)
    found = alignment.alignment_weights(translator, src_ids, outputs)
    longest = sorted(len(src) * len(tgt) for src, tgt in zip(src_ids, outputs, strict=True))
    assert len(sizes) > 1
    assert longest[-1] > 40
    assert sum(sizes) == sum(bool(size) for size in longest)
    for one, other in zip(expected, found, strict=True):
        assert (one is None and other is None) or torch.allclose(one, other, atol=1e-6)


def test_weights_of_words_are_sums_over_source_and_means_over_target_subwords(translator):
    source, translation = "the hxuse of  two", "das alte Hxus"
    src_ids, tgt_ids = translator.source_ids([source, translation])

    found = alignment.word_attention(translator, src_ids, tgt_ids)

    assert (found["source"], found["translation"]) == (source.split(" "), translation.split(" "))
    [weights] = alignment.alignment_weights(translator, [src_ids], [tgt_ids])
    src_words, tgt_words = (
        torch.tensor(
            [
                sum(t.startswith("▁") for t in tokens[: place + 1]) - 1
                for place in range(len(tokens))
            ]
        )
        for tokens in (translator.tokenizer.tokens(src_ids), translator.tokenizer.tokens(tgt_ids))
    )
    assert len(src_ids) > len(found["source"])
    assert len(tgt_ids) > len(found["translation"])
    for t in range(3):
        for s in range(5):
            expected = weights[tgt_words == t][:, src_words == s].sum(1).mean()
            assert found["weights"][t][s] == pytest.approx(float(expected), abs=6e-5)


def test_markup_is_placed_alike_however_unicode_stores_the_accents(translator):
    text = "Žluťoučký <b>kůň</b> größer %s <i>Tiếng Việt</i> có"
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert composed != decomposed
    assert translate_texts(translator, [decomposed]) == translate_texts(translator, [composed])


NO_LETTERS = [
    "1984",
    "12:30",
    "$5.00",
    "...",
    "😀",
    "👍🏽",
    "👨\u200d👩\u200d👧",
    "🇩🇪",
    "4\ufe0f\u20e3",
    "—",
    "★★★★☆",
    "http://a.b/c",
    "HTTPS://A.B/C",
    "mailto:a@b.org",
    "a@b.org",
    "example.com",
    "www.example.org/path",
    "docs.example.co.uk",
    "example.com:8080/a?b=c",
    "müller.de",
    "example.at",
    "example.com, example.org",
    "½ Ⅳ ①",
    "ℹ\ufe0f",
    "♪",
    "(1)",
    "v2.13.0",
    "DE89 3704 0044 0532 0130 00",
    "<br/>",
    '<a href="the house">1984</a>',
]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("pay to DE89 3704 0044 0532 0130 00 now", "DE89 3704 0044 0532 0130 00"),
        ("GB29NWBK60161331926819, please", "GB29NWBK60161331926819"),
        ("FR14 2004 1010 0505 0001 3M02 606.", "FR14 2004 1010 0505 0001 3M02 606"),
        ("install v2.13.0.", "v2.13.0"),
        ("from v1.2 to v1.3-rc1", "v1.2|v1.3"),
        ("the 2nd of 10kg, 1.5 times, COVID19 on A4 and iPhone 15 v2", ""),
        ("TV55 SALE THIS WEEK ONLY, AB12 1984", ""),
        ("see example.com, or (docs.example.co.uk).", "example.com|docs.example.co.uk"),
        ("go to example.com/a?b=c.", "example.com/a?b=c"),
        ("example.it/x and docs.example.it", "example.it/x|docs.example.it"),
        ("a {sub}.example.com zone, a@b.org", "{sub}|example.com|a@b.org"),
        ("the end.The next end.it was this way.so we, e.g.it", ""),
        ("read notes.txt, setup.py, run.sh, index.html and archive.com.txt", ""),
        ("about Node.js, Mr.Smith, the U.S.A., 3.14 and z.B. so", ""),
    ],
)
def test_codes_and_host_names_are_placeholders_but_sentence_ends_and_file_names_are_not(
    text, codes
):
    expected = codes.split("|") if codes else []
    assert PLACEHOLDER.findall(text) == expected
    for translation in (translated(text, backwards=True), translated(text, spoil=True)):
        assert Counter(PLACEHOLDER.findall(translation)) == Counter(expected)


@pytest.mark.parametrize("markup", [True, False])
@pytest.mark.parametrize("paragraphs", [True, False])
def test_what_has_no_letter_outside_placeholders_is_copied_wherever_it_stands(
    translator, markup, paragraphs
):
    assert translate_texts(translator, NO_LETTERS, markup, paragraphs)[0] == NO_LETTERS
    if paragraphs and not markup:
        [alone], _ = translate_texts(translator, ["the house."], False, True)
        for text in NO_LETTERS:
            assert translate_texts(translator, [f"{text}\nthe house."], False, True)[0] == [
                f"{text}\n{alone}"
            ]


def test_emoji_of_a_sentence_are_in_its_translation_as_often_and_nowhere_else():
    for text in ("the flowers 🎉🎉", "the 👩\u200d👩\u200d👧 house 🇩🇪🇫🇷", "ok 👍🏽"):
        expected = Counter(re.findall("🎉|👩\u200d👩\u200d👧|🇩🇪|🇫🇷|👍🏽", text))
        for translation in (
            translated(text),
            translated(text, backwards=True),
            translated(text, spoil=True),
        ):
            assert Counter(re.findall("🎉|👩\u200d👩\u200d👧|🇩🇪|🇫🇷|👍🏽", translation)) == expected
    assert translated("two cats") == "TWO CATS"
