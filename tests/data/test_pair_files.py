"""Files of pairs: every reader gives the pairs of two plain files, and refuses the rest with file
and line.
"""

import bz2
import gzip
import json
import lzma
import os
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import SEPARATORS, data_config, read_pairs, write_bytes, write_lines

from aiayn.apps.localisation.readers import read_memory_pairs
from aiayn.data.cleaning import CleaningReport, clean
from aiayn.data.preparation import prepare_corpus
from aiayn.data.sources import text_of
from aiayn.data.tables import RECORD_BYTES, read_json_lines
from aiayn.data.text_files import read_lines
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
    return (
        f'<?xml version="1.0"?>\n{head}<tmx '
        f'version="1.4"><header/><body>\n{"".join(units)}</body></tmx>'
    )


def stored(path: Path, text: str | bytes) -> str:
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return str(path)


def read(path: str) -> list[tuple[bytes, bytes]]:
    return read_pairs(text_of(data_config(train=path), "train"))


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("write", [tsv, jsonl, tmx])
def test_every_kind_gives_the_pairs_of_two_files_in_order(write, ending, tmp_path):
    path = stored(tmp_path / f"x.{write.__name__}{ending}", write(PAIRS))
    stripped = [tuple(text.strip() for text in pair) for pair in PAIRS] if write is tmx else PAIRS
    assert read(path) == [(src.encode(), tgt.encode()) for src, tgt in stripped]
    assert text_of(data_config(test=path), "test").read() == tuple(
        map(list, zip(*stripped, strict=True))
    )
    back = data_config(test=path, src_lang="de", tgt_lang="en")
    if write is not tsv:
        assert text_of(back, "test").read() == tuple(
            map(list, zip(*[pair[::-1] for pair in stripped], strict=True))
        )


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=5))
def test_any_text_survives_json_but_for_line_feeds(tmp_path_factory, pairs):
    path = stored(tmp_path_factory.mktemp("json") / "x.jsonl", jsonl(pairs))
    expected = [[text.replace("\n", " ") for text in side] for side in zip(*pairs, strict=True)]
    assert list(text_of(data_config(test=path), "test").read()) == expected


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
    assert text_of(data_config(train=path), "train").count() == 3


def first_dropped(prepared) -> dict[str, list[str]]:
    return prepared.report["train"]["first_dropped"]


def test_pairs_are_cleaned_counted_and_prepared_as_those_of_two_files(tmp_path):
    pairs = [(f"house {n} and {n + 1}", f"Haus {n} und {n + 1}") for n in range(60)]
    spoilt = [*pairs[:30], ("", "leer"), ("a\x00b", "c"), ("x" * 32_769, "y"), *pairs[30:]]
    val = write_lines(tmp_path / "val", *([side[n] for side in pairs[:9]] for n in (0, 1)))
    two = write_lines(tmp_path / "two", [src for src, _ in spoilt], [tgt for _, tgt in spoilt])
    expected = prepare_corpus(data_config(train=two, val=val, folder=str(tmp_path / "data")))
    assert expected.report["train"]["dropped"] == {
        "empty": 1,
        "control_characters": 1,
        "too_many_bytes": 1,
    }
    for write in (tsv, jsonl):
        path = stored(tmp_path / f"x.{write.__name__}.gz", write(spoilt))
        found = prepare_corpus(data_config(train=path, val=val, folder=str(tmp_path / "data")))
        assert found.fingerprint != expected.fingerprint
        assert {
            reason: [place.rsplit(": ")[1] for place in first]
            for reason, first in first_dropped(found).items()
        } == {
            "empty": ["line 31"],
            "control_characters": ["line 32"],
            "too_many_bytes": ["line 33"],
        }
        assert (
            found.report["train"] | {"first_dropped": first_dropped(expected)}
            == expected.report["train"]
        )
        for name in ("train.src.bin", "train.tgt.bin", "tokenizer.json"):
            assert (found.folder / name).read_bytes() == (expected.folder / name).read_bytes()


