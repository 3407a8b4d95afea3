"""Files of pairs: every reader gives the pairs of two plain files, and refuses the rest with file and line."""

import gzip
import json
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import SEPARATORS, data_config, write_bytes, write_lines

from aiayn.data.cleaning import CleaningReport, clean
from aiayn.data.pair_files import pair_file_kind
from aiayn.data.prepare import prepare
from aiayn.data.sources import count_pairs, identity, raw_pairs, read_split
from aiayn.data.text_files import FileScans
from aiayn.errors import DataError

PAIRS = [
    ("the house", "das Haus"),
    ("  two cats", "zwei Katzen "),
    ('"No', "Nein»"),
    ("a < b & c", "a < b & c"),
    ("", ""),
]


def tsv(pairs) -> str:
    return "".join(f"{src}\t{tgt}\n" for src, tgt in pairs)


def jsonl(pairs) -> str:
    return "".join(json.dumps({"de": tgt, "id": 7, "en": src}) + "\n" for src, tgt in pairs)


def tmx(pairs, head="") -> str:
    units = (
        f'<tu tuid="x">\n<tuv xml:lang="DE-de"><seg>{escape(tgt)}</seg></tuv><note>n</note>'
        f'<tuv xml:lang="en_US"><prop>x</prop><seg>{escape(src)}</seg></tuv></tu>\n'
        for src, tgt in pairs
    )
    return f'<?xml version="1.0"?>\n{head}<tmx version="1.4"><header/><body>\n{"".join(units)}</body></tmx>'


def stored(path: Path, text: str | bytes) -> str:
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def read(path: str) -> list[tuple[bytes, bytes]]:
    return list(raw_pairs(data_config(train=path), "train", FileScans()))


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("write", [tsv, jsonl, tmx])
def test_every_kind_gives_the_pairs_of_two_files_in_order(write, ending, tmp_path):
    path = stored(tmp_path / f"x.{write.__name__}{ending}", write(PAIRS))
    stripped = [tuple(text.strip() for text in pair) for pair in PAIRS] if write is tmx else PAIRS
    assert read(path) == [(src.encode(), tgt.encode()) for src, tgt in stripped]
    assert read_split(data_config(test=path), "test") == tuple(map(list, zip(*stripped, strict=True)))
    back = data_config(test=path, src_lang="de", tgt_lang="en")
    if write is not tsv:
        assert read_split(back, "test") == tuple(map(list, zip(*[pair[::-1] for pair in stripped], strict=True)))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=5))
def test_any_text_survives_json_but_for_line_feeds(tmp_path_factory, pairs):
    path = stored(tmp_path_factory.mktemp("json") / "x.jsonl", jsonl(pairs))
    expected = [[text.replace("\n", " ") for text in side] for side in zip(*pairs, strict=True)]
    assert list(read_split(data_config(test=path), "test")) == expected


@pytest.mark.parametrize("separator", SEPARATORS[1:9])
def test_no_separator_but_lf_cuts_a_tab_separated_line(separator, tmp_path):
    path = stored(tmp_path / "x.tsv", tsv([(f"a{separator}b", "c"), ("d", f"{separator}e")]))
    assert [tuple(side.decode() for side in pair) for pair in read(path)] == [
        (f"a{separator}b", "c"),
        ("d", f"{separator}e"),
    ]


def test_columns_named_in_the_first_line_may_stand_anywhere(tmp_path):
    path = stored(tmp_path / "x.tsv", "id\tde\tscore\ten\n1\tHaus\t.5\thouse\n\n2\tHund\t\tdog\n")
    assert read(path) == [(b"house", b"Haus"), (b"", b""), (b"dog", b"Hund")]
    assert count_pairs(data_config(train=path), "train", FileScans()) == 3


def test_pairs_are_cleaned_counted_and_prepared_as_those_of_two_files(tmp_path):
    pairs = [(f"house {n} and {n + 1}", f"Haus {n} und {n + 1}") for n in range(60)]
    spoilt = [*pairs[:30], ("", "leer"), ("a\x00b", "c"), ("x" * 32_769, "y"), *pairs[30:]]
    val = write_lines(tmp_path / "val", *([side[n] for side in pairs[:9]] for n in (0, 1)))
    two = write_lines(tmp_path / "two", [src for src, _ in spoilt], [tgt for _, tgt in spoilt])
    expected = prepare(data_config(train=two, val=val, folder=str(tmp_path / "data")))
    assert expected.report["train"]["dropped"] == {"empty": 1, "control_characters": 1, "too_many_bytes": 1}
    for write in (tsv, jsonl):
        path = stored(tmp_path / f"x.{write.__name__}.gz", write(spoilt))
        found = prepare(data_config(train=path, val=val, folder=str(tmp_path / "data")))
        assert found.fingerprint != expected.fingerprint
        assert found.report == expected.report
        for name in ("train.src.bin", "train.tgt.bin", "tokenizer.json"):
            assert (found.folder / name).read_bytes() == (expected.folder / name).read_bytes()


def test_a_file_of_pairs_is_known_by_its_ending():
    kinds = [pair_file_kind(name) for name in ("a/x.tsv", "x.en.jsonl.gz", "x.tmx", "tsv", "a/tmx", "x.tsv.en", "x")]
    assert kinds == ["tsv", "jsonl", "tmx", None, None, None, None]


