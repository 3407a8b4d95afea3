"""Scores against published ones, against BLEU by its definition, and against cases worked out by
hand.
"""

import csv
import gzip
import importlib
import math
import unicodedata
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import sacrebleu
from applications import CORPORA, slow_but

from aiayn.config.tasks import METRIC_KINDS
from aiayn.errors import ConfigError, DataError
from aiayn.evaluation.scoring import (
    compound_split,
    moses_tokenized,
    output,
    score,
    tokens_by_script,
)
from aiayn.evaluation.significance import compare_systems
from aiayn.evaluation.translation_task import TranslationTask, short_outputs

WMT21, MULTI30K = CORPORA / "bleu-check" / "wmt21-ende", CORPORA / "multi30k"
SOCKEYE = CORPORA / "bleu-check" / "sockeye2017-ende"
# Of the Perl scripts: multi-bleu.perl after normalize-punctuation.perl and tokenizer.perl, and
# get_ende_bleu.sh.
PERL_2017 = {
    "cnn.sockeye": (24.68, 24.75),
    "rnn.marian-groundhog": (23.62, 23.65),
    "rnn.marian": (26.05, 26.11),
    "rnn.neuralmonkey-groundhog": (13.50, 13.96),
    "rnn.opennmt-lua": (22.82, 22.86),
    "rnn.opennmt-py-groundhog": (18.74, 18.75),
    "transformer.sockeye": (27.66, 27.72),
    "transformer.tensor2tensor": (26.51, 26.51),
}
# Against reference A; outputs with typographic quotes, so that the bare script scores less than
# straightened quotes do.
PERL_2021 = {"UEdin": (30.57, 30.73), "Online-A": (30.88, 30.30), "happypoet": (29.40, 28.75)}
SYSTEMS = sorted(path.name.split(".")[1] for path in WMT21.glob("hyp.*.de.gz"))
TWO_AT_ONCE = slow_but(SYSTEMS[:2], SYSTEMS)

REFERENCES = [
    "Der alte Mann sieht das Haus.",
    "Die Katze schläft heute auf dem Sofa, sagt er.",
    "Am Montag fahren wir mit dem Zug nach Berlin-Mitte.",
]
HYPOTHESES = [
    "Der alte mann sieht das Haus.",
    "Die Katze schläft auf dem Sofa, sagt sie.",
    "Am Montag fahren wir mit dem Bus nach Berlin-Mitte.",
]


def read(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


def bleu_by_definition(hypotheses: list[str], references: list[str]) -> float:
    """Papineni et al. 2002, for one reference, of texts whose tokens stand between spaces."""
    hits, totals = [0] * 4, [0] * 4
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(4):
            found, wanted = (
                Counter(zip(*(text.split()[i:] for i in range(n + 1)), strict=False))
                for text in (hypothesis, reference)
            )
            hits[n] += (found & wanted).total()
            totals[n] += found.total()
    lengths = [sum(len(text.split()) for text in side) for side in (hypotheses, references)]
    brevity = min(1.0, math.exp(1 - lengths[1] / lengths[0]))
    return (
        100
        * brevity
        * math.prod(hit / total for hit, total in zip(hits, totals, strict=True)) ** 0.25
    )


@pytest.mark.skipif(not SYSTEMS, reason="no bleu-check/wmt21-ende in AIAYN_CORPORA")
@pytest.mark.parametrize("system", TWO_AT_ONCE)
def test_published_wmt21_scores_come_out_to_four_decimals(system):
    with (WMT21 / "scores.tsv").open() as file:
        published = {row["system"]: row for row in csv.DictReader(file, delimiter="\t")}[system]
    hypotheses = read(WMT21 / f"hyp.{system}.de.gz")
    references = {name: read(WMT21 / f"ref.{name}.de.gz") for name in "ACD"}
    for name, lines in references.items():
        bleu = score(hypotheses, lines, "de", kinds=["sacrebleu"])
        assert bleu.metrics["sacrebleu"] == pytest.approx(
            float(published[f"bleu_ref_{name}"]), abs=5e-5
        )
        assert bleu.lines == 1002
    bleu = score(hypotheses, list(references.values()), "de", kinds=["sacrebleu"])
    assert bleu.metrics["sacrebleu"] == pytest.approx(float(published["bleu_refs_ACD"]), abs=5e-5)
    assert bleu.signature.startswith("nrefs:3|case:mixed|eff:no|tok:13a|smooth:exp")


@pytest.mark.skipif(not SYSTEMS, reason="no bleu-check/wmt21-ende in AIAYN_CORPORA")
def test_published_wmt21_chrf_comes_out_to_four_decimals():
    with (WMT21 / "scores.tsv").open() as file:
        published = next(
            row for row in csv.DictReader(file, delimiter="\t") if row["system"] == "UEdin"
        )
    chrf = score(read(WMT21 / "hyp.UEdin.de.gz"), read(WMT21 / "ref.A.de.gz"), "de", kinds=["chrf"])
    assert chrf.metrics["chrf"] == pytest.approx(float(published["chrf_ref_A"]), abs=5e-5)


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="no multi30k in AIAYN_CORPORA")
def test_the_multi30k_reference_has_the_published_number_of_lower_cased_tokens():
    references = read(MULTI30K / "test_2016_flickr.de.gz")
    scores = score(references, references, "de", kinds=["bleu_tokenized_lc"])
    assert scores.details["bleu_tokenized_lc"]["reference_tokens"] == 12_103
    assert scores.metrics["bleu_tokenized_lc"] == pytest.approx(100)


