"""Writes what docs/your-own-text.md says of scores by the number of pairs, and its picture.

A run of results/own_text.jsonl is called pairs_N/seed-K; results/own_text_N.jsonl has the same text
again, trained with later code. It is to be run again when there are more; it changes nothing
outside the marked blocks of the page.

    python benchmarks/how_much_text.py
"""

import math
from pathlib import Path

from pages import ROOT, publish, wrapped
from studies import RESULTS, published, read_study

from aiayn.errors import RefusedError
from aiayn.reports.comparison import compare_groups
from aiayn.reports.differences import interval
from aiayn.reports.drawing import new_figure, save_figure
from aiayn.reports.groups import Group, group_runs
from aiayn.reports.runs import Metric
from aiayn.reports.tables import Column, Table, markdown
from aiayn.runs.run_folder import Record

PAGE = ROOT / "docs/your-own-text.md"
BLEU = Metric("sacrebleu", "test")
TRAINED_AGAIN = (5_000, 10_000)  # pairs, each a study of its own
COLUMNS = [
    Column("pairs", "pairs"),
    Column("n", "seeds"),
    Column("bleu", "test sacreBLEU"),
]


def groups() -> dict[int, Group]:
    """Returns the published runs by their number of pairs. Raises RefusedError for two groups of
    one number.
    """
    all_groups = group_runs(published("own_text"))
    by_size = {int(group.name.split("_")[1]): group for group in all_groups}
    if len(by_size) < len(all_groups):
        raise RefusedError(
            "own_text: runs of one number of pairs differ in more than their seed; keep one kind"
        )
    return dict(sorted(by_size.items()))


def facts() -> Record:
    """Returns means of every number of pairs, and the intervals of their scores.

    All sizes share one standard deviation between seeds.
    """
    by_size = groups()
    samples = {pairs: group.sample(BLEU) for pairs, group in by_size.items()}
    df = sum(sample.n - 1 for sample in samples.values())
    sd = math.sqrt(sum((sample.n - 1) * sample.sd**2 for sample in samples.values()) / df)
    rows = []
    for pairs, sample in samples.items():
        score = interval(sample.mean, sd / math.sqrt(sample.n), df)
        rows.append({"pairs": pairs, "n": sample.n, "sacrebleu": score})
    return {"sd": sd, "degrees_of_freedom": df, "rows": rows}


def blocks() -> dict[str, str]:
    """Returns the generated blocks of the page by name."""
    study_facts = facts()
    records = []
    for row in study_facts["rows"]:
        score = row["sacrebleu"]
        bleu = f"{score.delta:.1f} [{score.low:.1f}, {score.high:.1f}]"
        records.append(row | {"pairs": f"{row['pairs']:,}", "bleu": bleu})
    spread = wrapped(
        f"Intervals are 95 % (Student's t, {study_facts['degrees_of_freedom']} degrees of freedom) and "
        f"pool the standard deviation between seeds, {study_facts['sd']:.2f}, over all sizes. They "
        "ignore the choice of training pairs and test sentences."
    )
    return {
        "pairs": markdown([Table("", COLUMNS, records)]).strip(),
        "pairs-basis": spread,
        "pairs-again": trained_again(),
    }


def trained_again() -> str:
    """Returns a paragraph on the smaller texts, trained again with later code and the same seeds."""
    results = []
    precisions = set()
    for pairs in TRAINED_AGAIN:
        study = f"own_text_{pairs}"
        [second_group] = group_runs(published(study))
        first_group = groups()[pairs]
        difference = compare_groups([second_group, first_group], [BLEU], first_group)[BLEU][
            second_group.path
        ]
        assert difference.is_paired
        results.append(
            f"{second_group.sample(BLEU).mean:.1f} on {pairs:,} pairs ({difference.delta:+.1f} "
            f"[{difference.low:+.1f}, {difference.high:+.1f}])"
        )
        precisions.add(precision_of(study))
    [precision] = precisions
    return wrapped(
        f"With these seeds but `{precision}` instead of "
        f"`{precision_of('own_text')}`, a later version of aiayn scored {' and '.join(results)}."
    )


def precision_of(study: str) -> str:
    [precision] = {
        record["machine"]["precision"] for record in read_study(RESULTS / f"{study}.jsonl").values()
    }
    return precision


def draw(study_facts: Record, path: Path) -> None:
    figure = new_figure(6, 3.6, layout="constrained")
    axis = figure.subplots()
    pairs, means = (
        [row["pairs"] for row in study_facts["rows"]],
        [row["sacrebleu"] for row in study_facts["rows"]],
    )
    for size, score in zip(pairs, means, strict=True):
        axis.plot([size, size], [score.low, score.high], color="C0", alpha=0.4, linewidth=4)
    axis.plot(pairs, [score.delta for score in means], linewidth=1.2)
    for size, group in groups().items():
        points = [BLEU.of(run) for run in group.runs]
        axis.plot([size] * len(points), points, "o", color="C0", markersize=4)
    axis.set_xscale("log")
    axis.set_xticks(pairs, [f"{size:,}" for size in pairs])
    axis.minorticks_off()
    axis.set(xlabel="training pairs", ylabel="test sacreBLEU", ylim=(0, None))
    axis.grid(alpha=0.3)
    save_figure(figure, path)


def main() -> None:
    publish(PAGE, blocks())


if __name__ == "__main__":
    main()
