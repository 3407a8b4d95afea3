"""Tests of significance: equal to sacreBLEU's own tools, 1 for ties, and right as often as they claim."""

import csv
import gzip
import io
import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from applications import CORPORA, composed, run_application

from aiayn.errors import DataError
from aiayn.evaluation.scoring import score
from aiayn.evaluation.significance import (
    Output,
    compare_systems,
    output,
    over_seeds,
    paired_bootstrap,
    paired_randomisation,
)
from aiayn.runs.run_folder import METRIC_KINDS, RunFolder

WMT21 = CORPORA / "bleu-check" / "wmt21-ende"
WORDS = ["Haus", "Mann", "Katze", "Sofa", "Zug", "Tag"]
REFERENCES = [f"Heute sieht der {a} den {b} nicht mehr." for a, b in product(WORDS, WORDS)]
WORSE = [line.replace("nicht mehr", "niemals") if n % 2 else line for n, line in enumerate(REFERENCES)]


def sacrebleu_says(folder: Path, test: str, systems: dict[str, list[str]], references: list[str]) -> tuple[dict, str]:
    """{system: the numbers of BLEU, then those of chrF2} of sacreBLEU's command line, and what else it prints."""
    for name, lines in {**systems, "ref": references}.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", *systems, "-m", "bleu", "chrf", f"--paired-{test}"]
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


def check_against_sacrebleu(folder: Path, systems: dict[str, list[str]], references: list[str]) -> None:
    base, *others = systems
    kinds = ["sacrebleu", "chrf"]
    named = {name: systems[name] for name in others}
    compared = compare_systems(systems[base], named, references, "de", kinds, bootstrap=200, randomisation=200)
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
        return [" ".join(word for word in line.split() if generator.random() > share) for line in references]

    systems = {"base": dropped(0.2), "like": dropped(0.22), "worse": dropped(0.4)}
    check_against_sacrebleu(tmp_path, systems, references)


@pytest.mark.skipif(not WMT21.is_dir(), reason="no bleu-check/wmt21-ende in AIAYN_CORPORA")
def test_both_tests_are_sacrebleus_own_on_published_systems(tmp_path):
    systems = {
        name: gzip.decompress((WMT21 / f"{kind}.de.gz").read_bytes()).decode().removesuffix("\n").split("\n")
        for name, kind in {"UEdin": "hyp.UEdin", "BUPT": "hyp.BUPT_rush", "VolcTrans": "hyp.VolcTrans-AT"}.items()
    }
    references = gzip.decompress((WMT21 / "ref.A.de.gz").read_bytes()).decode().removesuffix("\n").split("\n")
    check_against_sacrebleu(tmp_path, systems, references)


def test_every_kind_is_compared_and_a_clear_difference_is_told_from_none():
    found = compare_systems(
        REFERENCES, {"worse": WORSE, "same": REFERENCES}, REFERENCES, "de", bootstrap=99, randomisation=99
    )
    assert list(found["worse"]) == list(METRIC_KINDS)
    assert all(
        result["p_bootstrap"] <= 0.02 and result["p_randomisation"] <= 0.02 for result in found["worse"].values()
    )
    assert all(result["p_bootstrap"] == result["p_randomisation"] == 1 for result in found["same"].values())
    assert found["worse"]["ter"]["delta"] > 0 > found["worse"]["chrf"]["delta"]
    assert found["worse"]["ter"]["signatures"]["ar"].startswith("nrefs:1|ar:99|seed:12345|case:lc|tok:tercom")
    assert "bleu_compound_split" not in compare_systems(WORSE, {"x": WORSE}, REFERENCES, "fr", bootstrap=9)["x"]