def _moses_scores(hypotheses: list[str], references: list[str]) -> tuple[float, float, float]:
    """bleu_tokenized, bleu_compound_split and the bare script's."""
    scores = score(hypotheses, references, "de", kinds=["bleu_tokenized", "bleu_compound_split"])
    bare = scores.details["bleu_compound_split"]["bare_script"]
    return scores.metrics["bleu_tokenized"], scores.metrics["bleu_compound_split"], bare


@pytest.mark.skipif(not SOCKEYE.is_dir(), reason="no bleu-check/sockeye2017-ende in AIAYN_CORPORA")
@pytest.mark.parametrize("system", slow_but([*PERL_2017][:2], PERL_2017))
def test_moses_kinds_are_those_of_the_perl_scripts_to_the_second_decimal(system):
    tokenized, split, bare = _moses_scores(
        read(SOCKEYE / f"hyp.{system}.de.gz"), read(SOCKEYE / "ref.de.gz")
    )
    assert tokenized == pytest.approx(PERL_2017[system][0], abs=0.0051)
    assert (split, bare) == pytest.approx((PERL_2017[system][1],) * 2, abs=0.0051)


@pytest.mark.skipif(not SYSTEMS, reason="no bleu-check/wmt21-ende in AIAYN_CORPORA")
@pytest.mark.parametrize("system", PERL_2021)
def test_typographic_quotes_cost_what_they_cost_the_bare_script_and_nothing_once_straightened(
    system,
):
    tokenized, split, bare = _moses_scores(
        read(WMT21 / f"hyp.{system}.de.gz"), read(WMT21 / "ref.A.de.gz")
    )
    assert (tokenized, bare) == pytest.approx(PERL_2021[system], abs=0.0051)
    assert 0.09 < split - bare < 0.98


def test_a_full_stop_at_the_end_is_a_token_after_numbers_and_abbreviations_and_swaps_with_a_quote_as_in_moses():
    assert moses_tokenized("am 1. Mai auf Platz 2.", "de") == "am 1. Mai auf Platz 2 ."
    assert moses_tokenized('Er sagt: "Nein."', "de") == 'Er sagt : " Nein " .'
    assert moses_tokenized("Warten...", "de") == "Warten ..."
    assert compound_split("Note 1.") == "Note 1 ."


