"""Differences between groups of runs, as far as they may be compared."""

from collections.abc import Callable, Sequence

from aiayn.config.tasks import VAL_METRICS
from aiayn.errors import ConfigError
from aiayn.reports.groups import Group, agree, scored_text
from aiayn.reports.intervals import Difference, Sample, holm, pooled, pooled_spread, welch
from aiayn.reports.metrics import FORCED, Metric

# Per token of one text and one vocabulary: perplexities and losses can be compared while these are equal.
OF_THE_TEXT = ("data.source", "data.hub_path", "data.hub_name", "data.hub_revision", "data.src_lang", "data.tgt_lang")
OF_TOKENS = (*OF_THE_TEXT, "data.train", "data.val", "data.vocab_size", "data.tokenizer_pairs")


def comparable(metric: Metric, group: Group, other: Group) -> bool:
    """Whether a metric of two groups has the same unit.

    Scores need the same text and signature, perplexities the same vocabulary, losses the same label smoothing, too.
    """
    if metric.split is not None:
        keys = OF_TOKENS if metric.name in FORCED else ()
        return agree(*(scored_text(one.runs[0], [metric]) for one in (group, other))) and _agree_in(keys, group, other)
    if not metric.name.startswith(("val/", "train/loss")):
        return True
    keys = OF_TOKENS
    if metric.name in VAL_METRICS:
        keys = (*OF_THE_TEXT, "data.val")
    elif metric.name.endswith("/loss"):
        keys = (*OF_TOKENS, "optim.label_smoothing")
    return _agree_in(keys, group, other)


def _agree_in(keys: Sequence[str], group: Group, other: Group) -> bool:
    return all(group.options.get(key) == other.options.get(key) for key in keys)


def find_baseline(groups: Sequence[Group], name: str) -> Group:
    """Returns the group with this name. Raises ConfigError unless exactly one has it."""
    found = [group for group in groups if group.is_called(name)]
    if len(found) != 1:
        said = "names several groups" if found else "is none of these groups"
        names = ", ".join(dict.fromkeys(run.name for group in found or groups for run in group.runs[:1]))
        raise ConfigError(f"--baseline {name}: {said}; name a run's folder, such as one of {names}")
    return found[0]


def compare(
    groups: Sequence[Group],
    metrics: Sequence[Metric],
    baseline_of: Callable[[Group], Group | None],
    is_pooled: bool = False,
) -> dict[tuple[int, str], Difference]:
    """Returns each group's differences from its baseline, by place of the group and key of the metric.

    p-values are corrected by Holm's method for all of them. `is_pooled`: all groups share one standard deviation.
    """
    found: dict[tuple[int, str], Difference] = {}
    for metric in metrics:
        samples = [group.sample(metric) for group in groups]
        spread = pooled_spread(_of_one_unit(metric, groups, samples, baseline_of)) if is_pooled else None
        for place, (group, sample) in enumerate(zip(groups, samples, strict=True)):
            base = baseline_of(group)
            of_base = None if base is None or base is group else base.sample(metric)
            if base is not None and sample and of_base and comparable(metric, group, base):
                difference = pooled(sample, of_base, spread) if is_pooled else welch(sample, of_base)
                found[place, metric.key] = difference
    return dict(zip(found, holm(list(found.values())), strict=True))


def _of_one_unit(
    metric: Metric,
    groups: Sequence[Group],
    samples: Sequence[Sample | None],
    baseline_of: Callable[[Group], Group | None],
) -> list[Sample]:
    pairs = [(sample, group, baseline_of(group)) for sample, group in zip(samples, groups, strict=True)]
    return [sample for sample, group, base in pairs if sample and base and comparable(metric, group, base)]
