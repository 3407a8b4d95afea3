"""Parameter counts of the rows of Table 3, and the vocabulary that the printed ones were counted with."""

from typing import Any

from aiayn.model.flops import n_parameters
from aiayn.reports.published import FITTED_VOCABULARY, TABLE_3


def parameter_table(vocab_size: int) -> list[dict[str, Any]]:
    """Returns for every row of Table 3 the printed millions and those counted with two vocabularies.

    These have `vocab_size` and FITTED_VOCABULARY entries. `difference` is counted - printed; None where the paper
    prints nothing.
    """
    records = []
    for row in TABLE_3:
        record: dict[str, Any] = {"row": row.name, "paper": row.parameters}
        for name, size in (("", vocab_size), ("_fitted", FITTED_VOCABULARY)):
            counted = n_parameters(row.model(), size) / 1e6
            record |= {f"vocab_size{name}": size, f"parameters{name}": counted}
            record[f"difference{name}"] = None if row.parameters is None else counted - row.parameters
        records.append(record)
    return records