def test_tokenized_kinds_are_bleu_by_definition_of_texts_prepared_by_hand():
    cased = {
        "hypotheses": [
            "Der alte mann sieht das Haus .",
            "Die Katze schläft auf dem Sofa , sagt sie .",
            "Am Montag fahren wir mit dem Bus nach Berlin-Mitte .",
        ],
        "references": [
            "Der alte Mann sieht das Haus .",
            "Die Katze schläft heute auf dem Sofa , sagt er .",
            "Am Montag fahren wir mit dem Zug nach Berlin-Mitte .",
        ],
    }
    lowered = {side: [line.lower() for line in lines] for side, lines in cased.items()}
    split = {
        side: [line.replace("Berlin-Mitte", "Berlin ##AT##-##AT## Mitte") for line in lines]
        for side, lines in cased.items()
    }
    scores = score(HYPOTHESES, REFERENCES, "de")
    assert scores.metrics["bleu_tokenized"] == pytest.approx(bleu_by_definition(**cased))
    assert scores.metrics["bleu_tokenized_lc"] == pytest.approx(bleu_by_definition(**lowered))
    assert scores.metrics["bleu_compound_split"] == pytest.approx(bleu_by_definition(**split))
    assert len({round(scores.metrics[kind], 6) for kind in METRIC_KINDS[1:]}) == 5
    assert scores.details["bleu_compound_split"]["reference_tokens"] == 7 + 11 + 12
    assert scores.details["bleu_tokenized"]["hypothesis_tokens"] == 7 + 10 + 10


def test_sacrebleu_takes_the_text_as_it_is_and_leaves_typographic_quotes_to_their_words():
    hypotheses = ["Er sagt: „Das ist gut“ und geht nach Hause."]
    references = ["Er sagt: „Das ist gut“, und geht nach Hause."]
    tokens = [
        line.replace(":", " :").replace("“,", "“ ,").replace(".", " .")
        for line in hypotheses + references
    ]

    found = score(hypotheses, references, "de", kinds=["sacrebleu"]).metrics["sacrebleu"]

    assert found == pytest.approx(bleu_by_definition(tokens[:1], tokens[1:]))


def test_every_score_names_its_kind_in_its_signature():
    scores = score(HYPOTHESES, REFERENCES, "de")
    assert list(scores.metrics) == list(scores.signatures) == list(METRIC_KINDS)
    assert len(set(scores.signatures.values())) == len(METRIC_KINDS)
    assert scores.signature == scores.signatures["sacrebleu"]
    assert "case:mixed|eff:no|tok:13a|smooth:exp" in scores.signature
    assert (
        "case:mixed|eff:no|tok:moses-de|norm:moses|perl:f6d7ade|sacremoses:"
        in scores.signatures["bleu_tokenized"]
    )
    assert (
        "case:lc|eff:no|tok:moses-de|norm:moses|sacremoses:"
        in scores.signatures["bleu_tokenized_lc"]
    )
    assert "tok:moses-de-compound-split|" in scores.signatures["bleu_compound_split"]
    assert "smooth:none" in scores.signatures["bleu_tokenized"]
    assert asdict(scores)["lines"] == 3


UNSPACED = {
    "zh": ["今天天气很好,我们去公园散步。", "他在图书馆里看书。", "这本书非常有意思。"],
    "zh-TW": ["今天天氣很好,我們去公園散步。", "他在圖書館裡看書。", "這本書非常有意思。"],
    "zho_Hans": ["今天天气很好,我们去公园散步。", "他在图书馆里看书。", "这本书非常有意思。"],
    "th": ["วันนี้อากาศดีมาก", "เขาอ่านหนังสือในห้องสมุด", "หนังสือเล่มนี้น่าสนใจมาก"],
    "km": ["ថ្ងៃនេះអាកាសធាតុល្អ", "គាត់អានសៀវភៅ", "សៀវភៅនេះល្អណាស់"],
    "lo_LA": ["ມື້ນີ້ອາກາດດີ", "ລາວອ່ານປຶ້ມ", "ປຶ້ມຫົວນີ້ດີຫຼາຍ"],
    "my": ["ဒီနေ့ရာသီဥတုကောင်းတယ်", "သူစာဖတ်နေတယ်", "ဒီစာအုပ်ကောင်းတယ်"],
}


