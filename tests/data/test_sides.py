"""Text whose sides are not in the languages of the development text is refused, and pairs in others
are counted.
"""

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from texts import data_config, write_lines

from aiayn import phrasebook
from aiayn.config.data import DataConfig
from aiayn.data import languages
from aiayn.data.languages import wrong_languages
from aiayn.data.preparation import check_text, prepare_corpus
from aiayn.data.survey import Survey, remarks
from aiayn.errors import ConfigError, DataError

PARTS = {
    "en": (
        ["the man", "my sister", "a child", "the old teacher", "our neighbour"],
        ["sees", "buys", "looks for"],
    ),
    "de": (
        ["der Mann", "meine Schwester", "ein Kind", "der alte Lehrer", "unser Nachbar"],
        ["sieht", "kauft", "sucht"],
    ),
    "fr": (
        ["l'homme", "ma sœur", "un enfant", "le vieux maître", "notre voisin"],
        ["voit", "achète", "cherche"],
    ),
    "es": (
        ["el hombre", "mi hermana", "un niño", "el viejo maestro", "nuestro vecino"],
        ["ve", "compra", "busca"],
    ),
    "ja": (["男は", "姉は", "子供は", "先生は", "隣人は"], ["見る", "買う", "探す"]),
}
OBJECTS = {
    "en": [
        "the house in the village",
        "a red car",
        "the letter of the woman",
        "two books and a lamp",
    ],
    "de": [
        "das Haus in dem Dorf",
        "ein rotes Auto",
        "den Brief von der Frau",
        "zwei Bücher und eine Lampe",
    ],
    "fr": [
        "la maison dans le village",
        "une voiture rouge",
        "la lettre de la femme",
        "deux livres et une lampe",
    ],
    "es": [
        "la casa en el pueblo",
        "un coche rojo",
        "la carta de la mujer",
        "dos libros y una lámpara",
    ],
    "ja": ["村の家を", "赤い車を", "女の手紙を", "本と灯りを"],
}
TIMES = {
    "en": ["today", "on Monday", "after the meal"],
    "de": ["heute", "am Montag", "nach dem Essen"],
    "fr": ["aujourd'hui", "le lundi", "après le repas"],
    "es": ["hoy", "el lunes", "después de la comida"],
    "ja": ["今日", "月曜日に", "食事の後で"],
}


def sentences(lang: str, start: int = 0) -> list[str]:
    """180 sentences, one the translation of another's."""
    subjects, verbs = PARTS[lang]
    found = [
        " ".join(words) for words in itertools.product(subjects, verbs, OBJECTS[lang], TIMES[lang])
    ]
    return found[start::2]


def corpus(**options: object) -> DataConfig:
    return data_config(
        max_length=255,
        max_length_ratio=9,
        tokens_per_step=1000,
        max_tokens_per_device=1000,
        **options,
    )


def prefix(folder: Path, name: str, src: str, tgt: str, start: int = 0) -> str:
    return write_lines(folder / name, sentences(src, start), sentences(tgt, start))


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        (("de", "en"), "source and target are swapped compared with data.val="),
        (("de", "de"), "its source side is in the language of the target side of data.val="),
        (("en", "en"), "its target side is in the language of the source side"),
    ],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_sides_that_are_those_of_the_other_language_are_refused_before_anything_slow(
    tmp_path, split, languages, message
):
    val = prefix(tmp_path, "val", "en", "de", 1)
    texts = {"train": prefix(tmp_path, "train", "en", "de"), "val": val}
    config = corpus(
        **texts | {split: prefix(tmp_path, "wrong", *languages)}, folder=str(tmp_path / "data")
    )
    for refuse in (check_text, prepare_corpus):
        with pytest.raises(DataError, match=message) as refusal:
            refuse(config)
        assert str(refusal.value).startswith(f"data.{split}=")
        assert "set data.check_sides=false" in str(refusal.value)
    check_text(replace(config, check_sides=False))


