"""Runs of a sweep that differ in their seed alone: mean and spread of what they measured."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any


def seed_groups(options: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Returns the names of runs with the same options but for their seeds, in order; groups of two seeds or more.

    `options` are the options that differ among the runs, by the name of the run.
    """
    groups: dict[str, list[str]] = {}
    for name, values in options.items():
        groups.setdefault(str({key: value for key, value in values.items() if key != "seed"}), []).append(name)
    return [names for names in groups.values() if len({str(options[name].get("seed")) for name in names}) > 1]


def mean_and_spread(values: Sequence[float | None]) -> str | None:
    """Returns "25.10 ± 0.21", mean and standard deviation of the sample; None where a run was not measured.

    Its spaces do not break, so that it stays on one line of a page.
    """
    measured = [value for value in values if value is not None]
    if len(measured) < len(values):
        return None
    return f"{mean(measured):.2f}\u00a0±\u00a0{stdev(measured):.2f}"
