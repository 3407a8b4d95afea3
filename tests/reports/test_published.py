"""The paper's figures as data agree with the files in conf/, and stand beside the right texts
only.
"""

import gzip
import hashlib

import pytest
from applications import CORPORA, composed

from aiayn.config.stored import flatten, to_dict
from aiayn.reports.paper_tables import counted_flops
from aiayn.reports.published import BIG, GERMAN, SUBSET, TABLE_2, known_test_set, paper_figures

NEWS = CORPORA / "wmt-news"


def test_the_lines_of_table_2_are_the_experiments_models():
    french = composed("model=big", "data=wmt14_en_fr", "model.dropout=0.1")
    options = flatten(to_dict(french))
    assert TABLE_2[3].is_of(options)
    assert not BIG.is_of(options | GERMAN)
    assert not TABLE_2[3].is_of(options | {"optim.label_smoothing": 0.2})
    assert [(row.name, row.printed["bleu"], row.printed["averaged"]) for row in TABLE_2] == [
        *(("Transformer (base)", 27.3, 5), ("Transformer (big)", 28.4, 20)),
        *(("Transformer (base)", 38.1, 5), ("Transformer (big)", 41.8, 20)),
    ]


def test_the_papers_flops_are_three_and_a_half_and_two_and_a_half_times_the_counted_ones():
    base, big = TABLE_2[:2]
    per_layer = 6 * 512**2 + 2 * 512 * 2048  # for a token of either side
    by_hand = 6 * (12 * per_layer + 512 * 37_000) * 25_000 * 100_000
    assert counted_flops(base) == pytest.approx(by_hand, rel=1e-3)
    assert base.printed["flops"] / counted_flops(base) == pytest.approx(3.5, abs=0.05)
    assert big.printed["flops"] / counted_flops(big) == pytest.approx(2.4, abs=0.05)


@pytest.mark.parametrize(
    ("lines", "name", "from_wmt14", "expected"),
    [
        (3003, "newstest2014-ende", False, "newstest2014"),
        (3003, "mine", False, None),
        (3003, "mine", True, "newstest2014"),
        (3000, "newstest2013", False, "newstest2013"),
        (3000, "newstest2014", False, None),
        (2737, "newstest2014", False, SUBSET),
        (2737, "mine", False, None),
        (3002, "newstest2014", True, None),
    ],
)
def test_a_test_set_is_known_by_its_lines_together_with_its_name_or_source(
    lines, name, from_wmt14, expected
):
    assert known_test_set("0" * 64, lines, name, from_wmt14) == expected


@pytest.mark.skipif(not NEWS.is_dir(), reason="no wmt-news in AIAYN_CORPORA")
@pytest.mark.parametrize(
    ("prefix", "tgt_lang", "expected"),
    [
        ("newstest2014-ende", "de", "newstest2014"),
        ("newstest2014-enfr", "fr", "newstest2014"),
        ("newstest2013", "de", "newstest2013"),
    ],
)
def test_the_real_test_sets_are_known_by_their_content_alone(prefix, tgt_lang, expected):
    lines = []
    for lang in ("en", tgt_lang):
        text = gzip.decompress((NEWS / f"{prefix}.{lang}.gz").read_bytes()).decode()
        lines += text.removesuffix("\n").split("\n")
    sha256 = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert known_test_set(sha256, len(lines) // 2, "x", False) == expected


def test_the_papers_figures_stand_beside_one_kind_of_one_text_in_one_direction():
    german = paper_figures("newstest2014", "en", "de", 1)
    assert (german["base"], german["big"], german["kind"]) == (27.3, 28.4, "bleu_compound_split")
    french = paper_figures("newstest2014", "en", "fr", 1)
    assert (french["base"], french["big"], french["kind"]) == (38.1, 41.8, "bleu_tokenized")
    assert paper_figures("newstest2014", "de", "en", 1) is None
    assert paper_figures("newstest2014", "en", "de", 2) is None
    assert paper_figures(SUBSET, "en", "de", 1) is None
    assert paper_figures(None, "en", "de", 1) is None