@pytest.mark.parametrize("lang", UNSPACED)
def test_languages_without_blanks_between_words_are_scored_by_smaller_tokens_that_the_signature_names(
    lang,
):
    tokens = "zh" if lang.startswith("zh") else "char"
    references = UNSPACED[lang]
    near = [references[0][:-3] + references[0][-1], *references[1:]]
    perfect, scores = score(references, references, lang), score(near, references, lang)
    assert perfect.metrics["sacrebleu"] == pytest.approx(100)
    assert (
        scores.metrics["sacrebleu"]
        == sacrebleu.corpus_bleu(near, [references], tokenize=tokens).score
    )
    assert 60 < scores.metrics["sacrebleu"] < 99
    assert f"|tok:{tokens}|" in scores.signature
    assert scores.metrics["bleu_tokenized"] is scores.metrics["bleu_tokenized_lc"] is None
    assert scores.metrics["chrf"] > 50
    ter = scores.metrics["ter"]
    assert ter is None if tokens == "char" else 0 < ter < 20
    assert (
        TranslationTask().val_scores(near, near, references, lang)["val/bleu"]
        == scores.metrics["sacrebleu"]
    )
    compared = compare_systems(near, references, references, lang, bootstrap=20, randomisation=20)
    assert compared["sacrebleu"]["baseline"]["score"] == pytest.approx(scores.metrics["sacrebleu"])
    assert [kind for kind in METRIC_KINDS if kind in compared] == [
        kind for kind, value in scores.metrics.items() if value is not None
    ]


@pytest.mark.parametrize(
    ("lang", "module"), [("ja", "tokenizer_ja_mecab"), ("ko_KR", "tokenizer_ko_mecab")]
)
def test_a_language_whose_tokenizer_is_not_installed_is_refused_with_the_remedy(
    lang, module, monkeypatch
):
    monkeypatch.setattr(importlib.import_module(f"sacrebleu.tokenizers.{module}"), "MeCab", None)
    remedy = rf"data.tgt_lang={lang[:2]}: .*pip install 'sacrebleu\[{lang[:2]}\]'"
    with pytest.raises(ConfigError, match=remedy):
        score(["a"], ["a"], lang)
    with pytest.raises(ConfigError, match=remedy):
        TranslationTask().check_text(["a"], ["b"], lang)  # before a search or a training
    TranslationTask().check_text([], [], lang)  # a training that scores nothing needs none


def test_japanese_is_scored_by_the_words_of_mecab():
    pytest.importorskip("MeCab")
    references = ["今日はとても天気がいいです。", "彼は図書館で本を読んでいます。"]
    near = [references[0].replace("とても", ""), references[1]]
    scores = score(near, references, "ja")
    assert (
        scores.metrics["sacrebleu"]
        == sacrebleu.corpus_bleu(near, [references], tokenize="ja-mecab").score
    )
    assert "tok:ja-mecab" in scores.signature


def test_moses_kinds_are_for_languages_that_moses_has_rules_for():
    counts = {
        "de": 4,
        "deu": 4,
        "ger_AT": 4,
        "fr": 3,
        "fra": 3,
        "cs": 3,
        "isl": 3,
        "tr": 1,
        "ar": 1,
        "mul": 1,
    }
    for lang, count in counts.items():
        scores = score(HYPOTHESES, REFERENCES, lang)
        if lang.startswith(("deu", "ger")):
            assert scores == score(HYPOTHESES, REFERENCES, "de")
        assert (
            sum(
                value is not None
                for kind, value in scores.metrics.items()
                if kind.startswith("bleu")
            )
            == count - 1
        )
        assert "|tok:13a|" in scores.signature


def test_every_bleu_has_its_ratio_of_lengths():
    details = score([line[:-12] for line in REFERENCES], REFERENCES, "de").details
    for kind in ("sacrebleu", "bleu_tokenized", "bleu_tokenized_lc", "bleu_compound_split"):
        found = details[kind]
        assert found["length_ratio"] == found["hypothesis_tokens"] / found["reference_tokens"] < 1
        assert found["brevity_penalty"] == pytest.approx(math.exp(1 - 1 / found["length_ratio"]))


def test_published_tokenized_scores_are_not_smoothed():
    scores = score(["Der Mann sieht ein Haus heute"], ["Der Mann sah gestern ein Haus"], "de")
    assert scores.metrics["sacrebleu"] > 1
    assert scores.metrics["bleu_tokenized"] == 0


