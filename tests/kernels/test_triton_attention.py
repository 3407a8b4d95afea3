"""The Triton kernels of attention against equation (1): in Triton's interpreter, and compiled
without a GPU.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None,
    reason="Triton is not installed: it comes with torch for CUDA, and .ci/run installs it",
)

# Prints the relative errors of the output and of the gradients of q, k and v.
ERRORS = """
import torch
from aiayn.kernels.triton_attention import backward, forward
from aiayn.model.attention import attention
from aiayn.model.masks import Ranges, within_window

def starts_and_ends(lengths, of):
    ends = torch.tensor(lengths).cumsum(0)
    sentence = torch.arange(len(lengths)).repeat_interleave(torch.tensor(of))
    return (ends - torch.tensor(lengths))[sentence], ends[sentence]

def filled(bound, n_slots, empty):
    return torch.cat([bound, empty[len(bound):n_slots]]).int()

def ranges_of(layout, queries, keys, n_queries, n_keys):
    \"\"\"Of sentences in slots, of which the last are empty: they see themselves, or no source.\"\"\"
    rows, columns = torch.arange(n_queries), torch.arange(n_keys)
    if layout == "cross":
        first, last = starts_and_ends(keys, queries)
        q_first, q_last = starts_and_ends(queries, keys)
        no_key, no_query = torch.full_like(rows, sum(keys)), torch.full_like(columns, sum(queries))
        bounds = (first, no_key), (last, no_key), (q_first, no_query), (q_last, no_query)
        return Ranges(*(filled(bound, len(empty), empty) for bound, empty in bounds))
    first, last = starts_and_ends(queries, queries)
    first, last = filled(first, n_queries, rows), filled(last, n_queries, rows + 1)
    if layout == "causal":
        return Ranges(first, (rows + 1).int(), rows.int(), last)
    ranges = Ranges(first, last, first, last)
    return within_window(ranges, n_queries, 9) if layout == "window" else ranges

cases = [("own", 8, 8), ("causal", 20, 40), ("cross", 20, 40), ("cross", 8, 8), ("window", 8, 8)]
for layout, d_k, d_v in cases:
    queries = [5, 1, 70, 30, 12]
    keys = [3, 66, 9, 40, 2] if layout == "cross" else queries
    n_queries, n_keys = sum(queries) + 13, sum(keys) + (5 if layout == "cross" else 13)
    ranges = ranges_of(layout, queries, keys, n_queries, n_keys)
    q, k, v = torch.randn(n_queries, 2, d_k), torch.randn(n_keys, 2, d_k), torch.randn(n_keys, 2, d_v)
    grad_out = torch.randn(n_queries, 2, d_v)
    out, log_sums = forward(q, k, v, ranges.key_start, ranges.key_end)
    found = out, *backward(q, k, v, out, log_sums, grad_out, ranges)
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    right = attention(*(x.transpose(0, 1)[None] for x in leaves), ranges)[0].transpose(0, 1)
    expected = right, *torch.autograd.grad(right, leaves, grad_out.double())
    print(*(float(((a - b).norm() / b.norm()).detach()) for a, b in zip(found, expected)))
"""


def test_the_kernels_compute_equation_1_and_its_gradients_among_packed_sentences():
    """In Triton's interpreter, which has to be chosen before Triton is imported."""
    interpreted = os.environ | {"TRITON_INTERPRET": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", ERRORS], env=interpreted, capture_output=True, text=True, check=True
    )
    errors = [[*map(float, line.split(" "))] for line in ended.stdout.split("\n")[:-1]]
    assert [len(row) for row in errors] == [4] * 5
    assert max(max(row) for row in errors) < 1e-6, errors


@pytest.mark.parametrize(
    "capability", [90, *(pytest.param(other, marks=pytest.mark.slow) for other in (80, 100, 120))]
)
def test_the_kernels_are_compiled_for_gpus_without_arrays_in_local_memory(
    capability, tmp_path, monkeypatch
):
    from triton import compile as compile_kernel
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from aiayn.kernels import triton_attention
    from aiayn.model.masks import Ranges

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    calls = []
    kernels = {
        name: getattr(triton_attention, name)
        for name in vars(triton_attention)
        if name.endswith("_kernel")
    }
    assert len(kernels) == 3
    for name in kernels:
        monkeypatch.setattr(triton_attention, name, Recorder(name, calls))
    q = torch.empty(128, 8, 64, dtype=torch.bfloat16)
    ranges = Ranges(*(torch.zeros(128, dtype=torch.int32) for _ in range(4)))
    out, log_sums = triton_attention.forward(q, q, q, ranges.key_start, ranges.key_end)
    triton_attention.backward(q, q, q, out, log_sums, torch.empty_like(out), ranges)
    assert {name for name, *_ in calls} == set(kernels)
    types = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32"}
    for name, values, constants in calls:
        constants = dict(constants)
        options = {"num_warps": constants.pop("num_warps")}
        kinds = [
            types[v.dtype]
            if isinstance(v, torch.Tensor)
            else "i32"
            if isinstance(v, int)
            else "fp32"
            for v in values
        ]
        numbers = [v.data_ptr() if isinstance(v, torch.Tensor) else v for v in values]
        aligned = {
            (i,): [["tt.divisibility", 16]]
            for i, n in enumerate(numbers)
            if isinstance(n, int) and n % 16 == 0
        }
        kernel = kernels[name]
        signature = dict(
            zip(kernel.arg_names, [*kinds, *["constexpr"] * len(constants)], strict=True)
        )
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
        compiled = compile_kernel(source, target=GPUTarget("cuda", capability, 32), options=options)
        assert len(compiled.asm["cubin"]) > 1000
        assert ".local .align" not in compiled.asm["ptx"], name


class Recorder:
    """A kernel that notes its arguments."""

    def __init__(self, name: str, calls: list):
        self.name, self.calls = name, calls

    def __getitem__(self, grid):
        return lambda *values, **constants: self.calls.append((self.name, values, constants))
