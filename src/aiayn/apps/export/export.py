"""Exports a model and its tokenizer to CTranslate2, and to Marian in Hugging Face's transformers.

Models that a format does not support are refused.
"""

import json
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aiayn.config.model import ModelConfig
from aiayn.config.search import SearchConfig
from aiayn.config.stored import to_dict
from aiayn.data.tokenizer import TOKEN, Tokenizer
from aiayn.errors import ConfigError, RefusedError, writing
from aiayn.files import atomic_folder, atomic_write, write_json
from aiayn.model.embedding import TiedOutput
from aiayn.model.layers import FeedForward
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import Checkpoint
from aiayn.search.build import load_model, load_tokenizer
from aiayn.search.convert import why_not_converted, write_ctranslate2
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

MARIAN_POSITIONS = 1024  # that its tables have
MARIAN_NAMES = {  # applied in this order
    r"^(encoder|decoder)": r"model.\1.layers",
    r"^embedding": "model.shared",
    r"self_attention": "self_attn",
    r"cross_attention": "encoder_attn",
    r"w_o": "out_proj",
    r"w_([qkv])": r"\1_proj",
    r"feed_forward\.w_": "fc",
    r"norm_1\.norm": "self_attn_layer_norm",
    r"(decoder.*)norm_2\.norm": r"\1encoder_attn_layer_norm",
    r"norm_[23]\.norm": "final_layer_norm",
}


def export_ctranslate2(checkpoint: Checkpoint, folder: Path) -> None:
    """Writes model, tokenizers and search in float32 for CTranslate2 to a new folder.

    Raises ConfigError for a missing library, RefusedError for a model that the format cannot
    express or a folder that is not empty, ResourceError if the folder cannot be written.
    """
    model = _exportable(checkpoint, "ctranslate2", "ctranslate2", why_not_converted, folder)
    tokenizer = load_tokenizer(checkpoint)
    # CTranslate2 names the files of two vocabularies; nothing decodes with that of the source.
    tokenizers = {"tokenizer": tokenizer}
    if tokenizer.source is not tokenizer:
        tokenizers = {"source_tokenizer": tokenizer.source, "target_tokenizer": tokenizer}
    with writing(folder, "make room and repeat"), atomic_folder(folder) as unfinished:
        write_ctranslate2(model, tokenizer, unfinished)
        for name, side in tokenizers.items():
            tree = _tokenizer(side)
            # Without special tokens among them, text that looks like one is encoded as text.
            symbols = [token for token in tree["added_tokens"] if not token["special"]]
            text = json.dumps(tree | {"added_tokens": symbols}, ensure_ascii=False)
            atomic_write(unfinished / f"{name}.json", text)
        write_json(unfinished / "search.json", to_dict(checkpoint.config.search))


def export_marian(checkpoint: Checkpoint, folder: Path, card: str | None = None) -> None:
    """Writes model and tokenizer in float32 for Marian in Hugging Face's transformers.

    `card` is the text of a README.md beside them. Raises what `export_ctranslate2` raises.
    """
    model = _exportable(checkpoint, "marian", "transformers", _why_not_marian, folder)
    tokenizer = _tokenizer(load_tokenizer(checkpoint))
    with writing(folder, "make room and repeat"), atomic_folder(folder) as unfinished:
        _write_marian(model, checkpoint.config.search, tokenizer, unfinished)
        if card:
            atomic_write(unfinished / "README.md", card)


def _exportable(
    checkpoint: Checkpoint,
    target: str,
    library: str,
    why_not: Callable[[Transformer], str | None],
    folder: Path,
) -> Transformer:
    """Returns the model. Raises what `export_ctranslate2` raises for library, model and folder."""
    if find_spec(library) is None:
        raise ConfigError(f"--format {target} needs {library}: pip install 'aiayn[export]'")
    model = load_model(checkpoint)
    if reason := why_not(model):
        raise RefusedError(
            f"--format {target} does not support {reason}; translate with `aiayn translate` instead"
        )
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise RefusedError(f"{folder}: exists and is not an empty folder; choose a new one")
    return model


def _why_not_marian(model: Transformer) -> str | None:
    """Names the part of a model that Marian does not support; None if it supports all of it."""
    if reason := why_not_converted(model):
        return reason
    config, per_head = model.config, model.config.d_model // model.config.n_heads
    unsupported = {
        f"model.d_k={config.d_k} (other than d_model / n_heads = {per_head})": config.d_k
        != per_head,
        f"model.d_v={config.d_v} (other than d_model / n_heads = {per_head})": config.d_v
        != per_head,
        "model.positions=learned": config.positions == "learned",
        "untied embeddings (model.tie_embeddings)": model.src_embedding is not None
        or not isinstance(model.output, TiedOutput)
        or model.output.tied_to != (model.embedding,),
        "layers unlike the options of model": (len(model.encoder), len(model.decoder))
        != (config.n_layers, config.decoder_layers)
        or any(
            len(feed_forward.w_1.weight) != config.d_ff
            for feed_forward in model.modules()
            if isinstance(feed_forward, FeedForward)
        ),
    }
    return next((option for option, applies in unsupported.items() if applies), None)


