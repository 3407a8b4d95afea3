"""Tests of significance: equal to sacreBLEU's own tools, 1 for ties, and right as often as they
claim.
"""

import gzip
import random
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from applications import CORPORA

from aiayn.config.tasks import METRIC_KINDS
from aiayn.errors import DataError
from aiayn.evaluation.scoring import Output, output
from aiayn.evaluation.significance import (
    compare_systems,
    paired_bootstrap,
    paired_randomisation,
)

WMT21 = CORPORA / "bleu-check" / "wmt21-ende"
WORDS = ["Haus", "Mann", "Katze", "Sofa", "Zug", "Tag"]
REFERENCES = [f"Heute sieht der {a} den {b} nicht mehr." for a, b in product(WORDS, WORDS)]
WORSE = [
    line.replace("nicht mehr", "niemals") if n % 2 else line for n, line in enumerate(REFERENCES)
]


def sacrebleu_says(
    folder: Path, test: str, systems: dict[str, list[str]], references: list[str]
) -> tuple[dict, str]:
    """{system: the numbers of BLEU, then those of chrF2} of sacreBLEU's command line, and what else
    it prints.
    """
    for name, lines in {**systems, "ref": references}.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        "ref",
        "-i",
        *systems,
        "-m",
        "bleu",
        "chrf",
        f"--paired-{test}",
    ]
    command += [f"--paired-{test}-n", "200", "-w", "4", "--format", "text"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    rows = [line.strip("│").split("│") for line in ended.stdout.split("\n") if line.startswith("│")]
    found: dict[str, list[list[str]]] = {}
    key = ""
    for name, *cells in rows[1:]:  # scores, then p-values under no name
        key = name.strip().removeprefix("Baseline: ") or key
        numbers = found.setdefault(key, [[], []])
        for kind, cell in zip(numbers, cells, strict=True):
            kind += re.findall(r"\d+\.\d+", cell)
    return found, ended.stdout


def check_against_sacrebleu(
    folder: Path, systems: dict[str, list[str]], references: list[str]
) -> None:
    base, *others = systems
    kinds = ["sacrebleu", "chrf"]
    compared = {
        name: compare_systems(
            systems[base], systems[name], references, "de", kinds, bootstrap=200, randomisation=200
        )
        for name in others
    }
    for test, key in (("bs", "p_bootstrap"), ("ar", "p_randomisation")):
        said, printed = sacrebleu_says(folder, test, systems, references)
        for name in others:
            for place, kind in enumerate(kinds):
                mine, theirs = compared[name][kind], [float(number) for number in said[name][place]]
                shown = [mine["system"]["score"], mine[key]]
                if test == "bs":
                    shown[1:1] = [mine["system"]["mean"], mine["system"]["ci"]]
                assert shown == pytest.approx(theirs, abs=2e-4), (name, kind, test)
                assert mine["signatures"][test] in printed


def test_both_tests_are_sacrebleus_own_for_several_systems_against_one_baseline(tmp_path):
    # Words dropped at random, so that no two resamples tie: ties count here, and not in sacreBLEU.
    generator = random.Random(4)
    references = [" ".join(generator.choices(WORDS, k=generator.randint(4, 15))) for _ in range(60)]

    def dropped(share: float) -> list[str]:
        return [
            " ".join(word for word in line.split() if generator.random() > share)
            for line in references
        ]

    systems = {"base": dropped(0.2), "like": dropped(0.22), "worse": dropped(0.4)}
    check_against_sacrebleu(tmp_path, systems, references)


@pytest.mark.skipif(not WMT21.is_dir(), reason="no bleu-check/wmt21-ende in AIAYN_CORPORA")
def test_both_tests_are_sacrebleus_own_on_published_systems(tmp_path):
    systems = {
        name: gzip.decompress((WMT21 / f"{kind}.de.gz").read_bytes())
        .decode()
        .removesuffix("\n")
        .split("\n")
        for name, kind in {
            "UEdin": "hyp.UEdin",
            "BUPT": "hyp.BUPT_rush",
            "VolcTrans": "hyp.VolcTrans-AT",
        }.items()
    }
    references = (
        gzip.decompress((WMT21 / "ref.A.de.gz").read_bytes())
        .decode()
        .removesuffix("\n")
        .split("\n")
    )
    check_against_sacrebleu(tmp_path, systems, references)


def test_every_kind_is_compared_and_a_clear_difference_is_told_from_none():
    found = {
        name: compare_systems(REFERENCES, system, REFERENCES, "de", bootstrap=99, randomisation=99)
        for name, system in (("worse", WORSE), ("same", REFERENCES))
    }
    assert list(found["worse"]) == list(METRIC_KINDS)
    assert all(
        result["p_bootstrap"] <= 0.02 and result["p_randomisation"] <= 0.02
        for result in found["worse"].values()
    )
    assert all(
        result["p_bootstrap"] == result["p_randomisation"] == 1 for result in found["same"].values()
    )
    assert found["worse"]["ter"]["delta"] > 0 > found["worse"]["chrf"]["delta"]
    assert found["worse"]["ter"]["signatures"]["ar"].startswith(
        "nrefs:1|ar:99|seed:12345|case:lc|tok:tercom"
    )
    assert "bleu_compound_split" not in compare_systems(WORSE, WORSE, REFERENCES, "fr", bootstrap=9)


def test_systems_whose_resamples_all_tie_do_not_differ():
    """Both have BLEU 0, from different text."""
    hypotheses = ["nichts davon stimmt hier", "auch das ist ganz falsch"]
    others = ["gar nichts ist hier wahr", "und dies ebenfalls nie im Leben"]
    references = ["Der Zug fährt heute um acht.", "Die Katze schläft auf dem Sofa."]
    found = compare_systems(hypotheses, others, references, "de", ["bleu_tokenized"], 50, 50)
    assert found["bleu_tokenized"]["delta"] == 0
    assert (found["bleu_tokenized"]["p_bootstrap"], found["bleu_tokenized"]["p_randomisation"]) == (
        1,
        1,
    )
    # One line differs, and swapping it changes the sign only: every trial ties with the
    # observation.
    one = [*REFERENCES[:1], *["x"] * 5]
    two = ["y", *["x"] * 5]
    both = [output(lines, REFERENCES[:6], "de", "chrf")[0] for lines in (one, two)]
    assert paired_randomisation(*both, 50) == 1


def test_systems_with_other_lines_are_refused():
    with pytest.raises(DataError, match="36 lines"):
        compare_systems(REFERENCES[:-1], REFERENCES, REFERENCES, "de")


def test_a_bootstraps_interval_of_a_mean_is_that_of_theory():
    generator = np.random.default_rng(3)
    lines = generator.normal(5, 2, (400, 1))
    one = Output(lines, lambda sums: float(sums[0]) / 400)
    _, found, _ = paired_bootstrap(one, one, 1000)
    assert found["mean"] == pytest.approx(float(lines.mean()), abs=0.02)
    assert found["ci"] == pytest.approx(1.96 * float(lines.std()) / 20, rel=0.1)
