"""Parameter counts of the rows of Table 3, and the vocabulary that the printed ones were counted with."""

from aiayn.model.flops import n_parameters
from aiayn.reports.published import FITTED_VOCABULARY, TABLE_3
from aiayn.reports.table import Column, Table
from aiayn.runs.run_folder import Record


def parameter_table(vocab_size: int) -> Table:
    """Returns for every row of Table 3 the printed millions and those counted with two vocabularies.

    These have `vocab_size` and FITTED_VOCABULARY entries. `difference` is counted - printed; None where the paper
    prints nothing.
    """
    sizes = {"": vocab_size, "_fitted": FITTED_VOCABULARY}
    records = []
    for row in TABLE_3:
        record: Record = {"row": row.name, "paper": row.parameters}
        for name, size in sizes.items():
            counted = n_parameters(row.model(), size) / 1e6
            record |= {f"vocab_size{name}": size, f"parameters{name}": counted}
            record[f"difference{name}"] = None if row.parameters is None else counted - row.parameters
        records.append(record)
    columns = [Column("row", "row"), Column("paper", "paper (M)")]
    for name, size in sizes.items():
        columns += [Column(f"parameters{name}", f"V = {size:,}", 2), Column(f"difference{name}", "difference", 2, True)]
    return Table("Table 3: parameters, in millions", columns, records)