def _tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the JSON of the tokenizer, extended by the normalisation of lines that `Translator`
    does before it.
    """
    tree = json.loads(tokenizer.to_json())
    tree.pop("source", None)
    edges = "\\A[\\s\x1c-\x1f\x85]+|[\\s\x1c-\x1f\x85]+\\z"
    strip = {"type": "Replace", "pattern": {"Regex": edges}, "content": ""}
    *steps, prepend = tree["normalizer"]["normalizers"]
    tree["normalizer"] = {"type": "Sequence", "normalizers": [*steps, strip, prepend]}
    return tree


def _write_marian(
    model: Transformer, search: SearchConfig, tokenizer: dict[str, Any], folder: Path
) -> None:
    from transformers import GenerationConfig, MarianConfig, MarianMTModel  # pyright: ignore[reportMissingImports]
    from transformers.utils import logging  # pyright: ignore[reportMissingImports]

    logging.disable_progress_bar()
    ids = {
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,
    }
    marian = MarianMTModel(MarianConfig(**marian_settings(model.config, model.vocab_size), **ids))
    # Not strict: Marian's biases in attention and output layer, which ours lacks, are initialised
    # to zero.
    marian.load_state_dict(_marian_weights(model), strict=False)
    marian.generation_config = GenerationConfig(
        num_beams=search.beam_size,
        length_penalty=search.length_penalty,
        max_length=MARIAN_POSITIONS // 2,
        suppress_tokens=[PAD_ID, BOS_ID],
        **ids,
    )
    marian.save_pretrained(folder)
    # save_pretrained makes this file readable for its owner only; give it the mode of the other
    # files.
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode & 0o777)
    _write_marian_tokenizer(tokenizer, folder)


def _write_marian_tokenizer(tree: dict[str, Any], folder: Path) -> None:
    from transformers import PreTrainedTokenizerFast  # pyright: ignore[reportMissingImports]

    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    eos = {"SpecialToken": {"id": TOKEN[EOS_ID], "type_id": 0}}
    tree["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, eos],
        "pair": [first, eos, second, eos],
        "special_tokens": {
            TOKEN[EOS_ID]: {"id": TOKEN[EOS_ID], "ids": [EOS_ID], "tokens": [TOKEN[EOS_ID]]}
        },
    }
    path = folder / "tokenizer.json"
    atomic_write(path, json.dumps(tree, ensure_ascii=False))
    PreTrainedTokenizerFast(
        tokenizer_file=str(path),
        pad_token=TOKEN[PAD_ID],
        bos_token=TOKEN[BOS_ID],
        eos_token=TOKEN[EOS_ID],
        unk_token=TOKEN[UNK_ID],
        split_special_tokens=True,  # text that looks like a special token is encoded as text
        clean_up_tokenization_spaces=False,
        model_max_length=MARIAN_POSITIONS,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)


def marian_settings(config: ModelConfig, vocab_size: int) -> dict[str, Any]:
    """Returns the sizes of a model as `transformers.MarianConfig` names them."""
    return {
        "vocab_size": vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.n_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.n_heads,
        "decoder_attention_heads": config.n_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "dropout": config.dropout,
        "max_position_embeddings": MARIAN_POSITIONS,
        "activation_function": "relu",
        "scale_embedding": True,
        "static_position_embeddings": True,
        "tie_word_embeddings": True,
        "share_encoder_decoder_embeddings": True,
    }


def _marian_weights(model: Transformer) -> dict[str, Tensor]:
    """Returns the weights under Marian's names, with d_model channels in Marian's order.

    Marian computes its own sinusoids, all sines before all cosines; ours alternate. The order of
    channels means nothing to a Transformer, so permuting them in every weight gives the same
    function.
    """
    order = torch.arange(model.config.d_model).view(-1, 2).T.flatten()  # 0, 2, 4, ..., 1, 3, 5, ...
    marian_weights = {}
    for name, weight in model.state_dict().items():
        if name.endswith(
            ("w_q.weight", "w_k.weight", "w_v.weight", "w_1.weight", "embedding.weight")
        ):
            weight = weight[:, order]  # reads channels
        elif not name.endswith("w_1.bias"):
            weight = weight[order]  # writes channels
        for pattern, marian in MARIAN_NAMES.items():
            name = re.sub(pattern, marian, name)
        marian_weights[name] = weight.float()
    return marian_weights