@pytest.mark.parametrize("languages", [("fr", "es"), ("en", "fr"), ("ja", "de")])
def test_a_file_of_several_in_a_third_language_is_refused_by_its_name(tmp_path, languages):
    right, wrong = prefix(tmp_path, "right", "en", "de"), prefix(tmp_path, "wrong", *languages)
    # 180 sentences of 20 distinct parts: what is written about the same things in two languages.
    more = [
        [f"{a} {b}" for a in sentences(lang) for b in sentences(lang)[:2]] for lang in languages
    ]
    write_lines(Path(wrong), *more)
    val = write_lines(
        tmp_path / "val", *([f"{a}, {a}" for a in sentences(lang)] * 2 for lang in ("en", "de"))
    )
    config = corpus(train=[right, wrong], val=val, folder=str(tmp_path / "data"))
    with pytest.raises(
        DataError,
        match=r"wrong: its (source|target) side should be .*, but is in neither language of data\.val=",
    ):
        check_text(config)
    check_text(replace(config, train=[right, f"<2fr>{wrong}"]))  # with a tag it may have another


@pytest.mark.parametrize(
    ("head", "is_refused"),
    [
        ("Deutsch\tEnglisch\n", True),
        ("\n\nDeutsch\tEnglisch\n", True),
        ("text_de\ttext_en\n", False),
        ("\n \t \nde\ten\n", False),
        ("de: Satz\ten: Satz\n", False),
        ("sep=\t\nde\ten\n", False),
        ('\n \n"SEP = \t" \r\nde\ten\n', False),
    ],
)
def test_columns_in_the_other_order_are_read_by_their_names_or_refused(tmp_path, head, is_refused):
    rows = "".join(f"{de}\t{en}\n" for de, en in zip(sentences("de"), sentences("en"), strict=True))
    (tmp_path / "train.tsv").write_text(head + rows, "utf-8")
    config = corpus(train=f"{tmp_path}/train.tsv", val=prefix(tmp_path, "val", "en", "de", 1))
    config = replace(config, folder=str(tmp_path / "data"))
    if is_refused:
        with pytest.raises(DataError, match="are swapped"):
            check_text(config)
    else:
        report = prepare_corpus(config).report["train"]
        assert report["kept"] == 90
        assert report["dropped"].get("columns", 0) == 0


def test_text_about_other_things_is_read_and_so_are_a_few_lines_with_a_warning_of_a_table(
    tmp_path, caplog
):
    train = write_lines(
        tmp_path / "train", *zip(*itertools.islice(phrasebook.pairs("train"), 300), strict=True)
    )
    val = prefix(tmp_path, "val", "en", "de")
    check_text(corpus(train=train, val=val, folder=str(tmp_path / "data")))
    few = tmp_path / "few.tsv"
    few.write_text("Deutsch\tEnglisch\ndas Haus\tthe house\n", "utf-8")
    assert "too few pairs" not in caplog.text
    config = corpus(train=str(few), val=val, folder=str(tmp_path / "data"), vocab_size=280)
    check_text(config)
    prepare_corpus(config)  # looks at it again
    [said] = [line for line in caplog.messages if "too few pairs" in line]
    assert f"data.train={few}: too few pairs (2, and 90 of data.val=" in said
    assert "its first pair is 'Deutsch' and 'Englisch'" in said


RUSSIAN = ["Дом стоит в деревне.", "Моя сестра купила 2 книги.", "Linux свободен.", "Он спит."]
ENGLISH = [
    "The house is in the village.",
    "My sister bought 2 books.",
    "Linux is free.",
    "He sleeps.",
]


@pytest.mark.parametrize(("src", "tgt"), [("en", "de"), ("de-AT", "eng")])
@pytest.mark.parametrize("pairs", [8, 90])
def test_columns_that_are_swapped_in_all_files_alike_are_refused(tmp_path, src, tgt, pairs):
    options = {"src_lang": src, "tgt_lang": tgt, "folder": str(tmp_path / "data")}
    sides = [sentences(lang)[:pairs] for lang in ("en", "de")]
    for is_swapped in (True, False):
        texts = sides[::-1] if is_swapped == (src == "en") else sides
        rows = "".join(f"{a}\t{b}\n" for a, b in zip(*texts, strict=True))
        for name in ("train", "val", "test"):
            (tmp_path / f"{name}.tsv").write_text(f"A\tB\n{rows}", "utf-8")
        files = {name: f"{tmp_path}/{name}.tsv" for name in ("train", "val", "test")}
        config = corpus(**files, **options)
        if is_swapped:
            message = f"its source side is in {tgt} and its target side in {src}; correct the names"
            with pytest.raises(DataError, match=rf"^data\.val=.*: {message}"):
                check_text(config)
            check_text(replace(config, check_sides=False))
        else:
            check_text(config)


