"""Exports a model and its tokenizer to CTranslate2, and to Marian in Hugging Face's transformers.

Models that a format cannot express are refused.
"""

import json
import os
import re
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aiayn.config.model import ModelConfig
from aiayn.config.rules import one_of
from aiayn.data.cleaning import SEPARATOR
from aiayn.data.tokenizer import SPECIAL_IDS
from aiayn.errors import ConfigError, RefusedError, ResourceError
from aiayn.files import atomic_write_text
from aiayn.model.embedding import sinusoids
from aiayn.runs.checkpoints import Checkpoint
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

LIBRARIES = {"ctranslate2": "ctranslate2", "marian": "transformers"}  # by format
POSITIONS = 1024  # length of exported position tables; CTranslate2 truncates longer sources
TOKEN = {number: token for token, number in SPECIAL_IDS.items()}
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


def export(checkpoint: Checkpoint, target: str, folder: Path, card: str | None = None) -> None:
    """Writes model and tokenizer in float32 to a new folder, in the format `target`: ctranslate2 or marian.

    `card` is the text of a README.md beside them.

    Raises ConfigError for an unknown format or a missing library, RefusedError for a model that the format cannot
    express or a folder that is not empty, ResourceError if the folder cannot be written.
    """
    one_of("format", target, tuple(LIBRARIES))
    if find_spec(LIBRARIES[target]) is None:
        raise ConfigError(f"--format {target} needs {LIBRARIES[target]}: pip install 'aiayn[export]'")
    _check_expressible(checkpoint.config.model, target)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise RefusedError(f"{folder}: exists and is not an empty folder; give a new one")
    # Written to a temporary folder and renamed, so that a folder under its final name is complete.
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        unfinished.mkdir(parents=True)
        (_write_ctranslate2 if target == "ctranslate2" else _write_marian)(checkpoint, unfinished)
        if card:
            atomic_write_text(unfinished / "README.md", card)
        os.replace(unfinished, folder)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written ({error.strerror or error}); make room and repeat") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _check_expressible(config: ModelConfig, target: str) -> None:
    per_head = config.d_model // config.n_heads
    unsupported = {
        f"model.attention_window={config.attention_window}": config.attention_window is not None,
        f"model.d_k={config.d_k} (other than d_model / n_heads = {per_head})": config.d_k != per_head,
        f"model.d_v={config.d_v} (other than d_model / n_heads = {per_head})": config.d_v != per_head,
        f"model.positions={config.positions}": config.positions == "learned" and target == "marian",
    }
    for option, applies in unsupported.items():
        if applies:
            raise RefusedError(f"--format {target} cannot express {option}; translate with `aiayn translate` instead")


