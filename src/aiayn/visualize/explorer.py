"""A page to explore attention with: one file that holds everything, for any browser, with no
network.
"""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, FileSystemLoader
from torch import Tensor
from torch.nn import functional as F

from aiayn.config.model import ModelConfig
from aiayn.errors import DataError, writing
from aiayn.files import atomic_write
from aiayn.model.embedding import LearnedPositions, SinusoidalPositions
from aiayn.model.transformer import Transformer
from aiayn.reports.drawing import readable
from aiayn.visualize.maps import AttentionMaps

MAX_WEIGHTS = 8_000_000  # a byte each; a page of 11 MB is one that browsers still open at once
SHOWN = 128  # positions; most sentences are shorter
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True
)


def write_explorer(
    path: Path, maps: AttentionMaps, positions: Mapping[str, Tensor], config: ModelConfig, name: str
) -> None:
    """Writes the page for a sentence and the model's positions, tables (P, D); `name` is that of
    the run.

    Raises DataError where the sentence is too long for a page, ResourceError where the file cannot
    be written.
    """
    page = explorer_page(maps, positions, config, name)
    with writing(path):
        atomic_write(path, page)


def explorer_page(
    maps: AttentionMaps, positions: Mapping[str, Tensor], config: ModelConfig, name: str
) -> str:
    """Returns the page as HTML. Weights are rounded to 1/255. Raises DataError for more than 8
    million of them.
    """
    n_weights = maps.encoder_self.numel() + maps.decoder_self.numel() + maps.cross.numel()
    if n_weights > MAX_WEIGHTS:
        raise DataError(
            f"the sentence has {len(maps.src)} subwords, its translation {len(maps.tgt_out)}: "
            f"{n_weights:,} weights, but a page shows at most {MAX_WEIGHTS:,}; give a shorter "
            "sentence"
        )
    encoder = _attention("Encoder self-attention", maps.src, maps.src, maps.encoder_self)
    encoder["queriesTitle"] = "reads"
    decoder = _attention("Decoder self-attention", maps.tgt_out, maps.tgt_in, maps.decoder_self)
    decoder["keysTitle"] = "looks back at"
    cross = _attention("Cross-attention", maps.tgt_out, maps.src, maps.cross)
    scores = maps.translation.score, maps.translation.log_prob
    score, log_prob = (f"{number:.3f}".replace("-", "−") for number in scores)
    kinds = {"encoder": encoder, "decoder": decoder, "cross": cross}
    tables = [_positions(title, table) for title, table in positions.items()]
    depth = f"{config.n_layers}"
    if config.decoder_layers != config.n_layers:
        depth += f" and {config.decoder_layers}"
    widths = f"d_model {config.d_model}, d_k {config.d_k}, d_v {config.d_v}"
    return TEMPLATES.get_template("explorer.html").render(
        run=name,
        model=f"{depth} layers, {config.n_heads} heads, {widths}",
        maps=maps,
        score=f"{score} (log-probability {log_prob}, divided by the search's length penalty)",
        layers=max(len(maps.encoder_self), len(maps.cross)),
        heads=maps.cross.size(1),
        data={"kinds": kinds, "positions": tables},
    )


def _attention(title: str, queries: list[str], keys: list[str], weights: Tensor) -> dict[str, Any]:
    """Returns what the page needs of weights (L, H, T, S) of T queries and S keys; the bytes stand
    in the same order.
    """
    layers, heads, _, _ = weights.shape
    return {
        "title": title,
        "queriesTitle": "writes",
        "queries": list(map(readable, queries)),
        "keysTitle": "looks at",
        "keys": list(map(readable, keys)),
        "layers": layers,
        "heads": heads,
        "weights": _bytes(weights, 0.0, 1.0),
    }


def _positions(title: str, table: Tensor) -> dict[str, Any]:
    """Returns a table (P, D) and the similarities of its rows (P, P), each as bytes between its low
    and its high.
    """
    length, width = table.shape
    largest = max(float(table.abs().max()), 1e-9)
    # Dot products, scaled so that each row with itself gives 1
    unit = F.normalize(table, dim=1)
    return {
        "title": title,
        "length": length,
        "width": width,
        "largest": largest,
        "table": _bytes(table, -largest, largest),
        "similarities": _bytes(unit @ unit.T, -1.0, 1.0),
    }


def _bytes(values: Tensor, low: float, high: float) -> str:
    """Encodes values between low and high as one byte each, 0 to 255, in base64."""
    shares = (values - low) / (high - low)
    scaled = (shares * 255).round().clamp(0, 255)
    content = bytes(scaled.byte().flatten().tolist())
    return base64.b64encode(content).decode()


@torch.inference_mode()
def position_tables(model: Transformer) -> dict[str, Tensor]:
    """Returns the first encodings (P, D), P at most 128, by their name; two where encoder and
    decoder have their own.

    None of an extension that adds nothing to the embeddings, such as rotary positions.
    """
    if type(model.src_positions) is SinusoidalPositions:
        return {"sinusoidal positions": model.src_positions(0, SHOWN).float().cpu()}
    length, adjective = SHOWN, ""
    if type(model.src_positions) is LearnedPositions:
        length = min(SHOWN, model.config.max_positions)
        adjective = "learned "
    tables = {}
    for stack, encode in (("encoder", model.src_positions), ("decoder", model.tgt_positions)):
        table = encode(0, length)
        if table.shape == (length, model.config.d_model) and table.any():
            tables[f"{adjective}positions of the {stack}"] = table.float().cpu()
    return tables
