"""Writes every figure of docs/results that comes from a file under results/ or benchmarks/results.

    python benchmarks/result_pages.py

A page has such figures between `<!-- begin NAME -->` and `<!-- end NAME -->`; other figures on it
say "unrecorded".
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean

import cross_check
import how_much_text
import multi30k_quarter
import table3_quarter
from pages import ROOT, publish, wrapped
from studies import RESULTS, published, read_study
from table3_quarter import half_width
from train_step import WHOLE

from aiayn.config.tasks import METRIC_KINDS, METRICS
from aiayn.reports.comparison import compare_groups
from aiayn.reports.differences import Sample, corrected, explained
from aiayn.reports.groups import Group, group_runs
from aiayn.reports.runs import MeasuredRun, Metric
from aiayn.reports.tables import Column, Table, markdown
from aiayn.runs.run_folder import Record

BENCHMARKS = ROOT / "benchmarks/results"


def table(columns: Sequence[Column], records: Sequence[Record]) -> str:
    return markdown([Table("", columns, records)]).strip()


def groups_of(study: str) -> dict[str, Group]:
    return {group.name: group for group in group_runs(published(study))}


def rows_of(benchmark: str) -> list[Record]:
    return json.loads((BENCHMARKS / f"{benchmark}.json").read_text(encoding="utf-8"))["rows"]


def plus_minus(sample: Sample | None, decimals: int) -> str:
    if sample is None:
        return ""
    return f"{sample.mean:.{decimals}f}" + (
        f" ± {sample.sd:.{decimals}f}" if sample.sd is not None else ""
    )


def with_interval(sample: Sample, decimals: int) -> str:
    """Return the mean and its 95 % interval; the score alone of a single run."""
    mean_score = f"{sample.mean:.{decimals}f}"
    return mean_score if sample.n == 1 else f"{mean_score} ± {half_width(sample):.{decimals}f}"


ALL_KINDS = tuple(dict.fromkeys(("bleu_tokenized_lc", *METRIC_KINDS)))


def scores_by_seed(study: str, test_set: str, kinds: Sequence[str] = ALL_KINDS) -> str:
    """Return the test scores of a study of one group: each seed, their mean and its interval."""
    [group] = group_runs(published(study))
    records = []
    for kind in kinds:
        sample = group.sample(Metric(kind, "test"))
        if sample is not None:
            seeds = {f"seed {seed}": value for seed, value in sample.by_seed.items()}
            records.append({"kind": METRICS[kind].title, **seeds, "mean": with_interval(sample, 2)})
    seeds = [Column(f"seed {seed}", decimals=2) for seed in group.seeds]
    return table([Column("kind", test_set), *seeds, Column("mean", "mean, 95 % interval")], records)


# The built-in sentences.


def quickstart() -> dict[str, str]:
    return {"scores": scores_by_seed("quickstart", "test set", ("sacrebleu", "chrf"))}


# The model in examples/.


def packed_model() -> dict[str, str]:
    [run] = published("tatoeba_en_de")
    scores = run.evaluations["test"]
    ratio = Metric("sacrebleu", "test").ratio
    columns = [
        *(Column(kind, METRICS[kind].title, 2) for kind in ("sacrebleu", "chrf", "ter")),
        Column("ratio", "length ratio", 3),
    ]
    row = table(columns, [scores.metrics | {"ratio": ratio.of(run)}])
    return {"scores": f"{row}\n\nSignature of sacreBLEU: `{scores.signature}`"}


# Multi30k.

PUBLISHED_MULTI30K = {
    "multi30k_wu2021": (41.02, 33.36, 29.88),
    "multi30k_wu2021_en_fr": (61.80, 53.46, 44.52),
}
TEST_SETS = ("test", "test_2017_flickr", "test_2017_mscoco")


def multi30k() -> dict[str, str]:
    [group] = group_runs(published("multi30k"))
    reported = group.sample(Metric("bleu_tokenized_lc", "test"))
    of_mean = half_width(reported)
    of_next = of_mean * math.sqrt(reported.n + 1)
    about = (
        f"Wu et al. published {PUBLISHED_MULTI30K['multi30k_wu2021'][0]} lower-cased tokenised BLEU "
        f"for one run. The {reported.n} seeds here have {reported.mean:.2f} ± {of_mean:.2f} (95 % "
        f"interval of the mean). One more run would lie within ± {of_next:.2f} of it (95 % "
        "prediction interval)."
    )
    return {
        "captions": scores_by_seed("captions", "2016 test set"),
        "three-seeds": scores_by_seed("multi30k", "2016 test set"),
        "interval": wrapped(about),
        "wu2021": _wu2021(),
        "search": _multi30k_search(),
        "en-fr": _multi30k_en_fr(),
    }


def _wu2021() -> str:
    records = []
    for study, figures in PUBLISHED_MULTI30K.items():
        languages = "English-French" if study.endswith("en_fr") else "English-German"
        records.append(
            {"run": f"{languages}, published", **dict(zip(TEST_SETS, figures, strict=True))}
        )
        [group] = group_runs(published(study))
        samples = {name: group.sample(Metric("bleu_tokenized_lc", name)) for name in TEST_SETS}
        scores = {name: with_interval(sample, 2) for name, sample in samples.items()}
        last = sorted({run.step for run in group.runs})
        steps = " to ".join(f"{step:,}" for step in dict.fromkeys((last[0], last[-1])))
        count = "one run" if len(group.runs) == 1 else f"{len(group.runs)} seeds"
        records.append({"run": f"`{study}`, {count}", **scores, "step": steps})
    titles = dict(zip(TEST_SETS, ("test 2016", "test 2017", "COCO"), strict=True))
    columns = [
        Column("run", "lower-cased tokenised BLEU"),
        *(Column(name, titles[name], 2) for name in TEST_SETS),
    ]
    return table([*columns, Column("step", "ended at step")], records)


def _multi30k_search() -> str:
    stored = json.loads((RESULTS / "multi30k_search.json").read_text(encoding="utf-8"))
    records = []
    for row in stored["rows"]:
        seeds = [f"{seed['bleu_tokenized_lc']:.2f}" for seed in row.get("seeds", [])]
        records.append({"options": f"`{row['options']}`", **row["mean"], "seeds": ", ".join(seeds)})
    records.append(
        stored["ensemble"] | {"options": "all three together, `ensemble=[...]`", "seeds": ""}
    )
    columns = [Column("options", "`evaluate.py`"), Column("sacrebleu", "sacreBLEU", 2)]
    columns += [Column("bleu_tokenized_lc", "lower-cased tokenised", 2), Column("seeds", "by seed")]
    return table(columns, records)


def _multi30k_en_fr() -> str:
    [run] = published("multi30k_en_fr")
    kinds = ("bleu_tokenized_lc", "bleu_tokenized", "sacrebleu", "chrf", "ter")
    scores = run.evaluations["test"].metrics
    columns = [
        Column("run", "2016 test set"),
        *(Column(kind, METRICS[kind].title, 2) for kind in kinds),
    ]
    columns.append(Column("ppl", "dev perplexity", 2))
    return table(columns, [{"run": f"seed {run.seed}", **scores, "ppl": Metric("val/ppl").of(run)}])


# Steps.

PARTS = ("parts_per_step-1", "parts_per_step-4", "parts_per_step-8")
OWN_TEXT = {
    "four parts": ("own_text", "pairs_5000"),
    "one part": ("own_text_5000_one_part", None),
    "eight parts": ("own_text_5000_eight_parts", None),
    "four parts, dropout 0.4": ("own_text_5000_dropout", None),
}


def steps() -> dict[str, str]:
    dev = {
        "captions_parts": Metric("sacrebleu", "val"),
        "quarter_parts": Metric("bleu_compound_split", "val"),
    }
    columns = [
        Column("study", "text"),
        Column("parts"),
        Column("ppl", "dev perplexity"),
        Column("dev", "dev BLEU"),
    ]
    columns += [
        Column("dev_ratio", "length ratio"),
        Column("test", "test sacreBLEU"),
        Column("ratio", "length ratio"),
    ]
    records, changes = [], []
    for study, bleu in dev.items():
        groups = groups_of(study)
        test = Metric("sacrebleu", "test")
        for name in PARTS:
            group = groups[name]
            record = {"study": f"`{study}`", "parts": name.rpartition("-")[2]}
            record["ppl"] = plus_minus(group.sample(Metric("val/ppl")), 2)
            record["dev"] = plus_minus(group.sample(bleu), 2)
            record["dev_ratio"] = plus_minus(group.sample(bleu.ratio), 3)
            record["test"] = plus_minus(group.sample(test), 2)
            record["ratio"] = plus_minus(group.sample(test.ratio), 3)
            records.append(record)
        metrics = {"dev perplexity": Metric("val/ppl"), "dev BLEU": bleu}
        base = groups["parts_per_step-4"]
        for name in (PARTS[0], PARTS[2]):
            # Each by itself: their standard deviations differ too much to be taken for one.
            compared = compare_groups([groups[name], base], [*metrics.values()], base)
            change: Record = {"study": f"`{study}`", "parts": name.rpartition("-")[2]}
            for title, metric in metrics.items():
                change[title] = table3_quarter.cell(compared[metric][groups[name].path])
            changes.append(change)
    change_columns = [
        Column("study", "text"),
        Column("parts"),
        Column("dev perplexity"),
        Column("dev BLEU"),
    ]
    return {
        "steps-hold": _steps_hold(),
        "parts": table(columns, records),
        "parts-changes": table(change_columns, changes),
        **_own_text(),
    }


def _steps_hold() -> str:
    """Return the table of the lengths in a step and of the padding, by the number of parts."""
    texts = {"steps_real": "captions", "steps_made_up": "4.5 M generated pairs like WMT14's"}
    columns = [
        Column("text"),
        Column("tokens", "tokens a step"),
        Column("parts"),
        Column("length", "mean target length"),
        Column("ratio", "target / source"),
        Column("padding"),
    ]
    records = [
        {
            "text": text,
            "tokens": f"{row['tokens']:,}",
            "parts": f"**{row['parts']}**" if row["parts"] == 4 else str(row["parts"]),
            "length": ", ".join(f"{percentile:.1f}" for percentile in row["tgt_length"]),
            "ratio": ", ".join(f"{percentile:.2f}" for percentile in row["ratio"]),
            "padding": f"{row['padding_percent']:.1f} %",
        }
        for benchmark, text in texts.items()
        for row in rows_of(benchmark)
    ]
    return table(columns, records)


def _own_text() -> dict[str, str]:
    groups = {}
    for name, (study, group_name) in OWN_TEXT.items():
        groups_by_name = groups_of(study)
        groups[name] = (
            groups_by_name[group_name] if group_name else next(iter(groups_by_name.values()))
        )
    columns = [Column("name", "5,000 pairs")]
    records: list[Record] = [{"name": name} for name in groups]
    for split in ("val", "test"):
        bleu = Metric("sacrebleu", split)
        metrics = {
            "sacreBLEU": (bleu, 2),
            "chrF": (Metric("chrf", split), 2),
            "length ratio": (bleu.ratio, 3),
        }
        metrics["perplexity"] = (Metric("perplexity", split), 2)
        prefix = {"val": "dev", "test": "test"}[split]
        for title, (metric, decimals) in metrics.items():
            columns.append(Column(f"{split} {title}", f"{prefix} {title}"))
            for record, group in zip(records, groups.values(), strict=True):
                record[f"{split} {title}"] = plus_minus(group.sample(metric), decimals)
    base = groups["four parts"]
    dev = {
        "dev sacreBLEU": Metric("sacrebleu", "val"),
        "dev perplexity": Metric("perplexity", "val"),
    }
    compared = compare_groups([*groups.values()], [*dev.values()], base)
    differences = corrected(compared)
    changes = [
        {"name": name}
        | {
            title: table3_quarter.cell(differences[metric][group.path])
            for title, metric in dev.items()
        }
        for name, group in groups.items()
        if group is not base
    ]
    return {
        "own-text": table(columns, records),
        "own-text-changes": table(
            [Column("name", "against four parts"), *map(Column, dev)], changes
        ),
        "own-text-basis": wrapped(" ".join(explained("four parts (3 seeds)", differences))),
    }


# The paper, checked.


def paper_checked() -> dict[str, str]:
    scaling = [
        Column("d_k"),
        Column("variance of q.k", decimals=1),
        Column("slope with the factor", decimals=3),
        Column("slope without", decimals=3),
    ]
    groups = groups_of("smoothing")
    metrics = {
        "perplexity": (Metric("perplexity", "val"), 2),
        "token accuracy (%)": (Metric("token_accuracy", "val"), 1),
        "sacreBLEU": (Metric("sacrebleu", "val"), 1),
    }
    compared = compare_groups(
        [*groups.values()], [metric for metric, _ in metrics.values()], groups["ls00"]
    )
    differences = corrected(compared)
    columns = [Column("smoothing", "label smoothing")]
    records: list[Record] = [{"smoothing": f"0.{name[-1]}"} for name in sorted(groups)]
    for title, (metric, decimals) in metrics.items():
        columns += [Column(title, decimals=decimals), Column(f"{title} change", "difference")]
        for record, name in zip(records, sorted(groups), strict=True):
            record[title] = groups[name].sample(metric).mean
            difference = differences[metric].get(groups[name].path)
            record[f"{title} change"] = table3_quarter.cell(difference) if difference else ""
    return {
        "scaling": table(scaling, rows_of("paper_claims")),
        "extrapolation": _extrapolation(),
        "smoothing": table(columns, records),
        "smoothing-basis": wrapped(" ".join(explained("no smoothing (3 seeds)", differences))),
    }


def _extrapolation() -> str:
    runs = {run.folder.path.name: run for run in published("extrapolation")}
    columns = [Column("positions"), Column("step")]
    records: list[Record] = [
        {"positions": name, "step": _evaluation(runs[name], "short").step}
        for name in ("sinusoidal", "learned")
    ]
    for length in ("short", "long"):
        for kind, title, decimals in (
            ("perplexity", "perplexity", 2),
            ("token_accuracy", "token accuracy (%)", 1),
            ("sacrebleu", "sacreBLEU", 1),
        ):
            columns.append(Column(f"{length} {kind}", f"{length}: {title}", decimals))
            for record in records:
                record[f"{length} {kind}"] = _evaluation(runs[record["positions"]], length).score(
                    kind
                )
    return table(columns, records)


def _evaluation(run: MeasuredRun, name: str):
    [evaluation] = [scored for test_set, scored in run.evaluations.items() if name in test_set]
    return evaluation


# Manuals.


def manuals() -> dict[str, str]:
    names = {"gnome": "GNOME", "man": "Linux"}
    markup = [row | {"text": names[row["text"]]} for row in rows_of("markup")]
    columns = [
        Column("text", "manual"),
        Column("tags"),
        Column("kept", "tags and placeholders kept", 3),
        Column("well_formed", "well-formed lines", 3),
        Column("bleu", "sacreBLEU without tags", 1),
        Column("bleu_with_tags", "sacreBLEU with tags", 1),
    ]
    pairs = [
        Column("wrong_target", "wrong target"),
        Column("length", "ratio of lengths", 3),
        Column("log_p", "log P", 3),
        Column("per_token", "log P per subword", 4),
        Column("both", "both directions", 4),
    ]
    same_words = [
        f"{100 * row['as_reference']:.1f} % ({row['text']})"
        for row in markup
        if row["tags"] == "put back"
    ]
    about = (
        f"Of the elements put back, {' and '.join(same_words)} enclose the same words as in the "
        "reference. An element cannot match where the translation has other words."
    )
    return {
        "markup": table(columns, markup),
        "same-words": wrapped(about),
        "wrong-pairs": table(pairs, rows_of("score_filter")),
    }


# Performance.


def performance() -> dict[str, str]:
    serving = [
        Column("clients"),
        Column("requests/s", decimals=1),
        Column("median ms", "median (ms)", 0),
        Column("99th percentile ms", "99th percentile (ms)", 0),
    ]
    lengths = (64, 512, 2048)
    layers = [row for row in rows_of("table1") if row["direction"] == "forward and backward"]
    table_1 = [Column("layer"), Column("stated")]
    table_1 += [Column(f"n={n}, ms", f"n = {n:,} (ms)", 1 if n < 100 else 0) for n in lengths]
    table_1.append(Column("growth", "exponent of n, 512 to 2,048"))
    for row in layers:
        row["growth"] = f"{row['exponent']:.2f} ± {row['± exponent']:.2f}"
    forms = ("4 micro-batches", "2", "1", "packed")
    packing = [Column("step of"), *(Column(form, decimals=2) for form in forms)]
    [soak] = rows_of("serve_soak")
    [first_step] = rows_of("startup_first_step")
    plans = {row["pairs"]: row for row in rows_of("data_plan")}
    planning = [
        f"{row['cpu_s']:.1f} processor seconds and {row['total_mb'] / 1000:.1f} GB ({pairs:,} pairs)"
        for pairs, row in plans.items()
    ]
    padding = mean(row["padding_percent"] for row in plans.values())
    return {
        "translating": _translating(),
        "lines-alone": table(
            [Column("engine"), Column("1", "greedy (ms)", 1), Column("4", "four beams (ms)", 1)],
            _by_beams("translate_en-de_alone", "ms a line"),
        ),
        "one-line": wrapped(_one_line()),
        "int8": _int8(),
        "peers": _peers(),
        "peers-bfloat16": _peers("_bfloat16"),
        "peers-one-batch": _peers("_bfloat16", one_batch=True),
        "serving": table(serving, rows_of("serve")),
        "soak": wrapped(
            "`--soak` adds clients that disconnect, send malformed JSON, other encodings and 10 MB. "
            "A server with the model of the [manuals](manuals.md) answered all "
            f"{soak['honest requests']} honest requests correctly beside {soak['other requests']:,} "
            f"such requests. Its memory grew from {soak['MB before']:.0f} to {soak['MB after']:.0f} "
            "MB; a server with the model in `examples/` [takes less](../serve.md#memory)."
        ),
        "first-step": "On a prepared corpus, the tiny model finished its first step "
        f"{first_step['seconds']:.1f} s after the command (two threads, commit ee1c066).",
        "all-reduce": table(
            [
                Column("MB", "gradients (MB)"),
                Column("fewest seconds", decimals=2),
                Column("most", decimals=2),
            ],
            rows_of("all_reduce"),
        ),
        "all-reduce-gpus": wrapped(_all_reduce_on_gpus()),
        "host-time": wrapped(_host_time()),
        "packed-on-cpu": table(packing, rows_of("packed_on_cpu")),
        "packed-on-cpu-bfloat16": table(packing, rows_of("packed_on_cpu_bfloat16")),
        "optimisations": _optimisations(),
        "packing-saves": wrapped(_packing_saves()),
        "preparing": wrapped(_preparing()),
        "planning": wrapped(
            "Planning the steps of an epoch takes, in every process that makes batches, "
            f"{' or '.join(planning)}. Padding is {padding:.0f} % of the tokens "
            "([why](../fidelity.md#what-a-step-holds))."
        ),
        "table-1": table(table_1, layers),
    }


ENGINES = {
    "ours float32": "`aiayn translate`, float32",
    "ours int8": "`aiayn translate`, int8",
    "ours in torch": "torch, patience 2",
    "ours exact": "torch, exact, as `evaluate.py`",
    "CTranslate2 float32": "CTranslate2 called by hand, float32",
    "CTranslate2 int8": "CTranslate2 called by hand, int8",
    "Hugging Face float32": "Hugging Face's `generate`",
}


def _by_beams(benchmark: str, key: str) -> list[Record]:
    """Returns a record for each engine: one figure under the numbers of beams."""
    records: dict[str, Record] = {}
    for row in rows_of(benchmark):
        engine = ENGINES[row["engine"]]
        records.setdefault(engine, {"engine": engine})[str(row["beam"])] = row[key]
    return [*records.values()]


def _translating() -> str:
    name = "translate_en-de"
    seconds, scores, equal = (
        _by_beams(name, key) for key in ("processor seconds", "BLEU", "as exact")
    )
    records = [
        row | {"BLEU": score["4"], "equal": count["4"]}
        for row, score, count in zip(seconds, scores, equal, strict=True)
    ]
    columns = [
        Column("engine"),
        Column("1", "greedy (s)", 1),
        Column("4", "four beams (s)", 1),
        Column("BLEU", "sacreBLEU, four beams", 1),
        Column("equal", "lines as in the exact search"),
    ]
    return table(columns, records)


def _one_line() -> str:
    """Return the sentences about one line through a command and through a server."""
    [command] = rows_of("one_line_translate")
    ours, bare = rows_of("one_line_serve")
    return (
        f"On the same CPU, `aiayn translate` needs {command['MB']:.0f} MB and "
        f"{command['processor seconds']:.2f} processor seconds to start and translate one line (median of {command['rounds']} "
        f"starts; half of them took {command['low']:.2f} to {command['high']:.2f}). The first time, "
        "it also converts the model, which takes seconds. `aiayn serve` is ready after "
        f"{ours['processor seconds']:.1f} processor seconds and holds {ours['MB']:.0f} MB. With four "
        f"beams, a request for one line of Multi30k takes {ours['ms a request']:.1f} ms of its "
        "processor time; a [bare server](../../benchmarks/bare_server.py) around CTranslate2 takes "
        f"{bare['ms a request']:.1f} ms."
    )


def install() -> dict[str, str]:
    """Return the table of what both installations hold."""
    rows = rows_of("install")
    columns = [
        Column("target"),
        Column("packages"),
        Column("mb", "MB", 0),
        Column("seconds", decimals=0),
    ]
    records = [
        row | {"target": f"`{row['target']}`"} for row in rows if row["at"] == rows[-1]["at"]
    ]
    return {"install": table(columns, records)}


def _int8() -> str:
    """Return the list's point on int8: the time it saves and the lines it changes."""
    saved = []
    for name, key in (
        ("translate_en-de", "processor seconds"),
        ("translate_en-de_alone", "ms a line"),
    ):
        of_engine = {row["engine"]: row[key] for row in rows_of(name) if row["beam"] == 4}
        saved.append(100 * (1 - of_engine["ours int8"] / of_engine["ours float32"]))
    equal = {
        row["engine"]: row["as exact"] for row in rows_of("translate_en-de") if row["beam"] == 4
    }
    point = (
        f"- **int8** (`--precision int8`) saves {saved[0]:.0f} % of the time with four beams for a "
        f"file, and {saved[1]:.0f} % for single lines. On this CPU, {1000 - equal['ours int8']} lines "
        f"of 1,000 differ from the exact search, instead of {1000 - equal['ours float32']}. Use it "
        "where users wait, not to compare runs. Translate in bfloat16 only on GPUs."
    )
    return wrapped(point, indent="  ")


