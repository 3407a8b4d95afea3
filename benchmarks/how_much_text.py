"""Writes what docs/your-own-text.md says of scores by the number of pairs, and its picture, from results/own_text.

A run is results/own_text/pairs_N, those of further seeds are pairs_N_seed-K. It is to be run again when there are more;
it changes nothing outside the marked blocks of the page.

    python benchmarks/how_much_text.py
"""

from pathlib import Path

from table3_quarter import publish, wrapped

from aiayn.reports.drawing import new_figure, save_figure
from aiayn.reports.intervals import Difference, Sample, Spread, pooled_spread, student
from aiayn.reports.table import Column, Table
from aiayn.reports.writers import markdown
from aiayn.runs.run_folder import Record, RunFolder, read_json

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PICTURE = ROOT / "results/own_text", ROOT / "docs/images/how_much_text.png"
PAGE = ROOT / "docs/your-own-text.md"
COLUMNS = [
    Column("pairs", "pairs"),
    Column("steps", "steps"),
    Column("n", "seeds"),
    Column("bleu", "test sacreBLEU"),
    Column("chrf", "chrF", 1),
    Column("ppl", "test perplexity", 2),
]


def runs() -> dict[int, list[Path]]:
    """Returns the published runs by their number of pairs."""
    found: dict[int, list[Path]] = {}
    for path in RESULTS.glob("pairs_*"):
        found.setdefault(int(path.name.split("_")[1]), []).append(path)
    return {pairs: sorted(found[pairs]) for pairs in sorted(found)}


def scores(run: Path) -> Record:
    return read_json(RunFolder(run).evaluation("test").scores)


def facts() -> Record:
    """Returns what table.json holds: means of every number of pairs, and the intervals of their scores."""
    found = runs()
    scored = {pairs: [scores(run) for run in of] for pairs, of in found.items()}
    samples = {pairs: Sample(tuple(each["metrics"]["sacrebleu"] for each in of)) for pairs, of in scored.items()}
    spread = pooled_spread(samples.values())
    assert spread is not None, "no number of pairs has two seeds"
    rows = [
        {
            "pairs": pairs,
            "steps": RunFolder(found[pairs][0]).read_config()["trainer"]["max_steps"],
            "n": samples[pairs].n,
            "sacrebleu": _interval(samples[pairs], spread),
            "chrf": Sample(tuple(each["metrics"]["chrf"] for each in of)).mean,
            "ppl": Sample(tuple(each["forced"]["perplexity"] for each in of)).mean if "forced" in of[0] else None,
        }
        for pairs, of in scored.items()
    ]
    return {"sd": spread.sd, "degrees_of_freedom": spread.df, "rows": rows}


def _interval(sample: Sample, spread: Spread) -> Difference:
    """Returns a mean, as the difference from nothing, with its interval."""
    return student(sample.mean, spread.sd / sample.n**0.5, spread.df)


def page_blocks(found: Record) -> dict[str, str]:
    """Returns the generated blocks of the page by name, from what `facts` returns."""
    shown = []
    for row in found["rows"]:
        score = row["sacrebleu"]
        bleu = f"{score.delta:.1f} [{score.low:.1f}, {score.high:.1f}]"
        shown.append(row | {"pairs": f"{row['pairs']:,}", "steps": f"{row['steps']:,}", "bleu": bleu})
    spread = wrapped(
        f"Intervals hold 95 %: Student's t with {found['degrees_of_freedom']:.0f} degrees of freedom, from the spread "
        f"between seeds, a standard deviation of {found['sd']:.2f}, which is taken to be the same for every number of "
        "pairs. They do not cover which pairs were drawn, nor the choice of the test sentences."
    )
    return {"pairs": markdown([Table("", COLUMNS, shown)]).strip(), "pairs-basis": spread}


def draw(found: Record) -> None:
    figure = new_figure(6, 3.6, layout="constrained")
    axis = figure.subplots()
    pairs, means = [row["pairs"] for row in found["rows"]], [row["sacrebleu"] for row in found["rows"]]
    axis.fill_between(pairs, [one.low for one in means], [one.high for one in means], alpha=0.25, linewidth=0)
    axis.plot(pairs, [one.delta for one in means], linewidth=1.2)
    for size, of in runs().items():
        points = [scores(run)["metrics"]["sacrebleu"] for run in of]
        axis.plot([size] * len(points), points, "o", color="C0", markersize=4)
    axis.set_xscale("log")
    axis.set_xticks(pairs, [f"{size:,}" for size in pairs])
    axis.minorticks_off()
    axis.set(xlabel="training pairs", ylabel="test sacreBLEU", ylim=(0, None))
    axis.grid(alpha=0.3)
    save_figure(figure, PICTURE)


def main() -> None:
    found = facts()
    publish(found, RESULTS, PAGE, page_blocks(found))
    draw(found)


if __name__ == "__main__":
    main()
