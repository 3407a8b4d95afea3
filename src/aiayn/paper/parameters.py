"""Parameter counts of the rows of Table 3, and the vocabulary that the printed ones were counted with."""

from dataclasses import replace
from typing import Any

from aiayn.model.flops import n_parameters
from aiayn.paper.published import BIG, FITTED_VOCABULARY, TABLE_3


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


def finding() -> str:
    """Returns what follows from the counts about the paper's vocabulary; all its figures are computed."""
    off = {r["row"]: r["difference_fitted"] for r in parameter_table(37_000) if r["difference_fitted"] is not None}
    widest = max(abs(value) for name, value in off.items() if name != "big")
    # Vocabulary sizes that give big's printed 213, which stands for anything from 212.5 to 213.5 millions.
    first, last = (round((millions * 1e6 - n_parameters(BIG.model(), 0)) / BIG.d_model) for millions in (212.5, 213.5))
    smaller = [row for row in TABLE_3 if row.name in ("b_dk16", "b_dk32")]
    both = [n_parameters(replace(row.model(), d_v=row.d_k), FITTED_VOCABULARY) / 1e6 for row in smaller]
    return (
        f"With a vocabulary of {FITTED_VOCABULARY:,} every base-sized row is within {widest:.2f} M of the printed "
        "figure; with the 37,000 of section 5.1 none is within 1 M. 40,960 is the padded vocabulary of the authors' "
        f"first release. big's 213 M fits {first:,} to {last:,} subwords: the paper's rows do not share a vocabulary. "
        f"Row (B) shrinks d_k alone: with d_v shrunk too its rows would have {both[0]:.1f} and {both[1]:.1f} M, "
        "not 58 and 60. Row (E) is counted with 512 learned positions a side, which the paper does not state."
    )
