"""Other implementations of the same model, from a batch to logits, with dropout where the paper has
it.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from aiayn.apps.export.export import marian_settings
from aiayn.config.model import ModelConfig
from aiayn.data.batch import Batch
from aiayn.model.embedding import sinusoids
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

Forward = Callable[[Batch], Tensor]


def torch_transformer(config: ModelConfig, vocab_size: int) -> tuple[nn.Module, Forward]:
    """torch.nn.Transformer, with embeddings and positions added."""
    body = nn.Transformer(
        *(
            config.d_model,
            config.n_heads,
            config.n_layers,
            config.n_layers,
            config.d_ff,
            config.dropout,
        ),
        batch_first=True,
    )
    for (
        module
    ) in body.modules():  # no dropout on attention weights and inside feed-forward networks
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
        elif isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
            module.dropout.p = 0.0
    model = nn.ModuleDict({"embedding": nn.Embedding(vocab_size, config.d_model), "body": body})
    nn.init.normal_(model["embedding"].weight, std=config.d_model**-0.5)
    model.register_buffer("positions", sinusoids(1024, config.d_model))
    dropout = nn.Dropout(config.dropout)

    def forward(batch: Batch) -> Tensor:
        embedded = [
            dropout(
                model["embedding"](ids) * math.sqrt(config.d_model) + model.positions[: ids.size(1)]
            )
            for ids in (batch.src, batch.tgt_in)
        ]
        causal = nn.Transformer.generate_square_subsequent_mask(
            batch.tgt_in.size(1), device=batch.tgt_in.device, dtype=torch.bool
        )
        padding = batch.src == PAD_ID
        hints = {
            "tgt_is_causal": True,
            "src_key_padding_mask": padding,
            "memory_key_padding_mask": padding,
        }
        return body(*embedded, tgt_mask=causal, **hints) @ model["embedding"].weight.T

    return model, forward


def marian(config: ModelConfig, vocab_size: int, attention: str) -> tuple[nn.Module, Forward]:
    """Hugging Face's Marian; `attention` is eager or sdpa. Raises ImportError without
    `transformers`.
    """
    from transformers import MarianConfig, MarianMTModel

    ids = {"pad_token_id": PAD_ID, "eos_token_id": EOS_ID, "decoder_start_token_id": BOS_ID}
    model = MarianMTModel(
        MarianConfig(
            **marian_settings(config, vocab_size),
            **ids,
            init_std=config.d_model**-0.5,
            attn_implementation=attention,
        )
    )

    def forward(batch: Batch) -> Tensor:
        mask = batch.src_mask[:, 0, 0].long()
        return model(
            input_ids=batch.src,
            attention_mask=mask,
            decoder_input_ids=batch.tgt_in,
            use_cache=False,
        ).logits

    return model, forward


def joey(
    config: ModelConfig, vocab_size: int, *, as_in_paper: bool = True
) -> tuple[nn.Module, Forward]:
    """JoeyNMT, with dropout where the paper has it, or where JoeyNMT has it, too. Raises
    ImportError where it is not installed.
    """
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    special = {"pad": PAD_ID, "bos": BOS_ID, "eos": EOS_ID, "unk": UNK_ID}
    entries = [f"<{name}>" for name in sorted(special, key=special.get)]
    entries += [f"w{i}" for i in range(len(special), vocab_size)]
    # Its constructor fixes another order of the special tokens
    vocabulary = Vocabulary.__new__(Vocabulary)
    vocabulary.__dict__.update(
        _itos=entries,
        _stoi={entry: i for i, entry in enumerate(entries)},
        specials=[f"<{name}>" for name in special],
        lang_tags=[],
        sep_index=None,
        **{f"{name}_index": i for name, i in special.items()},
    )
    side = {
        "type": "transformer",
        "hidden_size": config.d_model,
        "ff_size": config.d_ff,
        "num_layers": config.n_layers,
        "num_heads": config.n_heads,
        "dropout": config.dropout,
        "layer_norm": "post",
        "embeddings": {"embedding_dim": config.d_model, "scale": True, "dropout": config.dropout},
    }
    settings = {"encoder": side, "decoder": side, "tied_embeddings": True, "tied_softmax": True}
    settings["initializer"] = "xavier_uniform"
    model = build_model(settings, vocabulary, vocabulary)
    for name, module in model.named_modules():
        # The paper has no dropout on attention weights and inside feed-forward networks.
        if as_in_paper and name.endswith(("att.dropout", "pwff_layer.2")):
            module.p = 0.0

    def forward(batch: Batch) -> Tensor:
        return model._encode_decode(
            src=batch.src,
            trg_input=batch.tgt_in,
            src_mask=batch.src_mask[:, 0],
            src_length=batch.src_mask.sum((1, 2, 3)),
            trg_mask=(batch.tgt_out != PAD_ID)[:, None],
        )[0]

    return model, forward


# By name; each raises ImportError where its library is missing.
PEERS: dict[str, Callable[[ModelConfig, int], tuple[nn.Module, Forward]]] = {
    "torch": torch_transformer,
    "marian-eager": partial(marian, attention="eager"),
    "marian-sdpa": partial(marian, attention="sdpa"),
    "joeynmt": joey,
}