def test_prefixes_and_files_of_pairs_can_be_mixed_and_content_decides(tmp_path):
    first = write_bytes(tmp_path / "a", b"1\n", b"eins\n")
    second, compressed = (
        stored(tmp_path / name, tsv([("2", "zwei")])) for name in ("b.tsv", "c.tsv.gz")
    )
    config = data_config(train=[first, second])
    assert read_pairs(text_of(config, "train")) == [(b"1", b"eins"), (b"2", b"zwei")]
    ids = [
        text_of(data_config(train=path), "train").identity() for path in (second, compressed, first)
    ]
    assert ids[0] == ids[1] != ids[2]


def test_a_translation_memory_gives_text_without_codes_of_each_units_first_variants(tmp_path):
    text = """<tu><tuv xml:lang="en"><seg>Press <bpt i="1">&lt;b></bpt>Save<ept i="1">&lt;/b></ept>
      now<ph>{0 <sub>x</sub>}</ph>&#x21;</seg></tuv><tuv lang="de-AT"><seg><hi>Jetzt</hi> speichern</seg></tuv>
      <tuv xml:lang="de"><seg>zweite</seg></tuv></tu>
      <tu><tuv xml:lang="en"><seg>alone</seg></tuv><tuv xml:lang="english"><seg>x</seg></tuv></tu>"""
    doctype = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    for encoding in ("utf-8", "utf-16", "iso-8859-1"):
        content = f'<?xml version="1.0" encoding="{encoding}"?>{doctype}<tmx><body>{text}</body></tmx>'.encode(
            encoding
        )
        assert read(stored(tmp_path / "x.tmx", content)) == [
            (b"Press Save now!", b"Jetzt speichern")
        ]


@pytest.mark.parametrize(("good", "bad"), [(100, 19), (380, 20)])
def test_fewer_than_20_broken_rows_or_at_most_a_twentieth_are_passed_on_to_be_dropped(
    good, bad, tmp_path
):
    file = stored(tmp_path / "x.tsv", "a\tb\n" * good + "c\n" * bad)
    assert read(file).count((b"a", b"b")) == good


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10 if n else "ha"}">' for n in range(9))
REFUSED = {
    "x.tsv": [
        ("a\nb\tc\n", "line 1 has 1 column instead of 2"),
        ("a\tb\tc\n", "line 1 has 3 columns instead of 2"),
        (
            "id\ten\tde\n1\ta\n",
            "no pairs of en and de (line 2 has another number of columns)",
        ),
        (
            "a\tb\n" * 300 + "c\n" * 20,
            "20 of 320 rows are not pairs, the first (line 301 has another number of columns)",
        ),
        (
            "en\tfr\na\tb\n",
            "the first line seems to name columns, but not en and de; name two columns so",
        ),
        ("English\tFrench\na\tb\n", "the first line seems to name columns"),
        ("en\tEN\tde\na\tb\tc\n", "the first line seems to name columns"),
        ("en\tde\n", "no pairs of en and de"),
        (
            "en\tde\n" + "c" * (1 << 20) + "\td\n",
            "no pairs of en and de (line 2 is too long)",
        ),
        ("", "no text in"),
        ("a\tb\n".encode("utf-16"), "UTF-16"),
    ],
    "x.jsonl": [
        (
            '{"en": "a", "de": "b"}\n' * 99 + '{"en": "a"}\n' * 20,
            "20 of 119 rows are not pairs, the first (line 100 is not a JSON object",
        ),
        ('{"en": "a", "de": 7}', "line 1 is not a JSON"),
        ('{"en": null, "de": "b"}', "line 1 is not a JSON"),
        ("[1]", "line 1 is not a JSON"),
        ("7", "line 1 is not a JSON"),
        ('{"translation": "x"}', "line 1 is not a JSON"),
        ("\n[1]", "line 2 is not a JSON"),
        ("[" * 100_000, "line 1 is not a JSON"),
        (b'{"en": "\xff", "de": "b"}', "line 1 is not a JSON"),
    ],
    "x.tmx": [
        (tmx(PAIRS)[:-9], "line 13 is not well-formed XML"),
        ("<tmx>\n<a></b></tmx>", "line 2 is not well-formed XML"),
        (
            tmx(PAIRS, f"<!DOCTYPE tmx [{LAUGHS}]>").replace("two", "&l8;"),
            "x.tmx: ",
        ),
        (
            tmx(PAIRS, '<!DOCTYPE tmx [<!ENTITY f SYSTEM "file:///etc/passwd">]>'),
            "custom XML entities are not supported",
        ),
        (
            tmx(PAIRS, '<!DOCTYPE tmx [<!ENTITY % f SYSTEM "http://x.org/">%f;]>'),
            "custom XML entities are not supported",
        ),
        (
            tmx(PAIRS, '<!DOCTYPE tmx SYSTEM "tmx14.dtd">').replace("two", "&unknown;"),
            "&unknown;: this entity is not supported",
        ),
        (tmx(PAIRS).replace("two", "&unknown;"), "Entity 'unknown' not defined"),
        (tmx([]), "no pairs of en and de"),
        (
            tmx(PAIRS).replace("DE-de", "fr"),
            "no pairs of en and de (its languages are en_US, fr); choose another file",
        ),
        ("<tmx><tu>\n<tu><tuv/></tu></tu></tmx>", "line 2: a tu element inside another one"),
        (
            '<?xml version="1.0" encoding="base64"?><tmx/>',
            "is not well-formed XML (Unsupported encoding",
        ),
        (
            '<?xml version="1.0" encoding="x-nothing"?><tmx/>',
            "is not well-formed XML (Unsupported encoding",
        ),
        (
            b'<?xml version="1.0" encoding="shift_jis"?>\n<tmx>\x81</tmx>',
            "is not well-formed XML",
        ),
        ("<a>" * 999, "line 1 is not well-formed XML"),
        ("not xml", "line 1 is not well-formed XML"),
    ],
}


