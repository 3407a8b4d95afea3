"""The same model for other engines: CTranslate2, and Marian as Hugging Face's transformers has it.

Neither can express every model of this program; what would come out different is refused by the option's name.
"""

import json
import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aiayn.checkpoints import Checkpoint
from aiayn.config import BOS_ID, EOS_ID, PAD_ID, UNK_ID, ModelConfig, one_of
from aiayn.data.cleaning import SEPARATOR
from aiayn.data.tokenizer import SPECIAL_IDS
from aiayn.errors import ConfigError, RefusedError, ResourceError
from aiayn.files import atomic_write_text
from aiayn.model.embedding import sinusoids

LIBRARIES = {"ctranslate2": "ctranslate2", "marian": "transformers"}  # by format
POSITIONS = 1024  # sinusoids have no end, a table has; CTranslate2 cuts sources there by itself
TOKEN = {number: token for token, number in SPECIAL_IDS.items()}


def export(checkpoint: Checkpoint, target: str, folder: Path) -> None:
    """Writes model and tokenizer into a new folder, for the engine `target`: ctranslate2 or marian. float32.

    Raises ConfigError for an unknown format or a missing library, RefusedError for a model that the format cannot
    express and for a folder with content, ResourceError where the folder cannot be written.
    """
    one_of("format", target, tuple(LIBRARIES))
    if find_spec(LIBRARIES[target]) is None:
        raise ConfigError(f"--format {target} needs {LIBRARIES[target]}: pip install -e '.[export]'")
    _check_expressible(checkpoint.config.model, target)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise RefusedError(f"{folder}: exists and is not an empty folder; give a new one")
    # Made beside it and renamed: a folder under its final name is whole.
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        unfinished.mkdir(parents=True)
        (_write_ctranslate2 if target == "ctranslate2" else _write_marian)(checkpoint, unfinished)
        os.replace(unfinished, folder)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written ({error.strerror or error}); make room and repeat") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _check_expressible(config: ModelConfig, target: str) -> None:
    per_head = config.d_model // config.n_heads
    cannot = {
        f"model.attention_window={config.attention_window}": config.attention_window is not None,
        f"model.d_k={config.d_k} (other than d_model / n_heads = {per_head})": config.key_size != per_head,
        f"model.d_v={config.d_v} (other than d_model / n_heads = {per_head})": config.value_size != per_head,
        f"model.positions={config.positions}": config.positions == "learned" and target == "marian",
    }
    for option, is_so in cannot.items():
        if is_so:
            raise RefusedError(f"--format {target} cannot express {option}; translate with `aiayn translate` instead")