# Where an optimisation is.
OPTIMISATIONS = {
    "without the loss a few rows at a time": "`training/loss.py`",
    "without fast dropout": "`kernels/accelerate.py`",
    "without prepacked weights": "`kernels/accelerate.py`",
}


def _optimisations() -> str:
    """Return the table of a step and an evaluation without each optimisation."""
    records: dict[str, Record] = {}
    works = ("step of tiny", "evaluating base")
    for work in works:
        for row in rows_of(f"optimisations_{work.replace(' ', '_')}"):
            variant = row["variant"]
            module = f" ({OPTIMISATIONS[variant]})" if variant in OPTIMISATIONS else ""
            ratio = f"{row['times all']:.2f} [{row['times low']:.2f}, {row['times high']:.2f}], "
            record = records.setdefault(variant, {"variant": f"{variant}{module}"})
            record[work] = (
                f"{ratio if module else ''}{row['processor seconds']:.1f} s, {row['MB']:,.0f} MB"
            )
    columns = [Column("variant", "optimisations"), *map(Column, works)]
    return table(columns, [dict.fromkeys(works, "") | record for record in records.values()])


def _packing_saves() -> str:
    """Returns the conclusion from the tables of packed steps."""
    float32, bfloat16 = (
        {
            row["step of"]: 100 * (1 - row["packed"] / row["4 micro-batches"])
            for row in rows_of(name)
        }
        for name in ("packed_on_cpu", "packed_on_cpu_bfloat16")
    )
    wide = {
        name: bfloat16.pop(name) for name in list(bfloat16) if name.startswith(("base", "capt"))
    }
    return (
        f"In float32, packing saves {min(float32.values()):.0f} to {max(float32.values()):.0f} % "
        "against the default, four micro-batches. This is too little, so these steps are not "
        f"packed. In bfloat16 it saves {min(wide.values()):.0f} to {max(wide.values()):.0f} % with "
        f"base and captions, and {min(bfloat16.values()):.0f} to {max(bfloat16.values()):.0f} % with "
        "narrower models. In small steps, a single padded batch "
        "(`data.micro_batches=1`) mostly saves as much or more."
    )