def test_systems_whose_resamples_all_tie_do_not_differ():
    """Both have BLEU 0, from different text."""
    hypotheses = ["nichts davon stimmt hier", "auch das ist ganz falsch"]
    others = ["gar nichts ist hier wahr", "und dies ebenfalls nie im Leben"]
    references = ["Der Zug fährt heute um acht.", "Die Katze schläft auf dem Sofa."]
    found = compare_systems(hypotheses, {"b": others}, references, "de", ["bleu_tokenized"], 50, 50)["b"]
    assert found["bleu_tokenized"]["delta"] == 0
    assert (found["bleu_tokenized"]["p_bootstrap"], found["bleu_tokenized"]["p_randomisation"]) == (1, 1)
    # One line differs, and swapping it changes the sign only: every trial ties with the observation.
    one = [*REFERENCES[:1], *["x"] * 5]
    two = ["y", *["x"] * 5]
    both = [output(lines, REFERENCES[:6], "de", "chrf")[0] for lines in (one, two)]
    assert paired_randomisation(*both, 50) == 1


def test_systems_with_other_lines_are_refused():
    with pytest.raises(DataError, match="36 lines"):
        compare_systems(REFERENCES[:-1], {"b": REFERENCES}, REFERENCES, "de")


# Over seeds: a score that is the mean over lines, so that its truth is known.


def seeds_of(
    generator: np.random.Generator, text: np.ndarray, levels: np.ndarray, mean: float, first: int = 0
) -> dict[int, Output]:
    """Outputs by seed whose lines are the text's difficulty plus the seed's level plus noise."""
    return {
        seed: Output(
            (text + mean + level + generator.normal(0, 0.3, len(text)))[:, None], lambda sums: sums[0] / len(text)
        )
        for seed, level in enumerate(levels, first)
    }


@pytest.mark.parametrize(("n", "trials"), [(2, 300), (3, 300), (5, 200)])
def test_equal_systems_of_few_seeds_are_called_different_in_at_most_5_per_cent_of_cases(n, trials):
    generator = np.random.default_rng(n)
    alarms = 0
    for _ in range(trials):
        text = generator.normal(0, 1, 40)
        sides = [seeds_of(generator, text, generator.normal(0, 0.5, n), 0, 9 * side) for side in range(2)]
        alarms += over_seeds(*sides, n_samples=120).p < 0.05
    assert alarms / trials < 0.05 + 3 * (0.05 * 0.95 / trials) ** 0.5


def test_seeds_widen_the_interval_beyond_that_of_the_text_and_a_clear_difference_is_found():
    generator = np.random.default_rng(1)
    text = generator.normal(0, 1, 50)
    spread, alike = (
        [seeds_of(generator, text, generator.normal(0, sd, 4), mean, 9 * mean) for mean in (0, 1)] for sd in (0.8, 0.01)
    )
    wide, narrow = over_seeds(*spread), over_seeds(*alike)
    assert wide.high - wide.low > 3 * (narrow.high - narrow.low)
    assert narrow.p < 0.001
    assert narrow.low < 1 < narrow.high
    single = over_seeds({0: spread[0][0]}, {0: spread[1][9]})
    assert single.df == 49


def test_the_same_seeds_on_both_sides_are_compared_seed_by_seed():
    generator = np.random.default_rng(2)
    text, levels = generator.normal(0, 1, 50), generator.normal(0, 2, 3)
    base, same = seeds_of(generator, text, levels, 0), seeds_of(generator, text, levels, 1)
    paired = over_seeds(base, dict(reversed(same.items())))
    apart = over_seeds(base, {seed + 9: output for seed, output in same.items()})
    assert paired.delta == pytest.approx(apart.delta)
    assert paired.p < 0.01 < 0.2 < apart.p


def test_a_bootstraps_interval_of_a_mean_is_that_of_theory():
    generator = np.random.default_rng(3)
    lines = generator.normal(5, 2, (400, 1))
    one = Output(lines, lambda sums: float(sums[0]) / 400)
    _, found, _ = paired_bootstrap(one, one, 1000)
    assert found["mean"] == pytest.approx(float(lines.mean()), abs=0.02)
    assert found["ci"] == pytest.approx(1.96 * float(lines.std()) / 20, rel=0.1)