def test_lower_case_comes_before_tokenisation():
    # Moses takes "Bart." for an abbreviation, "bart." for a word and a full stop.
    reference = ["Er rasiert seinen Bart. 1990 war das."]
    details = score(reference, reference, "de").details
    assert details["bleu_tokenized"]["reference_tokens"] == 8
    assert details["bleu_tokenized_lc"]["reference_tokens"] == 9


def test_hyphenated_words_are_split_and_free_hyphens_are_not():
    assert compound_split("Das Rich-Text-Format - so heißt es.") == (
        "Das Rich ##AT##-##AT## Text ##AT##-##AT## Format - so heißt es ."
    )


def test_several_references_can_only_help():
    one = score(HYPOTHESES, [REFERENCES], "de", kinds=["sacrebleu", "bleu_tokenized"])
    two = score(HYPOTHESES, [REFERENCES, HYPOTHESES], "de", kinds=["sacrebleu", "bleu_tokenized"])
    assert one == score(HYPOTHESES, REFERENCES, "de", kinds=["sacrebleu", "bleu_tokenized"])
    assert one.metrics["sacrebleu"] < 99
    assert two.metrics["sacrebleu"] == pytest.approx(100)
    assert two.metrics["bleu_tokenized"] == pytest.approx(100)
    assert two.signature.startswith("nrefs:2|")


@pytest.mark.parametrize(
    ("references", "message"),
    [
        (REFERENCES[:2], "3 hypotheses but 2 lines in reference 1 of 1"),
        ([*REFERENCES, ""], "3 hypotheses but 4 lines in reference 1 of 1"),
        ([REFERENCES, REFERENCES[1:]], "3 hypotheses but 2 lines in reference 2 of 2"),
        ([[line] for line in REFERENCES], "3 hypotheses but 1 lines in reference 1 of 3"),
        ([REFERENCES, REFERENCES[0]], "3 hypotheses but 29 lines in reference 2 of 2"),
        (REFERENCES[0], "3 hypotheses but 29 lines in reference 1 of 1"),
        ([], "3 hypotheses but 0 lines"),
    ],
)
def test_lines_that_do_not_belong_together_are_refused_with_both_counts(references, message):
    with pytest.raises(DataError, match=message):
        score(HYPOTHESES, references, "de")


def test_empty_translations_are_scored_and_count():
    scores = score(["", *HYPOTHESES[1:]], REFERENCES, "de")
    assert (
        0 < scores.metrics["sacrebleu"] < score(HYPOTHESES, REFERENCES, "de").metrics["sacrebleu"]
    )


def test_outputs_that_are_five_per_cent_too_short_are_said_to_be_with_what_helps():
    references = ["one two three four five six seven eight nine ten ."] * 20
    for kept, said in ((10, True), (11, False)):
        hypotheses = [" ".join(line.split()[:kept]) for line in references]
        scores = TranslationTask().val_scores(hypotheses, hypotheses, references, "en")
        ratio = scores["val/length_ratio"]
        assert ratio == pytest.approx(kept / 11)
        assert bool(short_outputs(ratio, scores["val/bleu"])) is said
    assert "search.length_penalty" in short_outputs(0.9, 30.0)


@pytest.mark.parametrize("bleu", [None, 0.0, 4.9])
def test_of_a_model_that_has_learned_little_lengths_are_not_said(bleu):
    assert short_outputs(0.0, bleu) == ""


def test_typographic_quotes_of_the_reference_match_straight_ones_when_compounds_are_split():
    typographic = "Er sagt: „Das ist ‚gut‘“, und geht zum E-Mail-Server »heute«…"
    straight = 'Er sagt: "Das ist \'gut\'", und geht zum E-Mail-Server "heute"...'
    assert compound_split(typographic) == compound_split(straight)


def test_moses_preparation_normalises_and_splits_punctuation_by_language():
    assert (
        moses_tokenized("„Ja,“ sagt er (z.B.) heute…", "de")
        == '" Ja " , sagt er ( z.B. ) heute ...'
    )
    # Moses does not count é as a letter
    assert moses_tokenized("L’été – «\u00a0bien\u00a0»", "fr") == 'L " été - " bien "'