def _host_time() -> str:
    [row] = rows_of("host_time")
    return (
        "With several GPUs, the CPU's work for each micro-batch can become the bottleneck. Trainer, "
        f"loader and callbacks raise it to {row['ratio']:.2f} times that of a bare loop (base's "
        f"depth, width 16, AMD EPYC with AVX2: {row['through Trainer ms']:.0f} instead of {row['bare ms']:.0f} ms "
        "of processor time, `python benchmarks/host_time.py`)."
    )


# Gigabytes a second in each direction.
LINKS = {"NVLink": 450, "PCIe 4": 25}


def _all_reduce_on_gpus() -> str:
    """Return the least time that eight GPUs need to add up the gradients, computed."""
    eight = 8
    times = []
    for link, rate in LINKS.items():
        base, big = (2 * (eight - 1) / eight * row["MB"] / rate for row in rows_of("all_reduce"))
        times.append(f"{base:.1f} and {big:.1f} ms over {link} ({rate} GB/s in each direction)")
    graphs = json.loads((BENCHMARKS / "gpu_h200_graphs.json").read_text(encoding="utf-8"))
    step_ms = {row["row"]: row["replay ms"] for row in graphs["step without Trainer"]}
    return (
        "Each of eight GPUs would send and receive 7/4 of the gradients' size. Computed from "
        f"bandwidth alone, this takes {' and '.join(times)}, for base and big. Over PCIe, that is "
        "longer than [an eighth of a step of base](gpu.md#a-step-of-base-and-big) takes to compute "
        f"({step_ms['step base 3k']:.1f} ms)."
    )