@pytest.mark.parametrize(
    ("name", "content", "message"), [(name, *case) for name in REFUSED for case in REFUSED[name]]
)
def test_what_is_not_of_its_kind_is_refused_with_file_and_line(name, content, message, tmp_path):
    path = stored(tmp_path / name, content)
    with pytest.raises(DataError) as refusal:
        read(path)
    assert str(refusal.value).startswith((path, "data.train: no text in"))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.tmx", tmx([("a", "b"), ("x " * (1 << 20), "y"), ("c", "d")])),
        ("x.tsv", f"a\tb\n{'x ' * (1 << 17)}\ty\nc\td\n"),
        ("x.csv", f'a,b\n"{"x " * (1 << 17)}",y\nc,d\n'),
        (
            "x.jsonl",
            '{"en": "a", "de": "b"}\n{"en": "%s", "de": "y"}\n{"en": "c", "de": "d"}\n'
            % ("x " * (1 << 17)),
        ),
    ],
    ids=["tmx", "tsv", "csv", "jsonl"],
)
def test_a_segment_that_is_no_sentence_is_dropped_as_too_long(name, content, tmp_path):
    path = stored(tmp_path / name, content)
    report = CleaningReport()
    pairs = text_of(data_config(train=path), "train").pairs()
    assert [(pair.src, pair.tgt) for pair in clean(pairs, report)] == [("a", "b"), ("c", "d")]
    assert report.dropped == {"too_many_bytes": 1}