def test_prefixes_and_files_of_pairs_can_be_mixed_and_content_decides(tmp_path):
    first = write_bytes(tmp_path / "a", b"1\n", b"eins\n")
    second, packed = (stored(tmp_path / name, tsv([("2", "zwei")])) for name in ("b.tsv", "c.tsv.gz"))
    config = data_config(train=[first, second])
    assert list(raw_pairs(config, "train", FileScans())) == [(b"1", b"eins"), (b"2", b"zwei")]
    ids = [identity(data_config(train=path), "train", FileScans()) for path in (second, packed, first)]
    assert ids[0] == ids[1] != ids[2]


def test_a_translation_memory_gives_text_without_codes_of_each_units_first_variants(tmp_path):
    text = """<tu><tuv xml:lang="en"><seg>Press <bpt i="1">&lt;b></bpt>Save<ept i="1">&lt;/b></ept>
      now<ph>{0 <sub>x</sub>}</ph>&#x21;</seg></tuv><tuv lang="de-AT"><seg><hi>Jetzt</hi> speichern</seg></tuv>
      <tuv xml:lang="de"><seg>zweite</seg></tuv></tu>
      <tu><tuv xml:lang="en"><seg>alone</seg></tuv><tuv xml:lang="english"><seg>x</seg></tuv></tu>"""
    doctype = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    for encoding in ("utf-8", "utf-16", "iso-8859-1"):
        content = f'<?xml version="1.0" encoding="{encoding}"?>{doctype}<tmx><body>{text}</body></tmx>'.encode(encoding)
        assert read(stored(tmp_path / "x.tmx", content)) == [(b"Press Save now!", b"Jetzt speichern")]


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "ha"}">' for n in range(9))
REFUSED = {
    "x.tsv": [
        ("a\tb\na\n", "line 2 has 1 columns instead of 2"),
        ("a\tb\tc\n", "line 1 has 3 columns instead of 2"),
        ("id\ten\tde\n1\ta\n", "line 2 has 2 columns instead of 3"),
        ("en\tde\n", "no pairs of en and de"),
        ("a\tb\n" + "c" * (1 << 20) + "\td\n", "line 2 is longer than 1,048,576 bytes"),
        ("", "there is no text in"),
        ("a\tb\n".encode("utf-16"), "UTF-16"),
    ],
    "x.jsonl": [
        ('{"en": "a", "de": "b"}\n{"en": "a"}\n', "line 2 is no JSON object with two texts"),
        ('{"en": "a", "de": 7}', "line 1 is no JSON"),
        ('{"en": null, "de": "b"}', "line 1 is no JSON"),
        ("[1]", "line 1 is no JSON"),
        ("7", "line 1 is no JSON"),
        ('{"translation": "x"}', "line 1 is no JSON"),
        ("\n", "line 1 is no JSON"),
        ("[" * 100_000, "line 1 is no JSON"),
        (b'{"en": "\xff", "de": "b"}', "line 1 is no JSON"),
    ],
    "x.tmx": [
        (tmx(PAIRS)[:-9], "line 13 is not well-formed XML (unclosed token)"),
        ("<tmx>\n<a></b></tmx>", "line 2 is not well-formed XML (mismatched tag)"),
        (tmx(PAIRS, f"<!DOCTYPE tmx [{LAUGHS}]>").replace("two", "&l8;"), "line 2: entity l0: none but those of XML"),
        (tmx(PAIRS, '<!DOCTYPE tmx [<!ENTITY f SYSTEM "file:///etc/passwd">]>'), "line 2: entity f:"),
        (tmx(PAIRS, '<!DOCTYPE tmx [<!ENTITY % f SYSTEM "http://x.org/">%f;]>'), "line 2: entity f:"),
        (tmx(PAIRS, '<!DOCTYPE tmx SYSTEM "tmx14.dtd">').replace("two", "&unknown;"), "entity unknown:"),
        (tmx(PAIRS).replace("two", "&unknown;"), "undefined entity"),
        (tmx([]), "no pairs of en and de"),
        (tmx(PAIRS).replace("DE-de", "fr"), "no pairs of en and de"),
        ("<a>" * 99, "line 1: more than 64 elements in each other"),
        (f'<tmx a="{"x" * (3 << 20)}"/>', "line 1: a tag is longer than a text can be"),
        ("not xml", "line 1 is not well-formed XML"),
    ],
}


@pytest.mark.parametrize(("name", "content", "message"), [(name, *case) for name in REFUSED for case in REFUSED[name]])
def test_what_is_not_of_its_kind_is_refused_with_file_and_line(name, content, message, tmp_path):
    path = stored(tmp_path / name, content)
    with pytest.raises(DataError) as refusal:
        read(path)
    assert str(refusal.value).startswith((path, "data.train: there is no text in"))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_segment_without_end_is_not_held_in_memory_and_dropped_as_too_long(tmp_path):
    path = stored(tmp_path / "x.tmx", tmx([("a", "b"), ("x " * (1 << 20), "y"), ("c", "d")]))
    pairs, report = read(path), CleaningReport()
    assert max(len(src) for src, _ in pairs) < 200_000
    assert list(clean(iter(pairs), report)) == [("a", "b"), ("c", "d")]
    assert report.dropped == {"too_many_bytes": 1}


def test_half_of_a_character_in_json_is_dropped_or_named(tmp_path):
    path = stored(tmp_path / "x.jsonl", '{"en": "a", "de": "b"}\n{"en": "\\ud800", "de": "c"}\n')
    report = CleaningReport()
    assert list(clean(iter(read(path)), report)) == [("a", "b")]
    assert report.dropped == {"not_utf8": 1}
    with pytest.raises(DataError, match=r"x\.jsonl: line 2 is not UTF-8"):
        read_split(data_config(test=path), "test")
    with pytest.raises(DataError, match=r"nowhere\.tmx: cannot be read \(No such file"):
        read(str(tmp_path / "nowhere.tmx"))