PEERS = {
    "joeynmt": "JoeyNMT",
    "marian": "Hugging Face's Marian",
    "torch": "`torch.nn.Transformer`",
}


def _peers(suffix: str = "", one_batch: bool = False) -> str:
    """Returns our processor time divided by that of others, in micro-batches or in one batch, with
    intervals; of Marian's two forms of attention the faster one.
    """
    records = []
    for size in ("base_1024", "base_4096", "tiny_4096"):
        if not (BENCHMARKS / f"train_step_{size}{suffix}.json").exists():
            continue
        model, tokens = size.split("_")
        record: Record = {"step": f"`model={model}`, {int(tokens):,} tokens"}
        rows = [
            row
            for row in rows_of(f"train_step_{size}{suffix}")
            if row["step of"].endswith(WHOLE) == one_batch
        ]
        if not rows:
            continue
        for name in PEERS:
            forms = [row for row in rows if row["step of"].startswith(name)]
            row = max(forms, key=lambda row: row["ours / theirs"])
            record[name] = (
                f"{row['ours / theirs']:.2f} [{row['ratio low']:.2f}, {row['ratio high']:.2f}]"
            )
        records.append(record)
    return table([Column("step"), *(Column(name, PEERS[name]) for name in PEERS)], records)


def _preparing() -> str:
    rows = [
        row for path in sorted(BENCHMARKS.glob("data_prepare*.json")) for row in rows_of(path.stem)
    ]
    sentences = [
        f"{row['pairs']:,} pairs takes {row['cpu_s']:,.0f} processor seconds and "
        f"{row['total_mb']:,.0f} MB (with the memory-mapped result) in {row['processes']} worker "
        "processes"
        for row in rows
    ]
    return f"Preparing {'; '.join(sentences)}."