def test_half_of_a_character_in_json_is_dropped_or_named(tmp_path):
    path = stored(tmp_path / "x.jsonl", '{"en": "a", "de": "b"}\n{"en": "\\ud800", "de": "c"}\n')
    report = CleaningReport()
    pairs = text_of(data_config(train=path), "train").pairs()
    assert [(pair.src, pair.tgt) for pair in clean(pairs, report)] == [("a", "b")]
    assert report.dropped == {"not_utf8": 1}
    with pytest.raises(DataError, match=r"x\.jsonl \(source\): line 2 is not UTF-8"):
        text_of(data_config(test=path), "test").read()
    with pytest.raises(DataError, match=r"nowhere\.tmx: cannot be read \(No such file"):
        read(str(tmp_path / "nowhere.tmx"))


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("DE\tEN", "de en"),
        ("German\tEnglish", "de en"),
        ('"de"\t"en"', "de en"),
        ("de-AT\ten_US", "de en"),
        (" German (AT) \t english (US)", "de en"),
        ("Target text\tSource text", "de en"),
        ("Target\tSource", "de en"),
        ("en\tde", "en de"),
        ("ID\tEnglish\tNote\tGerman", "id en note de"),
        ("Deutsch (DE)\tEnglisch [en]", "de en"),
        ("target_de\tsource_en", "de en"),
        ("# de\ten", "de en"),
    ],
)
def test_names_over_the_columns_are_found_however_they_are_written(header, columns, tmp_path):
    row = {"de": "Haus", "en": "house", "id": "7", "note": "n"}
    path = stored(
        tmp_path / "x.tsv",
        f"{header}\r\n" + "\t".join(row[name] for name in columns.split()) + "\r\n",
    )
    assert read(path) == [(b"house", b"Haus")]


@pytest.mark.parametrize(
    "pair", [("No", "Nein"), ("English breakfast", "Frühstück"), ("it", "es ist"), ("7", "8")]
)
def test_a_first_pair_of_short_words_is_no_header(pair, tmp_path):
    path = stored(tmp_path / "x.tsv", tsv([pair, ("a", "b")]))
    assert read(path)[0] == tuple(text.encode() for text in pair)


def test_units_of_a_long_translation_memory_are_reported_with_their_lines(tmp_path):
    unit = (
        "<tu>\n\n  <tuv xml:lang='en'>\n<seg>a</seg></tuv>\n<tuv "
        "xml:lang='de'><seg>b</seg></tuv></tu>\n"
    )
    path = Path(
        stored(tmp_path / "x.tmx", f"<tmx version='1.4'><body>\n{unit * 14_000}</body></tmx>")
    )
    assert [pair.number for pair in read_memory_pairs(path, "en", "de")] == list(
        range(2, 70_002, 5)
    )


