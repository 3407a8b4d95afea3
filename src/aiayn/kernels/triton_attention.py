"""Equation (1) among packed sentences, as three Triton kernels.

Query i attends to the keys `key_start[i] <= j < key_end[i]` (`model/masks.py: Ranges`). The
encoder's self-attention, the decoder's, attention over the source and a window are all of this
form, and the shapes depend on the number of token slots only, so one CUDA graph serves every batch.
Flash attention computes a tile of 64 to 128 positions for each sentence; here a tile holds as many
short sentences as fit. No sum is atomic, so gradients are the same to the bit each time. A query
without keys gets zeros.
"""

import math
from typing import NamedTuple

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

from aiayn.model.masks import Ranges


@triton.jit
def _load_vector(x, rows, n_rows):
    return tl.load(x + rows, mask=rows < n_rows, other=0)


@triton.jit
def _tile(first_row, n_rows, D: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Returns the offsets of this program's tile in a contiguous (n_rows, H, D), and a mask of
    those that exist.
    """
    rows = first_row + tl.arange(0, ROWS)
    columns = tl.arange(0, WIDTH)
    row_stride = tl.num_programs(1) * D
    first_column = tl.program_id(1) * D
    row_offsets = rows[:, None].to(tl.int64) * row_stride + first_column
    is_row = rows < n_rows
    is_column = columns < D
    inside = is_row[:, None] & is_column[None, :]
    return row_offsets + columns[None, :], inside


@triton.jit
def _load_tile(x, first_row, n_rows, D: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    offsets, inside = _tile(first_row, n_rows, D, ROWS, WIDTH)
    return tl.load(x + offsets, mask=inside, other=0.0)


@triton.jit
def _store_tile(
    x, tile, first_row, n_rows, D: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    offsets, inside = _tile(first_row, n_rows, D, ROWS, WIDTH)
    rounded = tile.to(x.dtype.element_ty)
    tl.store(x + offsets, rounded, mask=inside)


@triton.jit
def _is_visible(keys, start, end):
    is_after_start = keys >= start
    is_before_end = keys < end
    return is_after_start & is_before_end


@triton.jit
def _forward_kernel(
    q, k, v, out, log_sums, key_start, key_end, n_queries, n_keys, scale,
    D_K: tl.constexpr, D_V: tl.constexpr, WIDTH_K: tl.constexpr, WIDTH_V: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attends with one tile of queries of one head: softmax over its keys, tile by tile (online
    softmax).
    """
    first_query = tl.program_id(0) * QUERIES
    log_sums += tl.program_id(1) * n_queries
    queries = first_query + tl.arange(0, QUERIES)
    start = _load_vector(key_start, queries, n_queries)
    end = _load_vector(key_end, queries, n_queries)
    q_tile = _load_tile(q, first_query, n_queries, D_K, QUERIES, WIDTH_K)
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    weighted = tl.zeros([QUERIES, WIDTH_V], tl.float32)
    last_query = tl.minimum(first_query + QUERIES, n_queries) - 1
    first = tl.load(key_start + first_query)
    last = tl.load(key_end + last_query)
    for first_key in range(first, last, KEYS):
        keys = first_key + tl.arange(0, KEYS)
        k_tile = _load_tile(k, first_key, n_keys, D_K, KEYS, WIDTH_K)
        products = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)
        scores = products * scale
        visible = _is_visible(keys[None, :], start[:, None], end[:, None])
        scores = tl.where(visible, scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        exponentials = tl.exp(scores - shift[:, None])
        rescale = tl.exp(largest - shift)
        v_tile = _load_tile(v, first_key, n_keys, D_V, KEYS, WIDTH_V)
        rounded = exponentials.to(v_tile.dtype)
        product = tl.dot(rounded, v_tile, input_precision=PRECISION)
        weighted = weighted * rescale[:, None] + product
        total = total * rescale + tl.sum(exponentials, 1)
        largest = new_largest
    has_keys = total > 0
    divisor = tl.where(has_keys, total, 1.0)
    attended = weighted / divisor[:, None]
    _store_tile(out, attended, first_query, n_queries, D_V, QUERIES, WIDTH_V)
    log_sum = tl.log(divisor)
    log_sum += tl.where(has_keys, largest, 0.0)
    tl.store(log_sums + queries, log_sum, mask=queries < n_queries)


@triton.jit
def _query_gradient_kernel(
    q, k, v, out, grad_out, grad_q, log_sums, deltas, key_start, key_end, n_queries, n_keys, scale,
    D_K: tl.constexpr, D_V: tl.constexpr, WIDTH_K: tl.constexpr, WIDTH_V: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Computes the gradient of one tile of queries, and `deltas`: the product of each output with
    its gradient.
    """
    first_query = tl.program_id(0) * QUERIES
    head = tl.program_id(1)
    log_sums += head * n_queries
    deltas += head * n_queries
    queries = first_query + tl.arange(0, QUERIES)
    start = _load_vector(key_start, queries, n_queries)
    end = _load_vector(key_end, queries, n_queries)
    q_tile = _load_tile(q, first_query, n_queries, D_K, QUERIES, WIDTH_K)
    out_tile = _load_tile(out, first_query, n_queries, D_V, QUERIES, WIDTH_V)
    grad_tile = _load_tile(grad_out, first_query, n_queries, D_V, QUERIES, WIDTH_V)
    products_of_values = out_tile.to(tl.float32) * grad_tile.to(tl.float32)
    delta = tl.sum(products_of_values, 1)
    tl.store(deltas + queries, delta, mask=queries < n_queries)
    log_sum = _load_vector(log_sums, queries, n_queries)
    gradient = tl.zeros([QUERIES, WIDTH_K], tl.float32)
    last_query = tl.minimum(first_query + QUERIES, n_queries) - 1
    first = tl.load(key_start + first_query)
    last = tl.load(key_end + last_query)
    for first_key in range(first, last, KEYS):
        keys = first_key + tl.arange(0, KEYS)
        k_tile = _load_tile(k, first_key, n_keys, D_K, KEYS, WIDTH_K)
        v_tile = _load_tile(v, first_key, n_keys, D_V, KEYS, WIDTH_V)
        visible = _is_visible(keys[None, :], start[:, None], end[:, None])
        products = tl.dot(q_tile, tl.trans(k_tile), input_precision=PRECISION)
        scores = products * scale
        exponentials = tl.exp(scores - log_sum[:, None])
        weights = tl.where(visible, exponentials, 0.0)
        grad_weights = tl.dot(grad_tile, tl.trans(v_tile), input_precision=PRECISION)
        grad_scores = weights * (grad_weights - delta[:, None])
        rounded = grad_scores.to(k_tile.dtype)
        gradient += tl.dot(rounded, k_tile, input_precision=PRECISION)
    gradient *= scale
    _store_tile(grad_q, gradient, first_query, n_queries, D_K, QUERIES, WIDTH_K)


@triton.jit
def _key_value_gradient_kernel(
    q, k, v, grad_out, grad_k, grad_v, log_sums, deltas, key_start, key_end, query_start, query_end,
    n_queries, n_keys, scale,
    D_K: tl.constexpr, D_V: tl.constexpr, WIDTH_K: tl.constexpr, WIDTH_V: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Computes the gradients of one tile of keys and values, from the queries that attend to
    them.
    """
    first_key = tl.program_id(0) * KEYS
    head = tl.program_id(1)
    log_sums += head * n_queries
    deltas += head * n_queries
    keys = first_key + tl.arange(0, KEYS)
    k_tile = _load_tile(k, first_key, n_keys, D_K, KEYS, WIDTH_K)
    v_tile = _load_tile(v, first_key, n_keys, D_V, KEYS, WIDTH_V)
    k_gradient = tl.zeros([KEYS, WIDTH_K], tl.float32)
    v_gradient = tl.zeros([KEYS, WIDTH_V], tl.float32)
    last_key = tl.minimum(first_key + KEYS, n_keys) - 1
    first = tl.load(query_start + first_key)
    last = tl.load(query_end + last_key)
    for first_query in range(first, last, QUERIES):
        queries = first_query + tl.arange(0, QUERIES)
        start = _load_vector(key_start, queries, n_queries)
        end = _load_vector(key_end, queries, n_queries)
        log_sum = _load_vector(log_sums, queries, n_queries)
        delta = _load_vector(deltas, queries, n_queries)
        q_tile = _load_tile(q, first_query, n_queries, D_K, QUERIES, WIDTH_K)
        grad_tile = _load_tile(grad_out, first_query, n_queries, D_V, QUERIES, WIDTH_V)
        visible = _is_visible(keys[:, None], start[None, :], end[None, :])
        products = tl.dot(k_tile, tl.trans(q_tile), input_precision=PRECISION)
        scores = products * scale
        exponentials = tl.exp(scores - log_sum[None, :])
        weights = tl.where(visible, exponentials, 0.0)
        rounded_weights = weights.to(grad_tile.dtype)
        v_gradient += tl.dot(rounded_weights, grad_tile, input_precision=PRECISION)
        grad_weights = tl.dot(v_tile, tl.trans(grad_tile), input_precision=PRECISION)
        grad_scores = weights * (grad_weights - delta[None, :])
        rounded_scores = grad_scores.to(q_tile.dtype)
        k_gradient += tl.dot(rounded_scores, q_tile, input_precision=PRECISION)
    k_gradient *= scale
    _store_tile(grad_k, k_gradient, first_key, n_keys, D_K, KEYS, WIDTH_K)
    _store_tile(grad_v, v_gradient, first_key, n_keys, D_V, KEYS, WIDTH_V)


class Tile(NamedTuple):
    """How many queries and keys a program of a kernel holds, and its warps."""

    queries: int
    keys: int
    warps: int


# The fastest of 14 for sentences of 20 subwords (docs/results/gpu.md).
FORWARD_TILE = Tile(queries=64, keys=32, warps=4)
QUERY_GRADIENT_TILE = Tile(queries=64, keys=32, warps=4)
KEY_GRADIENT_TILE = Tile(queries=16, keys=64, warps=2)


def _constants(q: Tensor, v: Tensor, tile: Tile) -> dict[str, object]:
    """Returns the kernels' constants: sizes of heads and of tiles, warps, and how float32 is
    multiplied.
    """
    d_k, d_v = q.size(2), v.size(2)
    heads = {"D_K": d_k, "D_V": d_v, "WIDTH_K": _width(d_k), "WIDTH_V": _width(d_v)}
    tiles = {"QUERIES": tile.queries, "KEYS": tile.keys, "num_warps": tile.warps}
    precision = "ieee" if q.dtype == torch.float32 else "tf32"
    return {**heads, **tiles, "PRECISION": precision}


def _width(size: int) -> int:
    """Returns the columns of a tile with heads of this size: a power of two that tensor cores
    take.
    """
    return max(16, triton.next_power_of_2(size))


def forward(
    q: Tensor, k: Tensor, v: Tensor, key_start: Tensor, key_end: Tensor
) -> tuple[Tensor, Tensor]:
    """Computes `kernels/range_attention.py: range_attention`."""
    n_queries, n_heads, d_k = q.shape
    out = q.new_empty(n_queries, n_heads, v.size(2))
    log_sums = q.new_empty(n_heads, n_queries, dtype=torch.float32)
    q, k, v = (x.contiguous() for x in (q, k, v))  # a copy for code of an extension only
    tensors = q, k, v, out, log_sums, key_start, key_end
    scale = 1 / math.sqrt(d_k)
    sizes = n_queries, len(k), scale
    constants = _constants(q, v, FORWARD_TILE)
    grid = triton.cdiv(n_queries, FORWARD_TILE.queries), n_heads
    _forward_kernel[grid](*tensors, *sizes, **constants)  # pyright: ignore[reportIndexIssue]
    return out, log_sums


def backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, log_sums: Tensor, grad_out: Tensor, ranges: Ranges
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes `kernels/range_attention.py: range_attention_gradient`."""
    n_queries, n_heads, d_k = q.shape
    scale = 1 / math.sqrt(d_k)
    sizes = n_queries, len(k), scale
    q, k, v, grad_out = (x.contiguous() for x in (q, k, v, grad_out))
    grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (q, k, v))
    deltas = torch.empty_like(log_sums)
    key_start, key_end, *_ = ranges
    tensors = q, k, v, out, grad_out, grad_q, log_sums, deltas, key_start, key_end
    constants = _constants(q, v, QUERY_GRADIENT_TILE)
    grid = triton.cdiv(n_queries, QUERY_GRADIENT_TILE.queries), n_heads
    _query_gradient_kernel[grid](*tensors, *sizes, **constants)  # pyright: ignore[reportIndexIssue]
    tensors = q, k, v, grad_out, grad_k, grad_v, log_sums, deltas, *ranges
    constants = _constants(q, v, KEY_GRADIENT_TILE)
    grid = triton.cdiv(len(k), KEY_GRADIENT_TILE.keys), n_heads
    _key_value_gradient_kernel[grid](*tensors, *sizes, **constants)  # pyright: ignore[reportIndexIssue]
    return grad_q, grad_k, grad_v
