"""Number of parameters and FLOPs of a model, in closed form, without building it.

FLOPs are those of matrix multiplications, 2 per multiply-add: projections, feed-forward networks,
queries times keys, attention weights times values, and the output layer. Embedding look-ups,
normalisation and softmax are not counted.
"""

from typing import Any

from aiayn.config.model import ModelConfig


def n_parameters(config: ModelConfig, vocab_size: int, src_vocab_size: int | None = None) -> int:
    """Returns the number of parameters of a `Transformer` of these sizes, whose tied matrix counts
    once.
    """
    d, f = config.d_model, config.d_ff
    attention = 2 * d * config.n_heads * (config.d_k + config.d_v)
    feed_forward = 2 * d * f + f + d
    norm = 2 * d
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    tables = 2 * config.max_positions * d if config.positions == "learned" else 0
    rows = {"all": 1, "decoder": 1, "none": 2}[config.tie_embeddings] * vocab_size
    rows += 0 if config.tie_embeddings == "all" else src_vocab_size or vocab_size
    return (
        rows * d + config.n_layers * encoder_layer + config.decoder_layers * decoder_layer + tables
    )


def counted_parameters(count: int) -> str:
    """Returns a number of parameters as text, in millions from one million on."""
    return f"{count / 1e6:.1f} M parameters" if count >= 1e6 else f"{count:,} parameters"


def forward_flops(config: ModelConfig, vocab_size: int, src_length: Any, tgt_length: Any) -> Any:
    """Returns the FLOPs of one forward pass over pairs of S source and T target tokens, end tokens
    included.

    Lengths are numbers, or arrays or tensors of a type that holds 1e15; the result has their shape.
    Padding is not counted; attention scores that are hidden by the causal mask or by
    `attention_window` are.
    """
    d, n, m, s, t = config.d_model, config.n_layers, config.decoder_layers, src_length, tgt_length
    heads = config.n_heads * (config.d_k + config.d_v)
    # On both sides a token passes four projections of self-attention and, in each layer of the
    # decoder, two of cross-attention: keys and values for a source token, queries and output for a
    # target token.
    layer, cross = 2 * d * heads + 2 * d * config.d_ff, m * d * heads
    scores = heads * (n * s * s + m * (t * t + s * t))
    return 2 * ((n * layer + cross) * s + (m * layer + cross) * t + d * vocab_size * t + scores)


def training_flops(config: ModelConfig, vocab_size: int, src_length: Any, tgt_length: Any) -> Any:
    """Returns the FLOPs of a forward and a backward pass, which does every product of the forward
    pass twice.
    """
    return 3 * forward_flops(config, vocab_size, src_length, tgt_length)