# The server.


def serve() -> dict[str, str]:
    first, *rounds, with_markup = rows_of("serve_memory")
    last = rounds[-1]
    return {
        "memory": wrapped(
            f"With the model in `examples/`, the server takes {first['MB']:.0f} MB at its start, and "
            f"{last['MB']:.0f} MB after {last['requests']} requests of one line. The first text with "
            f"mark-up loads torch, which adds {with_markup['MB'] - last['MB']:.0f} MB."
        )
    }


# Hours of the paper's trainings, computed from steps that were measured on one H200. Another card
# is slower by a factor between the ratio of memory bandwidths and that of bfloat16 products,
# whichever order they are in; eight cards add up float32 gradients in a ring.
H200_TFLOPS, H200_TERABYTES = 989.4, 4.8
CARDS = {  # dense bfloat16 TFLOP/s, memory TB/s, GB/s of a ring within a machine, dollars an hour
    "H200": (989.4, 4.8, 370, 3.5),
    "H100": (989.4, 3.35, 370, 3.0),
    "A100": (311.9, 2.04, 190, 1.5),
}
TRAININGS = {  # steps, bytes of gradients
    "base": (100_000, 252e6),
    "big": (300_000, 857e6),
}


def hours() -> dict[str, str]:
    measured = json.loads((BENCHMARKS / "gpu_h200_graphs.json").read_text(encoding="utf-8"))
    step_ms = {row["row"]: row["replay ms"] for row in measured["step without Trainer"]}
    rows = []
    for model, (steps, n_bytes) in TRAININGS.items():
        for count, tokens in ((1, "25k"), (8, "3k")):
            for card, (tflops, terabytes, ring, dollars) in CARDS.items():
                added_ms = 2 * (count - 1) / count * n_bytes / ring / 1e6
                factors = sorted((H200_TFLOPS / tflops, H200_TERABYTES / terabytes))
                seconds = [
                    steps * (step_ms[f"step {model} {tokens}"] * factor + added_ms) / 1e3
                    for factor in factors
                ]
                rows.append(
                    {
                        "model": model,
                        "devices": f"{count} {card}",
                        "hours": _between([second / 3600 for second in seconds], 2),
                        "dollars": _between(
                            [second / 3600 * count * dollars for second in seconds], 0
                        ),
                    }
                )
    prices = ", ".join(
        f"{dollars:.2f} dollars for an {card}" for card, (*_, dollars) in CARDS.items()
    )
    return {
        "hours": table([Column(key) for key in ("model", "devices", "hours", "dollars")], rows),
        "prices": wrapped(f"The assumed prices per hour are {prices}."),
    }