# `aiayn table --lines`: several systems and their seeds against one baseline, from the translations they stored.


def store(folder: Path, dropout: float, seed: int, error_rate: float, references: list[str]) -> None:
    """A run whose translations lack words at random."""
    generator = random.Random(f"{dropout} {seed}")
    hypotheses = [" ".join(word for word in line.split() if generator.random() > error_rate) for line in references]
    config = composed("data=files", "data.train=x", "data.val=x", "data.test=x", "data.vocab_size=300", f"seed={seed}")
    place = RunFolder(folder).evaluation("test")
    place.folder.mkdir(parents=True)
    RunFolder(folder).write_config(replace(config, name=folder.name, model=replace(config.model, dropout=dropout)))
    place.hypotheses.write_text("".join(f"{line}\n" for line in hypotheses))
    place.reference.write_text("".join(f"{line}\n" for line in references))
    scores = score(hypotheses, references, "de")
    result = {"metrics": scores.metrics, "signatures": scores.signatures, "step": 0, "lines": len(references)}
    place.scores.write_text(json.dumps(result | {"split": "test", "text_sha256": "a", "n_references": 1}))


@pytest.fixture
def systems(tmp_path) -> Path:
    generator = random.Random(1)
    references = [" ".join(generator.choices(WORDS, k=generator.randint(5, 12))) for _ in range(80)]
    for name, dropout, seed, error_rate in (
        ("base_seed-1", 0.1, 1, 0.20),
        ("base_seed-2", 0.1, 2, 0.21),
        ("worse_seed-1", 0.3, 1, 0.5),
        ("worse_seed-2", 0.3, 2, 0.51),
        ("like", 0.2, 1, 0.2),
    ):
        store(tmp_path / name, dropout, seed, error_rate, references)
    return tmp_path


def test_systems_are_compared_over_seeds_and_lines(systems):
    command = ("table", str(systems), "--lines", "--baseline", "base", "--split", "test", "--metrics", "sacrebleu,ter")
    outcome = run_application("aiayn", *command, "--format", "csv", "--table", "systems")
    assert outcome.code == 0, outcome.err
    rows = [*csv.DictReader(io.StringIO(outcome.out))]
    found = {row["group"]: row for row in rows}
    assert list(found) == ["base", "like", "worse"]
    assert [row["n"] for row in found.values()] == ["2", "1", "2"]
    worse = found["worse"]
    low, delta, high = (float(worse[f"test/sacrebleu difference{end}"]) for end in ("_low", "", "_high"))
    assert low < delta < high < 0
    assert worse["test/sacrebleu difference_significant"] == "True"
    assert float(worse["test/ter difference"]) > 0
    assert found["like"]["test/sacrebleu difference_significant"] == "False"
    text = run_application("aiayn", *command).out
    assert "Systems, line by line" in text
    assert "corrected for 4 comparisons (Holm)" in text


def test_two_single_runs_have_both_paired_tests(systems):
    runs = [str(systems / name) for name in ("base_seed-1", "worse_seed-1")]
    outcome = run_application("aiayn", "table", *runs, "--lines", "--baseline", "base_seed-1", "--split", "test")
    assert outcome.code == 0, outcome.err
    part = outcome.out.partition("Systems, line by line")[2]
    assert "p bootstrap" in part
    [line] = [line for line in part.split("\n") if line.startswith("worse")]
    assert line.split()[-1] == "0.0001"  # one of 10,001 trials


def test_what_cannot_be_compared_line_by_line_is_refused_in_one_line(systems):
    without = run_application("aiayn", "table", str(systems), "--lines")
    assert (without.code, without.err.count("\n")) == (2, 1)
    assert "--baseline NAME --split test" in without.err
    (systems / "like/evaluation/test/hypotheses.txt").unlink()
    gone = run_application("aiayn", "table", str(systems), "--lines", "--baseline", "base", "--split", "test")
    assert (gone.code, gone.err.count("\n")) == (4, 1)
    assert "no translations to compare" in gone.err