def _tokenizer(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the JSON of the tokenizer, extended by the normalisation of lines that `Translator` does before it."""
    tree = json.loads(checkpoint.tokenizer)
    edges = "\\A[\\s\x1c-\x1f\x85]+|[\\s\x1c-\x1f\x85]+\\z"
    separators, edges = (
        {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
        for pattern, content in ((SEPARATOR.pattern, " "), (edges, ""))
    )
    *steps, prepend = tree["normalizer"].get("normalizers", [tree["normalizer"]])
    tree["normalizer"] = {"type": "Sequence", "normalizers": [separators, *steps, edges, prepend]}
    return tree


def _write_ctranslate2(checkpoint: Checkpoint, folder: Path) -> None:
    from ctranslate2.specs import TransformerSpec  # pyright: ignore[reportMissingImports]

    config = checkpoint.config.model
    weights = {name: weight.float() for name, weight in checkpoint.weights.items()}
    spec: Any = TransformerSpec.from_config((config.n_layers, config.n_layers), config.n_heads, pre_norm=False)

    def put_linear(linear: Any, module: str, *names: str) -> None:
        """Stacks projections into one, with a bias of zero where ours have none."""
        matrices = [weights[f"{module}.{name}.weight"] for name in names]
        biases = [weights.get(f"{module}.{name}.bias", torch.zeros(len(matrices[0]))) for name in names]
        linear.weight, linear.bias = torch.cat(matrices).numpy(), torch.cat(biases).numpy()

    for side, stack, positions in (("encoder", spec.encoder, "src"), ("decoder", spec.decoder, "tgt")):
        table = weights.get(f"{positions}_positions.table", sinusoids(POSITIONS, config.d_model))
        stack.position_encodings.encodings = table.numpy()
        for number, layer in enumerate(stack.layer):
            ours = f"{side}.{number}"
            norms = [layer.self_attention.layer_norm, layer.ffn.layer_norm]
            put_linear(layer.self_attention.linear[0], f"{ours}.self_attention", "w_q", "w_k", "w_v")
            put_linear(layer.self_attention.linear[1], f"{ours}.self_attention", "w_o")
            if side == "decoder":
                norms.insert(1, layer.attention.layer_norm)
                put_linear(layer.attention.linear[0], f"{ours}.cross_attention", "w_q")
                put_linear(layer.attention.linear[1], f"{ours}.cross_attention", "w_k", "w_v")
                put_linear(layer.attention.linear[2], f"{ours}.cross_attention", "w_o")
            put_linear(layer.ffn.linear_0, f"{ours}.feed_forward", "w_1")
            put_linear(layer.ffn.linear_1, f"{ours}.feed_forward", "w_2")
            for i, norm in enumerate(norms, 1):
                norm.gamma, norm.beta = (weights[f"{ours}.norm_{i}.norm.{name}"].numpy() for name in ("weight", "bias"))
    embedding = weights["embedding.weight"].numpy()
    for embeddings in (*spec.encoder.embeddings, spec.decoder.embeddings):
        embeddings.weight, embeddings.multiply_by_sqrt_depth = embedding, True
    spec.decoder.projection.weight = embedding

    tree = _tokenizer(checkpoint)
    tokens = sorted(tree["model"]["vocab"], key=tree["model"]["vocab"].get)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = spec.config.bos_token = TOKEN[BOS_ID]
    spec.config.eos_token, spec.config.unk_token = TOKEN[EOS_ID], TOKEN[UNK_ID]
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    # Without added tokens, text that looks like a special token is encoded as text.
    atomic_write_text(folder / "tokenizer.json", json.dumps(tree | {"added_tokens": []}, ensure_ascii=False))


def _write_marian(checkpoint: Checkpoint, folder: Path) -> None:
    from transformers import GenerationConfig, MarianConfig, MarianMTModel  # pyright: ignore[reportMissingImports]
    from transformers.utils import logging  # pyright: ignore[reportMissingImports]

    logging.disable_progress_bar()
    config, search = checkpoint.config.model, checkpoint.config.search
    ids = {
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,
    }
    model = MarianMTModel(MarianConfig(**marian_settings(config, checkpoint.vocab_size), **ids))
    # Not strict: Marian's biases in attention and output layer, which ours lacks, are initialised to zero.
    model.load_state_dict(_marian_weights(checkpoint), strict=False)
    model.generation_config = GenerationConfig(
        num_beams=search.beam_size,
        length_penalty=search.length_penalty,
        max_length=POSITIONS // 2,
        suppress_tokens=[PAD_ID, BOS_ID],
        **ids,
    )
    model.save_pretrained(folder)
    # save_pretrained makes this file readable for its owner only; give it the mode of the other files.
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode & 0o777)
    _write_marian_tokenizer(checkpoint, folder)


def _write_marian_tokenizer(checkpoint: Checkpoint, folder: Path) -> None:
    from transformers import PreTrainedTokenizerFast  # pyright: ignore[reportMissingImports]

    tree = _tokenizer(checkpoint)
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    eos = {"SpecialToken": {"id": TOKEN[EOS_ID], "type_id": 0}}
    tree["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, eos],
        "pair": [first, eos, second, eos],
        "special_tokens": {TOKEN[EOS_ID]: {"id": TOKEN[EOS_ID], "ids": [EOS_ID], "tokens": [TOKEN[EOS_ID]]}},
    }
    path = folder / "tokenizer.json"
    atomic_write_text(path, json.dumps(tree, ensure_ascii=False))
    PreTrainedTokenizerFast(
        tokenizer_file=str(path),
        pad_token=TOKEN[PAD_ID],
        bos_token=TOKEN[BOS_ID],
        eos_token=TOKEN[EOS_ID],
        unk_token=TOKEN[UNK_ID],
        split_special_tokens=True,  # text that looks like a special token is encoded as text
        clean_up_tokenization_spaces=False,
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)


def marian_settings(config: ModelConfig, vocab_size: int) -> dict[str, Any]:
    """Returns the sizes of a model as `transformers.MarianConfig` names them."""
    return {
        "vocab_size": vocab_size,
        "d_model": config.d_model,
        "encoder_layers": config.n_layers,
        "decoder_layers": config.n_layers,
        "encoder_attention_heads": config.n_heads,
        "decoder_attention_heads": config.n_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "dropout": config.dropout,
        "max_position_embeddings": POSITIONS,
        "activation_function": "relu",
        "scale_embedding": True,
        "static_position_embeddings": True,
        "tie_word_embeddings": True,
        "share_encoder_decoder_embeddings": True,
    }


def _marian_weights(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Returns the weights under Marian's names, with d_model channels in Marian's order.

    Marian computes its own sinusoids, all sines before all cosines; ours alternate. The order of channels means nothing
    to a Transformer, so permuting them in every weight gives the same function.
    """
    order = torch.arange(checkpoint.config.model.d_model).view(-1, 2).T.flatten()  # 0, 2, 4, ..., 1, 3, 5, ...
    found = {}
    for name, weight in checkpoint.weights.items():
        if name.endswith(("w_q.weight", "w_k.weight", "w_v.weight", "w_1.weight", "embedding.weight")):
            weight = weight[:, order]  # reads channels
        elif not name.endswith("w_1.bias"):
            weight = weight[order]  # writes channels
        for pattern, marian in MARIAN_NAMES.items():
            name = re.sub(pattern, marian, name)
        found[name] = weight.float()
    return found