def test_rows_that_are_no_pairs_are_dropped_and_counted_with_file_and_line(tmp_path):
    pairs = [(f"house {n} and {n + 1}", f"Haus {n} und {n + 1}") for n in range(60)]
    rows = [f"{src}\t{tgt}" for src, tgt in pairs]
    long = "long " * (RECORD_BYTES // 5)
    rows[9:9], rows[20:20] = ["one column"], [" ", "a\tb\tc", f"{long}\tb"]
    table = stored(tmp_path / "x.tsv", "\n".join(["en\tde", *rows]) + "\n")
    objects = [json.dumps({"en": src, "de": tgt}) for src, tgt in pairs]
    objects[30:30] = ["{", "", '{"en": 7, "de": "b"}', f'{{"en": "{long}", "de": "b"}}']
    objects[:0] = ['{"en": "a", "de": null}', "null"]
    records = stored(tmp_path / "x.jsonl", "\n".join(objects) + "\n")
    units = tmx(pairs).replace("</seg></tuv></tu>", "</seg><seg>again</seg></tuv></tu>", 1)
    units = units.replace("</body>", '<tu><tuv xml:lang="en"><seg>alone</seg></tuv></tu></body>')
    memory = stored(tmp_path / "x.tmx", units)
    two = write_lines(
        tmp_path / "two", ["", *(src for src, _ in pairs)], ["leer", *(tgt for _, tgt in pairs)]
    )
    val = write_lines(tmp_path / "val", [src for src, _ in pairs], [tgt for _, tgt in pairs])
    found = prepare_corpus(
        data_config(
            train=[two, table, records, memory],
            val=val,
            folder=str(tmp_path / "data"),
            write_dropped=True,
        )
    )
    written = (found.folder / "dropped.jsonl").read_text("utf-8").splitlines()
    dropped = [record for record in map(json.loads, written) if record["reason"] != "empty"]
    assert [record["source"][:24] for record in dropped] == [
        *("one column", "a\tb\tc", f"{long:.24}", '{"en": "a", "de": null}', "null", "{"),
        *('{"en": 7, "de": "b"}', f'{{"en": "{long:.16}', "house 0 and 1"),
    ]
    assert dropped[-1]["target"] == "Haus 0 und 1"
    assert found.report["train"]["dropped"] == {
        "empty": 3,
        "columns": 2,
        "not_json": 4,
        "too_many_bytes": 2,
        "two_segments": 1,
    }
    assert first_dropped(found) == {
        "empty": [f"{two}.en and {two}.de: line 1", f"{table}: line 22", f"{records}: line 34"],
        "columns": [f"{table}: line 11", f"{table}: line 23"],
        "not_json": [f"{records}: line {number}" for number in (1, 2, 33, 35)],
        "too_many_bytes": [f"{table}: line 24", f"{records}: line 36"],
        "two_segments": [f"{memory}: line 3"],
    }
    assert found.report["train"]["read"] == 61 + 64 + 66 + 60


def test_test_text_with_rows_that_are_no_pairs_is_refused_with_all_of_them(tmp_path):
    path = stored(tmp_path / "x.tsv", "a\tb\nc\n\nd\te\tf\n")
    with pytest.raises(
        DataError,
        match=r"x\.tsv: rows that are not pairs: 2 \(line 2 has another .*, line 4 has another",
    ):
        text_of(data_config(test=path), "test").read()


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "cp1252", "koi8-r", "shift_jis", "gbk", "big5"],
)
def test_a_translation_memory_may_be_in_any_common_encoding(encoding, tmp_path):
    text = {
        "shift_jis": "日本",
        "gbk": "中文",
        "big5": "中文",
        "koi8-r": "дом",
        "euc_kr": "집",
    }.get(encoding, "house")
    body = (
        f'<tu><tuv xml:lang="en"><seg>{text}</seg></tuv><tuv '
        'xml:lang="de"><seg>Haus</seg></tuv></tu>'
    )
    content = f'<?xml version="1.0" encoding="{encoding}"?>\n<tmx><body>{body * 3000}</body></tmx>'
    pairs = read(stored(tmp_path / "x.tmx", content.encode(encoding)))
    assert pairs == [(text.encode(), b"Haus")] * 3000