def _between(values: Sequence[float], decimals: int) -> str:
    low, high = (f"{value:.{decimals}f}" for value in values)
    return low if low == high else f"{low} to {high}"


# The README, in two languages.

# Titles of the columns; what says that there is no score, and none published; of each row its title,
# text and hardware.
READMES = {
    "README.md": (
        ("score", "paper or published", "ours", "data", "hardware", "commit"),
        ("not run", "none"),
        {
            "wmt14": ("WMT14 en-de, newstest2014, BLEU of base, big", "4.5 M pairs", ""),
            "captions": (
                "[Multi30k en-fr](docs/results/multi30k.md#english-french-in-minutes), test 2016, "
                "sacreBLEU of a small model",
                "29,000 pairs",
                "one CPU core",
            ),
            "tatoeba_en_de": (
                "Tatoeba en-de, test, sacreBLEU of the [model in examples](examples/en-de.md), one "
                "run",
                "160,487 pairs",
                "one CPU core",
            ),
            "table3_quarter": (
                "[Table 3 at a quarter of its widths](docs/results/table3-quarter.md), dev, "
                "compound-split BLEU of base",
                "Tatoeba, 160,487 pairs",
                "one H100",
            ),
        },
    ),
    "README.zh-CN.md": (
        ("评测", "论文或已发表的结果", "本项目", "数据", "硬件", "提交"),
        ("未运行", "无"),
        {
            "wmt14": ("WMT14 英德，newstest2014，BLEU（base、big）", "450 万句对", ""),
            "captions": (
                "[Multi30k 英法](docs/results/multi30k.md#english-french-in-minutes)，test 2016，"
                "小模型的 sacreBLEU",
                "2.9 万句对",
                "一个 CPU 核",
            ),
            "tatoeba_en_de": (
                "Tatoeba 英德，测试集，[examples 中的模型](examples/en-de.md)的 sacreBLEU，训练一次",
                "160,487 句对",
                "一个 CPU 核",
            ),
            "table3_quarter": (
                "[表 3，模型宽度为论文的四分之一](docs/results/table3-quarter.md)，base 在开发集上的 "
                "BLEU（拆分复合词，compound-split）",
                "Tatoeba，160,487 句对",
                "一块 H100",
            ),
        },
    ),
}