def _tokenizer(checkpoint: Checkpoint) -> dict[str, Any]:
    """The tokenizer as its library's JSON, with the spacing of lines that `Translator` does beforehand."""
    tree = json.loads(checkpoint.tokenizer)
    edges = "\\A[\\s\x1c-\x1f\x85]+|[\\s\x1c-\x1f\x85]+\\z"
    spacing = [
        {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
        for pattern, content in ((edges, ""), (SEPARATOR.pattern, " "))
    ]
    tree["normalizer"] = {"type": "Sequence", "normalizers": [*spacing, tree["normalizer"]]}
    return tree


def _write_ctranslate2(checkpoint: Checkpoint, folder: Path) -> None:
    from ctranslate2.specs import TransformerSpec

    config, weights = checkpoint.config.model, checkpoint.weights
    spec = TransformerSpec.from_config((config.n_layers, config.n_layers), config.n_heads, pre_norm=False)

    def put(linear: Any, *names: str) -> None:
        """One linear map out of one or several stacked ones; attention has no biases here and needs some there."""
        linear.weight = _array(torch.cat([weights[f"{name}.weight"] for name in names]))
        biases = [weights.get(f"{name}.bias", torch.zeros(len(weights[f"{name}.weight"]))) for name in names]
        linear.bias = _array(torch.cat(biases))

    def put_norm(norm: Any, name: str) -> None:
        norm.gamma, norm.beta = _array(weights[f"{name}.norm.weight"]), _array(weights[f"{name}.norm.bias"])

    for side, stack, positions in (("encoder", spec.encoder, "src"), ("decoder", spec.decoder, "tgt")):
        learned = weights.get(f"{positions}_positions.table")
        stack.position_encodings.encodings = _array(
            sinusoids(POSITIONS, config.d_model) if learned is None else learned
        )
        for number, layer in enumerate(stack.layer):
            own, cross = f"{side}.{number}.self_attention", f"{side}.{number}.cross_attention"
            put(layer.self_attention.linear[0], f"{own}.w_q", f"{own}.w_k", f"{own}.w_v")
            put(layer.self_attention.linear[1], f"{own}.w_o")
            put_norm(layer.self_attention.layer_norm, f"{side}.{number}.norm_1")
            if side == "decoder":
                put(layer.attention.linear[0], f"{cross}.w_q")
                put(layer.attention.linear[1], f"{cross}.w_k", f"{cross}.w_v")
                put(layer.attention.linear[2], f"{cross}.w_o")
                put_norm(layer.attention.layer_norm, f"{side}.{number}.norm_2")
            put(layer.ffn.linear_0, f"{side}.{number}.feed_forward.w_1")
            put(layer.ffn.linear_1, f"{side}.{number}.feed_forward.w_2")
            put_norm(layer.ffn.layer_norm, f"{side}.{number}.norm_{3 if side == 'decoder' else 2}")
    embedding = _array(weights["embedding.weight"])
    for embeddings in (*spec.encoder.embeddings, spec.decoder.embeddings):
        embeddings.weight, embeddings.multiply_by_sqrt_depth = embedding, True
    spec.decoder.projection.weight = embedding

    tree = _tokenizer(checkpoint)
    # Without special tokens in the tokenizer, text that looks like one is text.
    vocabulary = tree["model"]["vocab"] | {token["content"]: token["id"] for token in tree["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.get)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = spec.config.bos_token = TOKEN[BOS_ID]
    spec.config.eos_token, spec.config.unk_token = TOKEN[EOS_ID], TOKEN[UNK_ID]
    spec.validate()
    spec.optimize()
    spec.save(str(folder))
    atomic_write_text(folder / "tokenizer.json", json.dumps(tree | {"added_tokens": []}, ensure_ascii=False))


def _array(tensor: Tensor) -> Any:
    return tensor.float().contiguous().numpy()


def _write_marian(checkpoint: Checkpoint, folder: Path) -> None:
    from transformers import GenerationConfig, MarianConfig, MarianMTModel, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    config, search = checkpoint.config.model, checkpoint.config.search
    sizes = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", config.n_layers),
            ("attention_heads", config.n_heads),
            ("ffn_dim", config.d_ff),
        )
    }
    ids = {
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": BOS_ID,
        "forced_eos_token_id": None,
    }
    model = MarianMTModel(
        MarianConfig(
            vocab_size=checkpoint.vocab_size,
            d_model=config.d_model,
            dropout=config.dropout,
            max_position_embeddings=POSITIONS,
            activation_function="relu",
            scale_embedding=True,
            static_position_embeddings=True,
            tie_word_embeddings=True,
            share_encoder_decoder_embeddings=True,
            **sizes,
            **ids,
        )
    )
    model.load_state_dict(_marian_weights(checkpoint), strict=False)
    model.generation_config = GenerationConfig(
        num_beams=search.beam_size,
        length_penalty=search.length_penalty,
        max_length=POSITIONS // 2,
        suppress_tokens=[PAD_ID, BOS_ID],
        **ids,
    )
    model.save_pretrained(folder)
    # The library's writer leaves the weights readable for their owner only, and the rest as everything is.
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode & 0o777)

    tree = _tokenizer(checkpoint)
    end = {"SpecialToken": {"id": TOKEN[EOS_ID], "type_id": 0}}
    tree["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, end],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, end, {"Sequence": {"id": "B", "type_id": 0}}, end],
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
        split_special_tokens=True,  # text that looks like a special token is text
        clean_up_tokenization_spaces=False,
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(folder)


def _marian_weights(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The weights under Marian's names and in its order of channels.

    Its sines come first and its cosines after them, where ours alternate, and it computes them itself. To a Transformer
    the order of the d_model channels means nothing, so ours are put into Marian's order wherever they appear: the
    function is the same.
    """
    d_model = checkpoint.config.model.d_model
    order = torch.arange(d_model).view(-1, 2).T.flatten()  # 0, 2, 4, ..., 1, 3, 5, ...
    names = {
        "self_attention": "self_attn",
        "cross_attention": "encoder_attn",
        "w_q": "q_proj",
        "w_k": "k_proj",
        "w_v": "v_proj",
        "w_o": "out_proj",
        "feed_forward.w_1": "fc1",
        "feed_forward.w_2": "fc2",
        "encoder.": "model.encoder.layers.",
        "decoder.": "model.decoder.layers.",
        ".norm_1.norm": ".self_attn_layer_norm",
    }
    found = {}
    for name, weight in checkpoint.weights.items():
        weight = weight.float()
        if name.endswith(("w_q.weight", "w_k.weight", "w_v.weight", "w_1.weight", "embedding.weight")):
            weight = weight[:, order]  # reads channels
        elif not name.endswith("w_1.bias"):
            weight = weight[order]  # writes channels
        is_decoder = name.startswith("decoder")
        for ours, theirs in (
            names
            | {".norm_2.norm": ".encoder_attn_layer_norm" if is_decoder else ".final_layer_norm"}
            | {".norm_3.norm": ".final_layer_norm"}
        ).items():
            name = name.replace(ours, theirs)
        found[name] = weight.contiguous()
        if name.endswith("_proj.weight"):
            found[name.replace("weight", "bias")] = torch.zeros(len(weight))
    embedding = found.pop("embedding.weight")
    shared = ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
    zeros = {"final_logits_bias": torch.zeros(1, len(embedding))}
    return found | {f"{name}.weight": embedding for name in shared} | zeros
