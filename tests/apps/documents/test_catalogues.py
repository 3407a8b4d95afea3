"""Programs can read translated catalogues; `msgfmt` of gettext confirms it."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from aiayn.apps.documents.document import Document, parse_document
from aiayn.apps.documents.markup import Part, rendered
from aiayn.apps.documents.placement import UNIT, written

HEADER = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n'
)


def catalogue(*messages: str, fuzzy: bool = True) -> Document:
    """A catalogue of messages: each the flag, a bar, and the text."""
    content = HEADER
    for flag, text in (message.split("|", 1) for message in messages):
        content += (
            f'\n#, {flag}\nmsgid "{text}"\nmsgstr ""\n'
            if flag
            else (f'\nmsgid "{text}"\nmsgstr ""\n')
        )
    return parse_document(Path("a.po"), content.encode(), ("en", "de"), fuzzy=fuzzy)


def word_for_word(text: str, spoil: bool, backwards: bool) -> tuple[str, np.ndarray]:
    """A translation in capitals, perhaps in the opposite order, and how it attends to the source.

    It has copied all arguments, or spoilt them.
    """
    spans = [word.span() for word in re.finditer(r"\S+", text)]
    units = [unit.start() for unit in UNIT.finditer(text)]
    words: list[str] = []
    rows: list[np.ndarray] = []
    for start, stop in spans[:: -1 if backwards else 1]:
        is_argument = not spoil and not text[start:stop].strip("?.,").isalpha()
        words.append(text[start:stop] if is_argument else text[start:stop].upper())
        inside = np.flatnonzero([start <= unit < stop for unit in units])
        count = len(UNIT.findall(words[-1]))
        of_word = np.zeros((count, len(units)))
        of_word[:, inside] = np.eye(count) if count == len(inside) else 1 / len(inside)
        rows += list(of_word)
    return " ".join(words), np.array(rows).reshape(len(rows), len(units))


def translated(document: Document, spoil: bool = True, backwards: bool = False) -> str:
    def text_of(part: Part) -> str:
        return written(part, *word_for_word(part.text, spoil, backwards), Counter())

    return rendered(document.pieces, text_of)


def translations(*messages: str, spoil: bool = True, backwards: bool = False) -> list[str]:
    text = translated(catalogue(*messages), spoil, backwards)
    return re.findall(r'^msgstr "(.*)"', text, re.MULTILINE)[1:]


KEPT = {
    "c-format": ["%'d", "% d", "%<PRIu64>", "%I64d", "%-20s", "%m", "%+.3f", "%zu"],
    "objc-format": ["%@", "%ld"],
    "python-format": ["%(name)s", "%-5.2f", "%r"],
    "python-brace-format": ["{}", "{0!r}", "{user.name}", "{0[key]}", "{:>{width}}"],
    "java-format": ["{0}", "%,d", "%tY", "{1,number,integer}", "{0,date}", "'{0}'"],
    "java-printf-format": ["%,d", "%1$tY", "%n"],
    "csharp-format": ["{0:yyyy}", "{1,5}", "{0, -5}", "{ 0 }"],
    "perl-format": ["%vd"],
    "javascript-format": ["%j"],
    "gcc-internal-format": ["%qE", "%.*s", "%<"],
    "gfc-internal-format": ["%qs", "%L", "%C", "%ld"],
    "ocaml-format": ["%a", "%!"],
    "php-format": ["%05d", "%2$s", "%'*10d", "%b"],
    "lua-format": ["%q", "%5.1f"],
    "go-format": ["%v", "%[2]d", "%+.2f", "%T"],
    "object-pascal-format": ["%d", "%0:s", "%1:-8.2f"],
    "rust-format": ["{}", "{name:>5}"],
    "c++-format": ["{:d}", "{0}"],
    "sh-printf-format": ["%s"],
    "kde-kuit-format": ["%1"],
    "ycp-format": ["%1"],
    "smalltalk-format": ["%1%"],
    "ruby-format": ["%{name}", "%<age>d"],
    "qt-format": ["%1", "%L2"],
    "perl-brace-format": ["{count}"],
    "sh-format": ["$name", "${name}"],
    "boost-format": ["%1%"],
    "lisp-format": ["~a", "~%", "~10@a", "~:;", "~'*10d"],
}


@pytest.mark.parametrize(
    ("flag", "argument"), [(flag, argument) for flag in KEPT for argument in KEPT[flag]]
)
def test_an_argument_of_the_flag_of_a_message_stays_as_it_is(flag, argument):
    message = f"{flag}|the {argument} red flowers"
    for spoil in (False, True):
        assert translations(message, spoil=spoil) == [f"THE {argument} RED FLOWERS"]
        assert translations(message, spoil=spoil, backwards=True) == [f"FLOWERS RED {argument} THE"]


def test_the_flag_chooses_what_an_argument_is():
    assert translations("c-format|a {x!r} % d", "no-c-format|a % d") == ["A {x!r} % d", "A % D"]
    assert translations("python-brace-format|a % d {x}", "|a % d {x}") == ["A % D {x}"] * 2


def test_a_character_that_text_has_twice_is_one_for_the_model_and_two_in_the_file():
    messages = (
        "c-format|50%% of %s",
        "python-brace-format|the {{set}} of {}",
        "java-format|{0}''s",
    )
    parts = catalogue(*messages).parts
    assert [part.text for part in parts] == ["50% of %s", "the {set} of {}", "{0}'s"]
    assert translations(*messages)[:2] == ["50%% OF %s", "THE {{set}} OF {}"]
    assert translations("java-format|it''s {0}") == ["IT''S {0}"]


def test_arguments_in_another_order_get_the_numbers_of_their_order():
    messages = ("c-format|%s sees %d", "c-format|%s sees %s", "java-printf-format|%tY or %n %,d")
    assert translations(*messages) == ["%s SEES %d", "%s SEES %s", "%tY OR %n %,d"]
    assert translations(*messages, backwards=True) == [
        "%2$d SEES %1$s",
        "%2$s SEES %1$s",
        "%2$,d %n OR %1$tY",
    ]


@pytest.mark.parametrize(
    "message",
    [
        "python-format|%s sees %d",
        "python-format|%s sees %s",
        "python-brace-format|{} sees {}",
        "c-format|%*d sees %s",
        "python-brace-format|{} of {:d}",
        "lisp-format|~a sees ~%",
        "java-printf-format|%1$tY sees %<tm",
        "java-printf-format|%tY sees %-<9tm",
        "d-format|%(%s, %) sees %d",
    ],
)
def test_a_message_whose_arguments_cannot_change_places_stays_empty_and_is_counted(message):
    document = catalogue("|a cat", message, message)
    found = translated(document, backwards=True)
    assert re.findall(r'^msgstr "(.*)"', found, re.MULTILINE) == ["", "CAT A", "", ""]
    assert "fuzzy, " not in found
    [remark] = document.remarks
    assert remark.startswith("a.po: 2 messages left empty")
    assert remark.endswith("line 10, 14")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Where is :func:`print`?", "WHERE IS :func:`print`?"),
        ("see :ref:`the old house <old-house>`.", "SEE :ref:`THE OLD HOUSE <old-house>`."),
        ("see `the page <https://a.org/b>`__ now", "SEE `THE PAGE <https://a.org/b>`__ NOW"),
        ("the ``red flowers`` today", "THE ``red flowers`` TODAY"),
        ("the |release| house [1]_", "THE |release| HOUSE [1]_"),
        ("an *old* and **very old** house_", "AN *OLD* AND **VERY OLD** house_"),
        ("`` a 2*3*4 snake_case |", "`` A 2*3*4 SNAKE_CASE |"),
        (":py:meth:`~a.B.c` and `x`", ":py:meth:`~a.B.c` AND `x`"),
    ],
)
def test_roles_and_literals_of_sphinx_stay_and_words_in_them_are_translated(message, expected):
    assert translations(f"|{message}") == [expected]


@pytest.mark.parametrize(
    ("message", "expected", "reversed_words"),
    [
        (r"&Where is it?\tCtrl+H", r"&WHERE IS IT?\tCtrl+H", r"&IT? IS WHERE\tCtrl+H"),
        (r"the house\tF11", r"THE HOUSE\tF11", r"HOUSE THE\tF11"),
        (r"the house\tCtrl-X", r"THE HOUSE\tCtrl-X", r"HOUSE THE\tCtrl-X"),
        (r"the house\t<Primary>v", r"THE HOUSE\t<Primary>v", r"HOUSE THE\t<Primary>v"),
        (r"the house\tPage Up", r"THE HOUSE\tPage Up", r"HOUSE THE\tPage Up"),
        ("E&xit now", "&EXIT NOW", "&NOW EXIT"),
        ("the _File", "THE _FILE", "_FILE THE"),
        ("the R&D of A & B", "THE R&D OF A & B", "B & A OF R&D THE"),
        (r"the %s house\tmen\n", r"THE %s HOUSE\tMEN\n", r"HOUSE %s THE\tMEN\n"),
    ],
)
def test_tabs_keys_and_the_letters_of_menus_stay_where_programs_look_for_them(
    message, expected, reversed_words
):
    assert translations(f"|{message}") == [expected]
    assert translations(f"|{message}", backwards=True) == [reversed_words]


def test_translations_are_fuzzy_unless_they_are_said_to_be_reviewed():
    messages = ("c-format|the %d cats", "|the cat", "fuzzy, c-format|a %s")
    found = translated(catalogue(*messages))
    assert re.findall("^#, fuzzy.*", found, re.MULTILINE) == [
        "#, fuzzy, c-format",
        "#, fuzzy",
        "#, fuzzy, c-format",
    ]
    reviewed = translated(catalogue(*messages, fuzzy=False))
    assert re.findall("^#, .*", reviewed, re.MULTILINE) == ["#, c-format", "#, fuzzy, c-format"]


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext")
def test_msgfmt_accepts_what_was_translated(tmp_path):
    messages = [
        f"{flag}|the {argument} red flowers in {flag}"
        for flag, arguments in KEPT.items()
        for argument in arguments
        if (flag, argument) not in ((("java-format", "%,d"), ("java-format", "%tY")))
    ]
    messages += [
        "c-format|%s sees %d\\n",
        "python-format|%s sees %d",
        "c-format|%d%% of the %s",
        "python-brace-format|the {{ of {a}",
        "gcc-internal-format|%K sees %qD",
        "java-format|it''s {0}",
        "|a &file\\tCtrl+X",
    ]
    for backwards in (False, True):
        text = translated(catalogue(*messages, fuzzy=False), backwards=backwards)
        text += (
            '\n#, c-format\nmsgid "a house"\nmsgid_plural "%d houses"\nmsgstr[0] ""\nmsgstr[1] ""\n'
        )
        document = parse_document(Path("a.po"), text.encode(), ("en", "de"), fuzzy=False)
        (tmp_path / "a.po").write_text(translated(document, backwards=backwards))
        check = subprocess.run(
            ["msgfmt", "-c", "-o", str(tmp_path / "a.mo"), str(tmp_path / "a.po")],
            capture_output=True,
            text=True,
            check=False,
        )
        errors = [line for line in check.stderr.splitlines() if "header field" not in line]
        assert (check.returncode, errors) == (0, [])


def test_a_message_is_read_alike_in_every_process() -> None:
    """Both patterns of what is text match it; the order of a set differs between processes."""
    message = 'the {{ x|default("<b>") }} cat'
    code = (
        "from aiayn.apps.localisation.formats import FORMATS\n"
        f"[_, part, _] = FORMATS['python-brace'].pieces({message!r})\n"
        "print(part.text, [tag.raw for tag in part.tags])"
    )
    for seed in "1234":
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code]
        printed = subprocess.run(command, env=environment, capture_output=True, text=True).stdout
        assert printed == """the cat [' {{ x|default("<b>") }} ']\n"""
