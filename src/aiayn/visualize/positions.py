"""Position encodings of a model (section 3.5), for pictures."""

import torch
from torch import Tensor
from torch.nn import functional as F

from aiayn.model.embedding import LearnedPositions, SinusoidalPositions
from aiayn.model.transformer import Transformer

SHOWN = 128  # positions; most sentences are shorter


@torch.inference_mode()
def position_tables(model: Transformer) -> dict[str, Tensor]:
    """The first encodings (P, D), P at most 128, by their name; two where encoder and decoder have their own.

    None of an extension that adds nothing to the embeddings, such as rotary positions.
    """
    if type(model.src_positions) is SinusoidalPositions:
        return {"sinusoidal positions": model.src_positions(0, SHOWN).float().cpu()}
    learned = type(model.src_positions) is LearnedPositions
    length = min(SHOWN, model.config.max_positions) if learned else SHOWN
    tables = {
        f"{'learned positions' if learned else 'positions'} of the {name}": table(0, length)
        for name, table in (("encoder", model.src_positions), ("decoder", model.tgt_positions))
    }
    whole = (length, model.config.d_model)
    return {name: table.float().cpu() for name, table in tables.items() if table.shape == whole and table.any()}


def similarities(table: Tensor) -> Tensor:
    """table (P, D). Returns the dot products of all pairs, scaled so that each with itself gives 1: (P, P)."""
    unit = F.normalize(table, dim=1)
    return unit @ unit.T
