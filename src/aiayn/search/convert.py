"""Converts a model for CTranslate2, and keeps it beside its checkpoint, where `FastTranslator`
finds it.

The folder is named by the fingerprint of the checkpoint file, so it is never that of other weights.
"""

import glob
import math
import shutil
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from aiayn.config.model import ModelConfig
from aiayn.config.stored import to_dict
from aiayn.data.tokenizer import TOKEN, Tokenizer
from aiayn.files import atomic_folder, sha256, write_json
from aiayn.kernels.accelerate import is_exactly
from aiayn.model.attention import MultiHeadAttention, attention
from aiayn.model.embedding import (
    LearnedPositions,
    SharedEmbedding,
    SinusoidalPositions,
    TiedOutput,
    sinusoids,
)
from aiayn.model.layers import AddNorm, DecoderLayer, EncoderLayer, FeedForward
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import Checkpoint
from aiayn.search.build import load_tokenizer
from aiayn.search.fast_translator import ABOUT, FORMAT, converted_folder, fingerprint
from aiayn.token_ids import BOS_ID, EOS_ID, UNK_ID

POSITIONS = 4096  # size of the tables of sinusoids; torch translates longer lines
# A model can be converted if its modules are of exactly these classes.
EXPRESSIBLE = (
    Transformer,
    EncoderLayer,
    DecoderLayer,
    MultiHeadAttention,
    FeedForward,
    AddNorm,
    SharedEmbedding,
    TiedOutput,
    SinusoidalPositions,
    LearnedPositions,
    nn.ModuleList,
    nn.Linear,
    nn.LayerNorm,
    nn.Dropout,
    nn.Identity,
)


def why_not_converted(model: Transformer) -> str | None:
    """Names the part of a model that CTranslate2 does not support; None if it supports all of it.
    The model is not accelerated.
    """
    if model.config.attention_window is not None:
        return f"model.attention_window={model.config.attention_window}"
    for name, module in model.named_modules():
        if not any(is_exactly(module, expressible) for expressible in EXPRESSIBLE):
            return f"{name or 'the model'} ({type(module).__name__} or a hook on it)"
        is_ours = isinstance(module, MultiHeadAttention | FeedForward)
        if is_ours and not all(is_exactly(child, nn.Linear) for child in module.children()):
            return f"{name}, whose matrices are not plain linear layers"
    final_norms = model.encoder_norm, model.decoder_norm
    if not all(is_exactly(norm, nn.Identity) for norm in final_norms):
        return "a norm after the layers"
    if type(model.output) not in (TiedOutput, nn.Linear):
        return "the output layer"
    for name, module in model.named_modules():
        if _is_unlike_the_options(module, model.config):
            return f"{name}, which differs from the model's options"
    return None


def _is_unlike_the_options(module: nn.Module, config: ModelConfig) -> bool:
    """Returns whether one of the paper's modules has parts, sizes or constants that CTranslate2
    does not get from it.
    """
    match module:
        case MultiHeadAttention():
            sizes = [config.n_heads, config.n_heads * config.d_k, config.n_heads * config.d_v]
            biased = any(child.bias is not None for child in module.children())
            module_sizes = [module.n_heads, len(module.w_q.weight), len(module.w_v.weight)]
            return module.attention is not attention or biased or module_sizes != sizes
        case AddNorm():
            norm = module.norm
            return type(norm) is not nn.LayerNorm or norm.eps != 1e-5 or norm.bias is None
        case EncoderLayer() | DecoderLayer():
            return type(module.feed_forward) is not FeedForward
        case SharedEmbedding():
            return module.scale != math.sqrt(config.d_model)
        case SinusoidalPositions():
            return config.positions == "learned"
        case LearnedPositions():
            return config.positions != "learned" or len(module.table) != config.max_positions
    return False