@pytest.mark.parametrize(
    ("languages", "langs", "expected"),
    [
        ("en en-GB", "en en-GB", "0 1"),
        ("en-GB en", "en en-GB", "1 0"),
        ("en-US en-GB", "en en-GB", "0 1"),
        ("pt-BR pt", "pt pt-BR", "1 0"),
        ("pt-PT pt-br", "pt-BR pt", "1 0"),
        ("de-AT en_us", "en de", "1 0"),
        ("de en", "en-US de-AT", "1 0"),
        ("deu ENG-GB", "en de", "1 0"),
        ("zh-Hant-TW zh-Hant", "zh-Hant zh", None),
    ],
)
def test_a_language_and_its_variant_are_two_sides(languages, langs, expected, tmp_path):
    variants = "".join(
        f'<tuv xml:lang="{code}"><seg>{n}</seg></tuv>' for n, code in enumerate(languages.split())
    )
    path = stored(tmp_path / "x.tmx", f"<tmx><body><tu>{variants}</tu></body></tmx>")
    src_lang, tgt_lang = langs.split()
    config = data_config(train=path, src_lang=src_lang, tgt_lang=tgt_lang)
    if expected is None:
        with pytest.raises(
            DataError,
            match=r"no pairs of zh-Hant and zh \(its languages are zh-Hant, zh-Hant-TW\); choose",
        ):
            list(text_of(config, "train").pairs())
    else:
        assert read_pairs(text_of(config, "train")) == [
            tuple(side.encode() for side in expected.split())
        ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "pairs.xlsx",
            "a,b\n",
            r"data\.train=.*pairs\.xlsx: spreadsheets are not supported: save this one as comma-separated",
        ),
        ("pairs.sdlxliff", "<xliff/>", r"export XLIFF \(\.xliff\) or a translation memory"),
        (
            "x.tsv.zst",
            b"\x28\xb5\x2f\xfd",
            "this compression is not supported: decompress the file",
        ),
        ("pairs.docx", b"PK\3\4", "office documents are not supported: save the text"),
        (
            "x.tsv",
            gzip.compress(b"a\tb\n", mtime=0),
            r"x\.tsv: the file is compressed with gzip; name it \.gz",
        ),
        ("x.jsonl", b"PK\3\4", r"x\.jsonl: the file is compressed with zip; decompress it"),
    ],
)
def test_files_of_other_kinds_are_named_as_what_they_are(name, content, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read(stored(tmp_path / name, content))


def test_files_of_another_compression_are_named_by_their_prefix(tmp_path):
    for lang in ("en", "de"):
        (tmp_path / f"x.{lang}.lz4").write_bytes(b"")
    with pytest.raises(DataError, match=r"no file .*x\.en; decompress .*x\.en\.lz4$"):
        read(str(tmp_path / "x"))


def test_codes_between_letters_are_blanks_and_the_first_variant_with_text_counts(tmp_path):
    chinese = (
        '<tu><tuv xml:lang="en"><seg>点<ph/><ph/>这</seg></tuv><tuv '
        'xml:lang="de"><seg>a</seg></tuv></tu>'
    )
    text = """<tu><tuv xml:lang="en"><seg>Click<ph x="1"/><it pos="begin" x="2">b</it>here, <bpt i="1"/>now<ept i="1"/>
      .</seg></tuv><tuv xml:lang="de"><seg/></tuv><tuv xml:lang="de-AT"><seg>Hier</seg></tuv></tu>"""
    path = stored(
        tmp_path / "x.tmx",
        f'<tmx xmlns="http://www.lisa.org/tmx14"><body>{text}{chinese}</body></tmx>',
    )
    assert read(path) == [(b"Click here, now .", b"Hier"), ("点这".encode(), b"a")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.csv", 'en,de\r\n"Yes, ""sir""","Ja, ""Herr"""\r\n"two\nlines",zwei\r\n'),
        ("x.csv", 'de;en\n"Ja, ""Herr""";"Yes, ""sir"""\nzwei;"two\nlines"\n'),
        ("x.csv", 'en, de\n"Yes, ""sir""", "Ja, ""Herr"""\n"two\nlines", zwei\n'),
        ("x.csv", '"de"\t"en"\n"Ja, ""Herr"""\t"Yes, ""sir"""\n"zwei"\t"two\nlines"\n'),
        (
            "x.tsv",
            '"English (US)"\t"German (DE)"\n"Yes, ""sir"""\t"Ja, ""Herr"""\n"two\nlines"\t"zwei"\n',
        ),
    ],
)
def test_what_a_spreadsheet_writes_is_read_by_its_rules(name, content, tmp_path):
    assert read(stored(tmp_path / name, content)) == [
        (b'Yes, "sir"', b'Ja, "Herr"'),
        (b"two lines", b"zwei"),
    ]


@pytest.mark.parametrize("row", ['"so, he said,so', '"yes" he said,ja'])
def test_a_quotation_mark_that_would_swallow_text_is_refused_with_its_line(row, tmp_path):
    with pytest.raises(DataError, match=r"x\.csv: line 3 is not a row of comma-separated text"):
        read(stored(tmp_path / "x.csv", f"en,de\na,b\n{row}\nc,d\n"))


