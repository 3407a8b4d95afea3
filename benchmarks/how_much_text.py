"""Writes what docs/your-own-text.md says of scores by the number of pairs, and its picture, from results/own_text.

A run is results/own_text/pairs_N, those of further seeds are pairs_N_seed-K. It is to be run again when there are more;
it changes nothing outside the marked blocks of the page.

    python benchmarks/how_much_text.py
"""

import math
from pathlib import Path
from statistics import fmean

from table3_quarter import publish, wrapped

from aiayn.reports.differences import Difference, Sample, interval
from aiayn.reports.drawing import new_figure, save_figure
from aiayn.reports.metrics import Metric
from aiayn.reports.runs import read_run
from aiayn.reports.tables import Column, Table, markdown
from aiayn.runs.run_folder import Record, RunFolder, read_json

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PICTURE = ROOT / "results/own_text", ROOT / "docs/images/how_much_text.png"
PAGE = ROOT / "docs/your-own-text.md"
RATIO = Metric("sacrebleu", "test").ratio
COLUMNS = [
    Column("pairs", "pairs"),
    Column("steps", "steps"),
    Column("n", "seeds"),
    Column("bleu", "test sacreBLEU"),
    Column("ratio", "length ratio", 3),
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
    """Returns what table.json holds: means of every number of pairs, and the intervals of their scores.

    Sizes with the same vocabulary and tokens per step share a standard deviation; a size without such a second seed has
    no interval.
    """
    rows, samples = [], {}
    for pairs, of in runs().items():
        scored = {RunFolder(run).read_config()["seed"]: scores(run) for run in of}
        samples[pairs] = Sample({seed: one["metrics"]["sacrebleu"] for seed, one in scored.items()})
        forced = [one["forced"]["perplexity"] for one in scored.values() if "forced" in one]
        row = {"pairs": pairs, "steps": RunFolder(of[0]).read_config()["trainer"]["max_steps"], "n": len(of)}
        row |= {"ratio": fmean(RATIO.of(read_run(RunFolder(run))) for run in of)}
        row |= {"chrf": fmean(one["metrics"]["chrf"] for one in scored.values())}
        rows.append(row | {"ppl": fmean(forced) if forced else None})
    spreads = {}
    for row in rows:
        alike = [samples[other["pairs"]] for other in rows if settings(other["pairs"]) == settings(row["pairs"])]
        df = sum(one.n - 1 for one in alike)
        spread = math.sqrt(sum((one.n - 1) * one.sd**2 for one in alike if one.sd) / df) if df else None
        spreads |= {df: spread} if spread else {}
        mean, n = samples[row["pairs"]].mean, row["n"]
        row["sacrebleu"] = interval(mean, spread / math.sqrt(n), df) if spread else Difference(mean)
    [(df, sd)] = spreads.items()
    return {"sd": sd, "degrees_of_freedom": df, "rows": rows}


def settings(pairs: int) -> tuple[int, int]:
    data = RunFolder(runs()[pairs][0]).read_config()["data"]
    return data["vocab_size"], data["tokens_per_step"]


def page_blocks(found: Record) -> dict[str, str]:
    """Returns the generated blocks of the page by name, from what `facts` returns."""
    shown = []
    for row in found["rows"]:
        score = row["sacrebleu"]
        bleu = f"{score.delta:.1f}" + (f" [{score.low:.1f}, {score.high:.1f}]" if score.low is not None else "")
        shown.append(row | {"pairs": f"{row['pairs']:,}", "steps": f"{row['steps']:,}", "bleu": bleu})
    spread = wrapped(
        f"Intervals hold 95 %: Student's t with {found['degrees_of_freedom']} degrees of freedom, from the spread "
        f"between seeds, a standard deviation of {found['sd']:.2f}, which is taken to be the same for sizes with the "
        "same vocabulary and batch; 50,000 pairs have others and one seed, and so no interval. They do not cover which "
        "pairs were drawn, nor the choice of the test sentences."
    )
    return {"pairs": markdown([Table("", COLUMNS, shown)]).strip(), "pairs-basis": spread}


def draw(found: Record) -> None:
    figure = new_figure(6, 3.6, layout="constrained")
    axis = figure.subplots()
    pairs, means = [row["pairs"] for row in found["rows"]], [row["sacrebleu"] for row in found["rows"]]
    for size, one in zip(pairs, means, strict=True):
        if one.low is not None:
            axis.plot([size, size], [one.low, one.high], color="C0", alpha=0.4, linewidth=4)
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