def readme(name: str) -> dict[str, str]:
    titles, (not_run, none), rows = READMES[name]
    runs = {study: published(study) for study in rows if study != "wmt14"}
    runs["table3_quarter"] = [
        run for run in runs["table3_quarter"] if run.folder.path.name.startswith("base")
    ]
    metrics = {
        "captions": Metric("sacrebleu", "test"),
        "tatoeba_en_de": Metric("sacrebleu", "test"),
        "table3_quarter": Metric("bleu_compound_split", "val"),
    }
    records = []
    for study, (title, text, hardware) in rows.items():
        paper, score, commit = "27.3, 28.4", not_run, ""
        if study in runs:
            [group] = group_runs(runs[study])
            paper, score = none, with_interval(group.sample(metrics[study]), 2)
            commit = _commit(study)
        cells = (title, paper, score, text, hardware, commit)
        records.append(dict(zip(titles, cells, strict=True)))
    return {"results": table([Column(title) for title in titles], records)}


def _commit(study: str) -> str:
    """Return the short commit of the program that trained the study's runs."""
    return next(iter(read_study(RESULTS / f"{study}.jsonl").values()))["origin"]["commit"][:7]


Blocks = Callable[[], Mapping[str, str]]
PAGES: dict[Path, tuple[Blocks, ...]] = {
    ROOT / "README.md": (partial(readme, "README.md"),),
    ROOT / "README.zh-CN.md": (partial(readme, "README.zh-CN.md"),),
    ROOT / "docs/quickstart.md": (quickstart,),
    ROOT / "docs/install.md": (install,),
    ROOT / "examples/en-de.md": (packed_model,),
    ROOT / "docs/results/table3-quarter.md": (table3_quarter.blocks, multi30k_quarter.blocks),
    ROOT / "docs/results/cross-check.md": (cross_check.blocks,),
    ROOT / "docs/results/multi30k.md": (multi30k,),
    ROOT / "docs/results/steps.md": (steps,),
    ROOT / "docs/results/paper-checked.md": (paper_checked,),
    ROOT / "docs/results/manuals.md": (manuals,),
    ROOT / "docs/results/performance.md": (performance,),
    ROOT / "docs/serve.md": (serve,),
    ROOT / "docs/your-own-text.md": (how_much_text.blocks,),
    ROOT / "docs/reproduce.md": (hours,),
}


def blocks_of(page: Path) -> dict[str, str]:
    return {name: text for blocks in PAGES[page] for name, text in blocks().items()}


def main() -> None:
    for page in PAGES:
        publish(page, blocks_of(page))


if __name__ == "__main__":
    main()