CATALOGUE = r"""msgid ""
msgstr "Language: %s\n"

msgid "the "
"house\n"
msgstr "das \"Haus\"\n"

#, c-format, fuzzy
msgid "two"
msgstr "zwei?"

msgid "open"
msgstr ""

msgid "%%d cat"
msgid_plural "%%d cats"
msgstr[0] "%%d Katze"
msgstr[1] "%%d Katzen"

#, fuzzy
#~ msgid "old"
#~ msgstr "alt"

msgid "new"
msgstr "neu"
"""
XLIFF = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en-US"
target-language="%s"><body><trans-unit id="1"><source>Click<x id="1"/>here, <g id="2">bold</g>er &amp; x</source>
<target>Hier<x id="1"/>klicken</target></trans-unit><trans-unit id="2"><source>open</source></trans-unit>
<trans-unit id="3"><source>two</source><target state="needs-translation">two</target>
<alt-trans><source>no</source><target>nein</target></alt-trans></trans-unit>
<group translate="no"><trans-unit id="4"><source>Foo</source><target>Foo</target></trans-unit></group>
</body></file></xliff>"""


def test_catalogues_and_xliff_give_finished_translations_of_what_is_to_be_translated_in_both_directions(
    tmp_path,
):
    po = stored(tmp_path / "x.po.gz", CATALOGUE % "de_DE")
    xliff = stored(tmp_path / "x.xlf", XLIFF % "de")
    expected = [
        ("the house", 'das "Haus"'),
        ("%d cat", "%d Katze"),
        ("%d cats", "%d Katzen"),
        ("new", "neu"),
    ]
    assert read(po) == [(src.encode(), tgt.encode()) for src, tgt in expected]
    assert read(stored(tmp_path / "y.po", CATALOGUE % "de@formal")) == read(po)
    assert read(xliff) == [(b"Click here, bolder & x", b"Hier klicken")]
    for path in (po, xliff):
        back = data_config(train=path, src_lang="de", tgt_lang="en")
        assert read_pairs(text_of(back, "train")) == [pair[::-1] for pair in read(path)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.po", CATALOGUE % "fr", "its language is fr, neither en nor de"),
        ("x.po", 'msgid "a"\nmsgstr "', "line 2 is not valid in a PO catalogue"),
        ("x.xliff", XLIFF % "fr", "line 2: it is en-US to fr, not en to de"),
        (
            "x.xliff",
            '<xliff><file source-language="en"/></xliff>',
            "no pairs of en and de",
        ),
    ],
)
def test_catalogues_of_other_languages_or_without_translations_are_refused(
    name, content, message, tmp_path
):
    with pytest.raises(DataError, match=message):
        read(stored(tmp_path / name, content))


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_files_compressed_in_any_common_way_are_read(ending, tmp_path):
    compress = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[ending]
    for lang, text in (("en", b"a\nb\n"), ("de", b"c\nd\n")):
        (tmp_path / f"x.{lang}.{ending}").write_bytes(compress(text))
    assert read(str(tmp_path / "x")) == [(b"a", b"c"), (b"b", b"d")]


def test_utf_16_without_a_mark_is_named_as_that_although_its_lines_are_cut_elsewhere(tmp_path):
    (tmp_path / "x.en").write_bytes("a Ċ b\nc d\n".encode("utf-16-le"))
    (tmp_path / "x.de").write_bytes(b"a\nb\n")
    with pytest.raises(DataError, match=r"x\.en: the file is UTF-16"):
        read(str(tmp_path / "x"))


def test_a_folder_a_name_in_other_case_and_a_pipe_are_named_as_such(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        read(str(tmp_path))
    write_lines(tmp_path / "Train", ["a"], ["b"])
    with pytest.raises(DataError, match=r"no file .*train\.en, but .*Train\.en"):
        read(str(tmp_path / "train"))
    os.mkfifo(tmp_path / "x.tsv")
    with pytest.raises(DataError, match=r"x\.tsv: is a pipe"):
        read(str(tmp_path / "x.tsv"))
    with pytest.raises(DataError, match=r"x\.tsv: is a named pipe"):
        read_lines(tmp_path / "x.tsv")


@pytest.mark.parametrize("first", ['{"en": 5, "de": "x"}', '{"en": "only"}', "{}", "[1]", "false"])
def test_a_first_line_of_json_that_is_no_pair_is_dropped_like_any_other(tmp_path, first):
    path = tmp_path / "pairs.jsonl"
    path.write_text(f'{first}\n{{"en": "a", "de": "b"}}\n')
    assert [pair.flaw for pair in read_json_lines(path, "en", "de")] == ["not_json", ""]
    path.write_text(f"{first}\n")
    with pytest.raises(DataError, match="line 1 is not a JSON object with two texts"):
        list(read_json_lines(path, "en", "de"))