def write_ctranslate2(model: Transformer, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes a model in float32 as CTranslate2 reads it, with its subwords by id.
    `why_not_converted` must be None.
    """
    from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec

    config = model.config
    shape: dict[str, Any] = {"pre_norm": False}
    queries_scale = None  # CTranslate2's own
    if config.d_k != config.d_v or config.d_k * config.n_heads != config.d_model:
        shape["head_dim"] = max(config.d_k, config.d_v)  # to which heads are padded with zeros
        queries_scale = config.d_k**-0.5
    spec: Any = TransformerSpec(
        TransformerEncoderSpec(len(model.encoder), config.n_heads, **shape),
        TransformerDecoderSpec(len(model.decoder), config.n_heads, **shape),
    )
    for stack, layers, positions in (
        (spec.encoder, model.encoder, model.src_positions),
        (spec.decoder, model.decoder, model.tgt_positions),
    ):
        learned = isinstance(positions, LearnedPositions)
        table = positions.table if learned else sinusoids(POSITIONS, config.d_model)
        stack.position_encodings.encodings = _array(table)
        for layer_spec, layer in zip(stack.layer, layers, strict=True):
            _put_layer(layer_spec, layer, queries_scale)
    sources = model.src_embedding or model.embedding
    for embeddings, ours in (
        (spec.encoder.embeddings[0], sources),
        (spec.decoder.embeddings, model.embedding),
    ):
        embeddings.weight, embeddings.multiply_by_sqrt_depth = _array(ours.weight), True
    assert isinstance(model.output.weight, Tensor)
    spec.decoder.projection.weight = _array(model.output.weight)
    if (bias := getattr(model.output, "bias", None)) is not None:
        spec.decoder.projection.bias = _array(bias)

    spec.register_source_vocabulary(tokenizer.source.subwords)
    spec.register_target_vocabulary(tokenizer.subwords)
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = spec.config.bos_token = TOKEN[BOS_ID]
    spec.config.eos_token, spec.config.unk_token = TOKEN[EOS_ID], TOKEN[UNK_ID]
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


def _put_layer(spec: Any, layer: EncoderLayer | DecoderLayer, queries_scale: float | None) -> None:
    """Sets the weights of a layer, whose queries are scaled by 1 / sqrt(d_k) where heads are
    padded.
    """
    q, k, v, o = _projections(layer.self_attention)
    blocks = [(spec.self_attention, [torch.cat([q, k, v]), o], layer.norm_1)]
    last_norm = layer.norm_2
    if isinstance(layer, DecoderLayer):
        q, k, v, o = _projections(layer.cross_attention)
        blocks.append((spec.attention, [q, torch.cat([k, v]), o], layer.norm_2))
        last_norm = layer.norm_3
    for block, matrices, norm in blocks:
        for linear, matrix in zip(block.linear, matrices, strict=True):
            _put(linear, matrix)
        _put_norm(block, norm)
        if queries_scale:
            block.queries_scale = _array(torch.tensor(queries_scale))
    assert isinstance(layer.feed_forward, FeedForward)
    w_1, w_2 = layer.feed_forward.w_1, layer.feed_forward.w_2
    _put(spec.ffn.linear_0, w_1.weight, w_1.bias)
    _put(spec.ffn.linear_1, w_2.weight, w_2.bias)
    _put_norm(spec.ffn, last_norm)


def _put(linear: Any, weight: Tensor, bias: Tensor | None = None) -> None:
    """Sets weights, and a bias of zero where ours have none."""
    linear.weight = _array(weight)
    linear.bias = _array(torch.zeros(len(weight)) if bias is None else bias)


def _put_norm(block: Any, add_norm: nn.Module) -> None:
    norm = cast(nn.LayerNorm, add_norm.norm)
    block.layer_norm.gamma = _array(norm.weight)
    block.layer_norm.beta = _array(norm.bias)


def _array(weight: Tensor) -> Any:
    return weight.detach().float().contiguous().numpy()


def _projections(module: MultiHeadAttention) -> list[Tensor]:
    """Returns w_q, w_k, w_v and w_o with heads of one size: zeros are added to the smaller ones."""
    size = max(len(linear.weight) for linear in (module.w_q, module.w_v)) // module.n_heads

    def padded(weight: Tensor) -> Tensor:
        heads = weight.detach().unflatten(0, (module.n_heads, -1))
        return nn.functional.pad(heads, (0, 0, 0, size - heads.size(1))).flatten(0, 1)

    q, k, v = (padded(linear.weight) for linear in (module.w_q, module.w_k, module.w_v))
    return [q, k, v, padded(module.w_o.weight.T).T]


def write_converted(
    path: Path, checkpoint: Checkpoint, model: Transformer, into: Path | None = None
) -> tuple[Path, dict[str, Any]]:
    """Converts the model of a checkpoint file, by default beside it, and removes earlier
    conversions of a file of this name.

    Returns the new folder, whole under its final name, and what `FastTranslator` needs besides
    CTranslate2's own files. Raises OSError if it cannot be written.
    """
    folder = into or converted_folder(path)
    shutil.rmtree(folder, ignore_errors=True)  # a damaged one
    data, learned = checkpoint.config.data, model.config.positions == "learned"
    about: dict[str, Any] = {
        "format": FORMAT,
        "checkpoint": fingerprint(path),
        "search": to_dict(checkpoint.config.search),
        "task": data.task,
        "src_lang": data.src_lang,
        "tgt_lang": data.tgt_lang,
        "d_model": model.config.d_model,
        "positions": model.config.max_positions if learned else POSITIONS,
        "learned": learned,
        "tokenizer": checkpoint.tokenizer,
    }
    with atomic_folder(folder) as unfinished:
        write_ctranslate2(model, load_tokenizer(checkpoint), unfinished)
        about["files"] = {file.name: sha256(file) for file in sorted(unfinished.iterdir())}
        write_json(unfinished / ABOUT, about)
    if into is None:
        # Remove what was converted of earlier checkpoints of this name.
        for other in path.parent.glob(f"{glob.escape(path.stem)}.ctranslate2-*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
    return folder, about