def test_a_few_pairs_in_two_scripts_are_refused_where_they_are_swapped(tmp_path):
    options = {"tgt_lang": "ru", "folder": str(tmp_path / "data")}
    for sides in ((ENGLISH, RUSSIAN), (RUSSIAN, ENGLISH), (ENGLISH, ENGLISH)):
        rows = "".join(f"{a}\t{b}\n" for a, b in zip(*sides, strict=True))
        (tmp_path / "all.tsv").write_text(rows, "utf-8")
        config = corpus(train=f"{tmp_path}/all.tsv", val=f"{tmp_path}/all.tsv", **options)
        if sides[0] is RUSSIAN:
            with pytest.raises(
                DataError, match="its source side is in ru and its target side in en"
            ):
                check_text(config)
        else:
            check_text(config)


@pytest.mark.parametrize("lines", ["0 1 2 3", "b c a c", "a man is running"])
def test_sides_that_are_in_no_language_or_the_same_are_not_taken_for_swapped(tmp_path, lines):
    sides = [[f"{lines} {n}" for n in range(40)], [f"{lines[::-1]} {n}" for n in range(40)]]
    text = write_lines(tmp_path / "text", *sides)
    check_text(corpus(train=text, val=text, folder=str(tmp_path / "data")))


@pytest.mark.parametrize("sides", ["fr-es", "es-fr"])
def test_swapped_sides_of_other_languages_are_refused_with_the_library(tmp_path, sides):
    pytest.importorskip("py3langid", reason="py3langid is not installed (extra: text)")
    languages = sides.split("-")
    rows = zip(*(sentences(lang)[:60] for lang in languages), strict=True)
    (tmp_path / "all.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), "utf-8")
    options = {"src_lang": "fr", "tgt_lang": "es", "folder": str(tmp_path / "data")}
    config = corpus(train=f"{tmp_path}/all.tsv", val=f"{tmp_path}/all.tsv", **options)
    if sides == "fr-es":
        check_text(config)
    else:
        with pytest.raises(DataError, match="its source side is in es and its target side in fr"):
            check_text(config)


def test_short_lines_that_follow_each_other_are_judged_as_one(tmp_path, identifier):
    sides = [[f"the {n}" for n in range(60)], [f"la {n}" for n in range(60)]]
    for is_swapped in (False, True):
        text = write_lines(tmp_path / "text", *sides[:: -1 if is_swapped else 1], "fr")
        config = corpus(train=text, val=text, tgt_lang="fr", folder=str(tmp_path / "data"))
        if is_swapped:
            with pytest.raises(DataError, match="its source side is in fr and its target side in"):
                check_text(config)
        else:
            check_text(config)


def test_a_preparation_says_that_it_does_not_check_languages_without_the_library(
    tmp_path, caplog, monkeypatch
):
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    languages._identifier.cache_clear()
    text = prefix(tmp_path, "train", "en", "de", 0)
    config = corpus(train=text, val=text, folder=str(tmp_path / "data"))
    assert prepare_corpus(config).report["train"]["survey"]["wrong_language"] is None
    assert "pairs in other languages are not looked for: pip install 'aiayn[text]'" in caplog.text


def test_the_report_counts_what_looks_wrong_once_and_names_the_option(tmp_path, caplog):
    lines = [(en, de) for en, de in zip(sentences("en"), sentences("de"), strict=True)]
    lines += [*lines[:20], ("Berlin", "BERLIN!"), ("Linux 6", "Linux 6"), ("12:30", "12.30")]
    train = write_lines(tmp_path / "train", *map(list, zip(*lines, strict=True)))
    config = corpus(
        train=train, val=prefix(tmp_path, "val", "en", "de", 1), folder=str(tmp_path / "data")
    )
    survey = prepare_corpus(config).report["train"]["survey"]
    expected = {"pairs": 113, "duplicates": 20, "equal_sides": 3, "without_letters": 1}
    assert {name: survey[name] for name in expected} == expected
    assert (
        f"{train}: duplicates: 20 of 113 sampled training pairs; data.drop_duplicates=exact"
        in caplog.text
    )
    assert (
        "equal sides: 3 of 113 sampled training pairs; data.drop_equal=true drops them"
        in caplog.text
    )
    caplog.clear()
    assert prepare_corpus(config).report["train"]["survey"] == survey
    assert "sampled training pairs" not in caplog.text
    assert (
        json.loads((prepare_corpus(config).folder / "report.json").read_text())["train"]["survey"]
        == survey
    )


@pytest.mark.parametrize(
    ("fault", "unsaid"),
    [("duplicates", 100), ("equal_sides", 10), ("without_letters", 10), ("wrong_language", 2)],
)
def test_a_fault_is_said_above_its_share_and_from_two_pairs(fault, unsaid):
    names = ("duplicates", "equal_sides", "without_letters", "wrong_language")

    def said(count: int, pairs: int) -> int:
        faults = dict.fromkeys(names, 0) | {fault: count}
        return len(remarks({"pairs": pairs, "languages": {}} | faults))

    assert [said(count, 1000) for count in (unsaid, unsaid + 1)] == [0, 1]
    assert [said(count, 5) for count in (1, 2)] == [0, 1]


def test_a_large_text_is_surveyed_by_a_sample_that_keeps_duplicates_together(monkeypatch):
    from aiayn.data import survey as module
    from aiayn.data.cleaning import CleanPair

    monkeypatch.setattr(module, "SAMPLE", 100)
    survey = Survey(("xx", "yy"))
    survey.add(
        CleanPair(None, f"word {number % 4000}", f"Wort {number % 4000}", False)
        for number in range(6000)
    )
    found = survey.as_dict()
    assert len(survey.pairs) <= 100 < found["pairs"] * 8
    assert found["duplicates"] / found["pairs"] == pytest.approx(1 / 3, abs=0.12)
    assert [line for line in remarks(found) if "duplicates" in line]


def test_pairs_in_a_third_language_are_counted_and_dropped_on_demand(tmp_path, caplog):
    pytest.importorskip("py3langid", reason="py3langid is not installed (extra: text)")
    right = list(zip(sentences("en"), sentences("de"), strict=True)) * 3
    wrong = list(zip(sentences("fr"), sentences("es"), strict=True))[:13]
    train = write_lines(tmp_path / "train", *map(list, zip(*right, *wrong, strict=True)))
    config = corpus(
        train=train, val=prefix(tmp_path, "val", "en", "de", 1), folder=str(tmp_path / "data")
    )
    survey = prepare_corpus(config).report["train"]["survey"]
    assert set(survey["languages"]) <= {"fr-es", "fr-?", "?-es"}
    assert survey["wrong_language"] == 13
    assert "): 13 of 283 sampled training pairs; " in caplog.text
    report = prepare_corpus(replace(config, drop_wrong_language=True)).report["train"]
    assert (report["kept"], report["dropped"]) == (270, {"wrong_language": 13})


@pytest.mark.parametrize(("wrong", "is_refused"), [(25, True), (12, False), (0, False)])
def test_each_small_file_that_is_mostly_in_a_third_language_is_refused(tmp_path, wrong, is_refused):
    pytest.importorskip("py3langid", reason="py3langid is not installed (extra: text)")
    right = list(zip(sentences("en"), sentences("de"), strict=True))
    rows = list(zip(sentences("fr"), sentences("es"), strict=True))[:wrong] + right[: 25 - wrong]
    names = [
        write_lines(tmp_path / f"{n}", *map(list, zip(*right[:25], strict=True))) for n in range(5)
    ]
    names.append(write_lines(tmp_path / "odd", *map(list, zip(*rows, strict=True))))
    val = prefix(tmp_path, "val", "en", "de", 1)
    config = corpus(train=names, val=val, folder=str(tmp_path / "data"))
    if is_refused:
        with pytest.raises(
            DataError,
            match=r"odd: 25 of 25 pairs are in languages other than en-de, mainly fr-es; ",
        ):
            check_text(config)
        config = replace(config, drop_wrong_language=True)
    check_text(config)


@pytest.fixture
def identifier(monkeypatch):
    """Stands for the library py3langid: it knows a language by a word, and is as sure as said."""
    words = {"the": "en", "das": "de", "la": "fr", "og": "da"}

    class LanguageIdentifier:
        labels = ("en", "de", "fr", "da")

        @classmethod
        def from_model_file(cls, path, norm_probs):
            assert (path, norm_probs) == ("model", True)
            return cls()

        def classify(self, line):
            name = next(name for word, name in words.items() if word in line.split())
            return name, 0.89 if "perhaps" in line else 0.91

        def rank(self, line):
            name, sure = self.classify(line)
            return [
                (name, sure),
                *((other, (1 - sure) / 2) for other in self.labels if other != name),
            ]

    module = ModuleType("py3langid.langid")
    module.MODEL_FILE, module.LanguageIdentifier = "model", LanguageIdentifier
    monkeypatch.setitem(sys.modules, "py3langid", ModuleType("py3langid"))
    monkeypatch.setitem(sys.modules, "py3langid.langid", module)
    languages._identifier.cache_clear()
    yield
    languages._identifier.cache_clear()


def test_a_pair_is_in_other_languages_only_where_the_identifier_is_sure_and_the_side_is_long(
    identifier,
):
    wrong = wrong_languages(("en", "no-NB"))
    english, danish, french = (f"{word} abcdefghijklmnopqr" for word in ("the", "og", "la"))
    assert wrong(english, danish) == ""  # no library tells Danish from Norwegian
    assert wrong(english, french) == "en-fr"
    assert wrong(french, danish) == "fr-da"
    assert wrong(f"{french} perhaps", french) == "?-fr"
    assert wrong(english, f"{french} perhaps") == ""
    assert (wrong(english, "la abcdef"), wrong(english, "la abcde!")) == ("en-fr", "")
    assert wrong_languages(("en", "xx"))(english, french) == ""  # not one of its languages


def test_pairs_in_a_third_language_are_counted_and_dropped_on_demand_by_any_identifier(
    tmp_path, caplog, identifier
):
    right = [(f"the small house number {n}", f"das kleine Haus mit Nummer {n}") for n in range(80)]
    wrong = [
        (f"la petite maison bleue ou verte {n}", f"das kleine Haus mit Nummer {n}")
        for n in range(3)
    ]
    train, val = (
        write_lines(tmp_path / name, *map(list, zip(*pairs, strict=True)))
        for name, pairs in (("train", right + wrong), ("val", right[:20]))
    )
    config = corpus(train=train, val=val, folder=str(tmp_path / "data"), check_sides=False)
    survey = prepare_corpus(config).report["train"]["survey"]
    assert (survey["wrong_language"], survey["languages"]) == (3, {"fr-de": 3})
    assert (
        "wrong language (fr-de): 3 of 83 sampled training pairs; data.drop_wrong_language=true"
        in caplog.text
    )
    report = prepare_corpus(replace(config, drop_wrong_language=True)).report["train"]
    assert (report["kept"], report["dropped"]) == (80, {"wrong_language": 3})
    assert report["survey"]["wrong_language"] == 0


def test_languages_that_the_library_does_not_know_are_not_judged():
    pytest.importorskip("py3langid", reason="py3langid is not installed (extra: text)")
    french = "La maison de ma sœur est dans le vieux village."
    assert wrong_languages(("en", "xx"))(french, french) == "fr-?"
    assert wrong_languages(("qq", "xx"))(french, french) == ""
    assert wrong_languages(("fr-CA", "fra"))(french, french) == ""


def test_the_option_that_needs_the_library_says_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "py3langid.langid", None)
    from aiayn.data import languages

    languages._identifier.cache_clear()
    message = r"drop_wrong_language=true: py3langid is not installed: pip install 'aiayn\[text\]'"
    with pytest.raises(ConfigError, match=message):
        wrong_languages(("en", "de"))


def test_short_lines_in_a_third_language_are_found_and_those_in_the_right_ones_are_not():
    pytest.importorskip("py3langid", reason="py3langid is not installed (extra: text)")
    french = [
        "Il pleut encore.",
        "Ferme la porte !",
        "Je suis fatigué.",
        "Où est la gare ?",
        "Elle chante bien.",
        "Nous avons faim.",
        "C'est à moi.",
        "Tu as raison.",
    ]
    german = [
        "Es regnet noch.",
        "Mach die Tür zu!",
        "Ich bin müde.",
        "Wo ist der Bahnhof?",
        "Sie singt gut.",
        "Wir haben Hunger.",
        "Das ist meins.",
        "Du hast recht.",
    ]
    english = [
        "It still rains.",
        "Close the door!",
        "I am tired.",
        "Where is the station?",
        "She sings well.",
        "We are hungry.",
        "That is mine.",
        "Tom Jackson is right.",
    ]
    judge = wrong_languages(("en", "de"))
    assert [judge(*pair) for pair in zip(english, german, strict=True)] == [""] * 8
    found = [judge(*pair) for pair in zip(english, french, strict=True)]
    assert found.count("?-fr") >= 5
    assert found.count("") <= 1
