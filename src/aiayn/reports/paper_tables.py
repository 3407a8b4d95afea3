"""Tables 2, 3 and 4 of the paper: what was measured, beside what was published."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from aiayn.config.tasks import TASKS
from aiayn.reports.groups import Group, group_runs, partitions
from aiayn.reports.metrics import Metric
from aiayn.reports.published import (
    QUARTER_TABLE_3,
    TABLE_2,
    TABLE_3,
    TABLE_4,
)
from aiayn.reports.runs import MeasuredRun
from aiayn.reports.table import NOT_RUN, Table
from aiayn.reports.table_2 import is_of_result, is_tested, table_2, table_2_record
from aiayn.reports.table_3 import BLEU, change_table, changes, is_of_row, table_3, table_3_quarter, table_3_record
from aiayn.reports.table_4 import is_parser_of, table_4, table_4_record
from aiayn.runs.run_folder import Record

T = TypeVar("T")


class PaperTables(NamedTuple):
    """The records of all tables by name, rows without a run included, and the tables to show."""

    records: dict[str, list[Record]]
    tables: list[Table]
    changes: list[Table]  # those of them with differences from base


def paper_tables(runs: Sequence[MeasuredRun], is_pooled: bool = False, every_row: bool = False) -> PaperTables:
    """Returns Tables 2, 3 and 4, and Table 3 at a quarter of its widths, with the paper's results for the full ones.

    A run belongs to a row by its configuration, not by its name; seeds of a row are one line. A table with two measured
    rows is shown whole, one with a single measured row shows that row, one with none is left out, unless `every_row`.
    """
    scored = [BLEU, Metric("sacrebleu", "test"), Metric("f1", "test")]
    groups = [group for members in partitions(runs, scored) for group in group_runs(members)]
    translators, parsers = ([group for group in groups if group.runs[0].task == task] for task in TASKS)
    results = [pair for pair in _beside(TABLE_2, translators, is_of_result) if pair[0] or is_tested(pair[1])]
    rows = _beside((*TABLE_3, *QUARTER_TABLE_3), translators, is_of_row)
    parsing = _beside(TABLE_4, parsers, is_parser_of)
    full_rows, quarter_rows = ([pair for pair in rows if pair[0] in of] for of in (TABLE_3, QUARTER_TABLE_3))
    records = {
        "table_2": [table_2_record(*pair) for pair in results],
        "table_3": [table_3_record(*pair) for pair in full_rows],
        "table_3_quarter": [table_3_record(*pair) for pair in quarter_rows],
        "table_4": [table_4_record(*pair) for pair in parsing],
    }
    full, quarter = (changes(pairs, is_pooled) for pairs in (full_rows, quarter_rows))
    against_base = [
        change_table("Table 3: change against base", full, is_pooled),
        change_table("Table 3 at a quarter of its widths: change against base", quarter, is_pooled),
    ]
    tables = [
        table_2(*_shown(results, records["table_2"], every_row)),
        table_3(*_shown(full_rows, records["table_3"], every_row), full.left_out),
        against_base[0],
        table_3_quarter(*_shown(quarter_rows, records["table_3_quarter"], False), quarter.left_out),
        against_base[1],
        table_4(*_shown(parsing, records["table_4"], every_row)),
    ]
    records |= {"changes": full.records or quarter.records}
    return PaperTables(records, *([table for table in some if table.records] for some in (tables, against_base)))


def _beside(
    published: Sequence[T], groups: Sequence[Group], is_of: Callable[[Group, T], bool]
) -> list[tuple[T | None, Group | None]]:
    """Pairs every published result with each of its groups, or with None, and then None with all other groups."""
    pairs: list[tuple[T | None, Group | None]] = []
    others = list(groups)
    for result in published:
        members = [group for group in others if is_of(group, result)]
        others = [group for group in others if group not in members]
        pairs += [(result, group) for group in members or [None]]
    return pairs + [(None, group) for group in others]


def _shown(
    pairs: Sequence[tuple[T | None, Group | None]], records: Sequence[Record], every_row: bool
) -> tuple[list[Record], list[str]]:
    """Returns the records of `pairs` to show, marked where they were not run, and a line about those left out."""
    measured = [record for record, (_, group) in zip(records, pairs, strict=True) if group]
    rows = len({id(published) for published, group in pairs if published and group})
    if every_row or rows > 1:
        return [record if record["run"] else record | _not_run(record) for record in records], []
    if rows == 0:
        return [], []
    left_out = len(records) - len(measured)
    return measured, [f"{left_out} rows of this table were not run; --all shows them, too."] if left_out else []


def _not_run(record: Record) -> Record:
    return {
        key: NOT_RUN for key in ("ppl", "bleu", "f1", "steps", "flops") if key in record and not record.get("rival")
    }