def test_both_sides_are_scored_in_nfc_and_the_scores_say_how_many_lines_were_not():
    decomposed = [unicodedata.normalize("NFD", line) for line in REFERENCES]
    expected = score(HYPOTHESES, REFERENCES, "de")
    assert expected.recomposed is None
    for hypotheses, references, changed in (
        (HYPOTHESES, decomposed, {"hypotheses": 0, "references": 1}),
        (
            [unicodedata.normalize("NFD", line) for line in HYPOTHESES],
            REFERENCES,
            {"hypotheses": 1, "references": 0},
        ),
    ):
        scores = score(hypotheses, references, "de")
        assert replace(scores, recomposed=None) == expected
        assert scores.recomposed == changed
        assert (
            compare_systems(hypotheses, hypotheses, references, "de", ["chrf"], 9, 9)["chrf"][
                "delta"
            ]
            == 0
        )
    bleu = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES])
    assert (
        expected.metrics["sacrebleu"]
        == bleu.score
        != sacrebleu.corpus_bleu(HYPOTHESES, [decomposed]).score
    )


def test_every_kind_of_score_has_one_entry_and_an_unknown_kind_is_no_other():
    for kind in METRIC_KINDS:
        assert output(["das Haus"], ["das Haus"], "de", kind)[0].score >= 0, kind
    with pytest.raises(KeyError, match="bleu_moses"):
        output(["das Haus"], ["das Haus"], "de", "bleu_moses")


@pytest.mark.parametrize("code", ["zt", "zht", "nan", "hak", "kr", "xx"])
def test_a_code_that_is_not_known_is_scored_by_the_script_of_the_references(code):
    lines = ["他说他明天会来看我们的新房子。", "我们家的猫今天没有回来。"]
    scores = score(lines, lines, code, ["sacrebleu"])
    assert scores.metrics["sacrebleu"] == pytest.approx(100)
    assert "tok:zh" in scores.signature
    assert "tok:13a" in score(REFERENCES, REFERENCES, code, ["sacrebleu"]).signature


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("请运行 pip install transformers 然后重启 Jupyter notebook server 即可。", "zh"),
        ("ㄊㄚㄕㄨㄛㄊㄚㄇㄧㄥㄊㄧㄢㄏㄨㄟㄌㄞ", "zh"),  # Bopomofo
        ("ꦲꦏ꧀ꦱꦫꦗꦮꦲꦶꦏꦸꦲꦏ꧀ꦱꦫꦏꦁꦢꦶꦲꦁꦒꦺꦴ", "char"),  # Javanese
        ("ᨣᩤᩴᨾᩮᩬᩥᨦᨽᩣᩈᩣᨴᩱ᩠ᨿ", "char"),  # Tai Tham
        ("ᦅᧄᦺᦑᦟᦹᧉᦗᦱᦉᦱᦺᦑ", "char"),  # New Tai Lue
        ("ꆈꌠꁱꂷꉬꑍꋏꑠꌠꆏꉌ", "char"),  # Yi
        ("उसने कहा कि वह कल हमारा नया घर देखने आएगा।", "13a"),
        ("The 東京 office sends its 大阪 office a letter", "13a"),
    ],
)
def test_scripts_without_blanks_decide_also_where_the_text_has_other_words(line, tokens):
    scores = score([line], [line], "xx", ["sacrebleu"])
    assert scores.metrics["sacrebleu"] == pytest.approx(100)
    assert f"tok:{tokens}|" in scores.signature
    assert tokens_by_script("xx", scores.signature) == ("" if tokens == "13a" else tokens)


def test_a_tokenizer_that_only_the_script_asks_for_is_checked_before_the_search(monkeypatch):
    def without_mecab(tokenize):
        if tokenize in ("ja-mecab", "ko-mecab"):
            raise RuntimeError("MeCab is not installed")

    monkeypatch.setattr("aiayn.evaluation.scoring.BLEU", without_mecab)
    for line, lang in (("그는 내일 올 것이다", "ko"), ("ｶﾚﾊｱｼﾀｸﾙ", "ja")):
        with pytest.raises(ConfigError, match=rf"sacrebleu\[{lang}\]"):
            TranslationTask().check_text([line], [line], "kr")
    TranslationTask().check_text(["x"], ["Er kommt morgen."], "kr")
