"""How large a model is and how much it computes, in closed form: no model has to be built for it.

Counted are the matrix multiplications, at 2 FLOPs per multiply-add: projections, feed-forward networks, the products of
queries with keys and of weights with values, and the output layer. Look-ups, normalisation and softmax are not.
"""

from typing import Any

from aiayn.config import ModelConfig


def n_parameters(config: ModelConfig, vocab_size: int) -> int:
    """Trained parameters of `Transformer(config, vocab_size)`, in which one matrix of V rows serves three times."""
    d, f = config.d_model, config.d_ff
    attention = 2 * d * config.n_heads * (config.key_size + config.value_size)
    feed_forward = 2 * d * f + f + d
    norm = 2 * d
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    tables = 2 * config.max_positions * d if config.positions == "learned" else 0
    return vocab_size * d + config.n_layers * (encoder_layer + decoder_layer) + tables


def forward_flops(config: ModelConfig, vocab_size: int, src_length: Any, tgt_length: Any) -> Any:
    """FLOPs of one forward pass over pairs of S source and T target tokens, end marks counted, padding not.

    Lengths are numbers, or arrays or tensors of them in a type that holds 1e15; the answer has their shape. Scores that
    a causal mask or `attention_window` hides are counted too, whatever a kernel makes of them.
    """
    s, t = src_length, tgt_length
    src, tgt, score = _multiply_adds(config, vocab_size)
    return 2 * (src * s + tgt * t + score * (s * s + t * t + s * t))


def training_flops(config: ModelConfig, vocab_size: int, src_length: Any, tgt_length: Any) -> Any:
    """`forward_flops` three times: a backward pass multiplies every matrix of the forward pass twice."""
    return 3 * forward_flops(config, vocab_size, src_length, tgt_length)


def _multiply_adds(config: ModelConfig, vocab_size: int) -> tuple[int, int, int]:
    """Multiply-adds for each source token, for each target token, and for each pair of positions that meet."""
    d, n = config.d_model, config.n_layers
    heads = config.n_heads * (config.key_size + config.value_size)
    half = d * heads  # queries and output of one attention, or its keys and values
    feed_forward = 2 * d * config.d_ff
    # A source token also gives keys and values to the decoder's attention, whose queries are the target's.
    return n * (3 * half + feed_forward), n * (3 * half + feed_forward) + d * vocab_size, n * heads
