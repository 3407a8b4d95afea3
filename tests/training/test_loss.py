"""Section 5.4 against its definition, and the loss by rows against the loss of all logits at
once.
"""

import itertools
import math
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from applications import slow_but
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from aiayn.model.embedding import TiedOutput
from aiayn.token_ids import PAD_ID
from aiayn.training import loss as loss_module
from aiayn.training.loss import cross_entropy, evaluate_output, losses_of_rows, output_cross_entropy
from aiayn.training.module import dropout_seed

B, T, D, V = 3, 5, 6, 23


def tied(weight: Tensor) -> TiedOutput:
    """The output layer of an embedding with this matrix (V, D)."""
    return TiedOutput(SimpleNamespace(weight=weight))


@pytest.fixture
def targets() -> Tensor:
    """(B, T), rows of 5, 2 and 4 tokens and padding behind them."""
    real = torch.arange(T) < torch.tensor([5, 2, 4])[:, None]
    return torch.randint(1, V, (B, T)).where(real, PAD_ID)


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.4])
def test_label_smoothing_is_the_cross_entropy_with_the_smoothed_distribution(targets, eps):
    logits = torch.randn(B, T, V) * 3
    expected = 0.0
    for row, tokens in zip(logits.double().log_softmax(-1).tolist(), targets.tolist(), strict=True):
        for log_probs, token in zip(row, tokens, strict=True):
            if token != PAD_ID:
                smoothed = [eps / V + (1 - eps) * (v == token) for v in range(V)]
                expected -= sum(q * log_p for q, log_p in zip(smoothed, log_probs, strict=True))
    assert cross_entropy(logits, targets, eps).item() == pytest.approx(expected, rel=1e-6)


def test_padding_adds_nothing_to_the_loss_and_gets_no_gradient(targets):
    pads = targets == PAD_ID
    states, embedding = (
        torch.randn(B, T, D, requires_grad=True),
        torch.randn(V, D, requires_grad=True),
    )
    loss = output_cross_entropy(states, tied(embedding), targets, 0.1)
    of_states, of_embedding = torch.autograd.grad(loss, (states, embedding))
    assert torch.all(of_states[pads] == 0)
    assert torch.all(of_states[~pads].abs().sum(-1) > 0)
    noisy = (states + torch.randn(B, T, D) * 50 * pads[..., None]).detach().requires_grad_()
    again = output_cross_entropy(noisy, tied(embedding), targets, 0.1)
    assert torch.equal(again, loss)
    assert torch.equal(torch.autograd.grad(again, embedding)[0], of_embedding)


@pytest.mark.parametrize("by_rows", [True, False])
def test_a_model_in_float64_has_its_loss_and_gradients_in_float64(targets, by_rows):
    output = torch.nn.Linear(D, V, bias=not by_rows, dtype=torch.float64)
    states = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    settings = {"ignore_index": PAD_ID, "label_smoothing": 0.1, "reduction": "sum"}
    expected = F.cross_entropy(output(states).flatten(0, 1), targets.flatten(), **settings)
    loss = output_cross_entropy(states, output, targets, 0.1)
    leaves = states, output.weight
    gradients = zip(
        torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves), strict=True
    )
    for found, right in [
        (loss, expected),
        (evaluate_output(states, output, targets, 0.1)[0], expected),
        *gradients,
    ]:
        torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)


def test_a_batch_of_nothing_but_padding_has_loss_and_gradients_of_zero():
    states, embedding = (
        torch.randn(1, 1, D, requires_grad=True),
        torch.randn(V, D, requires_grad=True),
    )
    loss = output_cross_entropy(states, tied(embedding), torch.tensor([[PAD_ID]]), 0.1)
    (loss * 2).backward()
    assert loss.item() == 0
    assert torch.equal(states.grad, torch.zeros(1, 1, D))
    assert torch.equal(embedding.grad, torch.zeros(V, D))


def losses_and_gradients(states, embedding, targets, eps, autocast=False):
    """(loss, gradients of states and of embedding) by all logits at once, and by rows."""
    found = []
    for by_rows in (False, True):
        with torch.autocast("cpu", torch.bfloat16) if autocast and by_rows else nullcontext():
            loss = (
                output_cross_entropy(states, tied(embedding), targets, eps)
                if by_rows
                else cross_entropy(F.linear(states, embedding), targets, eps)
            )
        # The loss is scaled before its gradient is taken, as by the tokens of a step.
        found.append((loss, *torch.autograd.grad(loss * 0.37, (states, embedding))))
    return zip(*found, strict=True)


class Waits(TorchDispatchMode):
    """Collects operations whose result the host waits for."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        self.found |= {operation.overloadpacket.__name__} & {
            "_local_scalar_dense",
            "masked_select",
            "nonzero",
        }
        return operation(*arguments, **(options or {}))


def distance(found: Tensor, expected: Tensor) -> float:
    return ((found.detach() - expected.detach()).norm() / expected.detach().norm()).item()


@pytest.mark.parametrize("rows", [1, 3, 4, 10, 11, 1000])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_however_many_rows_at_a_time_loss_and_gradients_are_those_of_all_logits_at_once(
    targets, eps, rows, monkeypatch
):
    monkeypatch.setattr(loss_module, "CPU_LOGITS", rows * V + V - 1)
    states, embedding = (
        torch.randn(B, T, D, requires_grad=True),
        torch.randn(V, D, requires_grad=True),
    )
    for expected, found in losses_and_gradients(states, embedding, targets, eps):
        assert distance(found, expected) < 1e-6
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [2, 1000])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_under_bfloat16_autocast_it_differs_from_single_precision_by_rounding(
    targets, eps, rows, monkeypatch
):
    monkeypatch.setattr(loss_module, "CPU_LOGITS", rows * V)
    states, embedding = (
        torch.randn(B, T, D, requires_grad=True),
        torch.randn(V, D, requires_grad=True),
    )
    for expected, found in losses_and_gradients(states, embedding, targets, eps, autocast=True):
        assert found.dtype == torch.float32
        assert distance(found, expected) < 0.01


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_rows_of_logits_have_torchs_losses_and_gradients(eps):
    logits, targets = torch.randn(7, V, requires_grad=True), torch.randint(0, V, (7,))
    expected = F.cross_entropy(logits, targets, label_smoothing=eps, reduction="none")
    losses = losses_of_rows(logits.detach().clone(), targets, eps, needs_gradient=True)
    torch.testing.assert_close(losses.smoothed, expected)
    torch.testing.assert_close(losses.nll, F.cross_entropy(logits, targets, reduction="none"))
    torch.testing.assert_close(losses.gradient, torch.autograd.grad(expected.sum(), logits)[0])


def test_on_another_device_than_a_cpu_the_host_does_not_wait_for_the_number_of_real_tokens(
    targets, monkeypatch
):
    """On tensors without values, on which waiting is an error."""
    states, weight, targets = (
        x.to("meta") for x in (torch.randn(B, T, D), torch.randn(V, D), targets)
    )
    monkeypatch.setattr(loss_module, "GPU_ROWS", 4)
    # Autocast knows no such device
    monkeypatch.setattr(loss_module, "_product_dtype", lambda x: x.dtype)
    loss = output_cross_entropy(
        states.requires_grad_(), tied(weight.requires_grad_()), targets, 0.1
    )
    loss.backward()
    assert (states.grad.shape, weight.grad.shape) == ((B, T, D), (V, D))


FUSED = """
from types import SimpleNamespace
import torch
from aiayn.kernels import triton_loss
from aiayn.model.embedding import TiedOutput
from aiayn.training import loss
from aiayn.training.loss import cross_entropy, output_cross_entropy

tied = lambda weight: TiedOutput(SimpleNamespace(weight=weight))
loss._runs_in_triton = lambda states: True
loss.CPU_LOGITS, triton_loss.BLOCK = 4 * 23, 8  # a row of 23 logits in three parts
states, embedding = torch.randn(3, 5, 6, requires_grad=True), torch.randn(23, 6, requires_grad=True)
targets = torch.randint(1, 23, (3, 5)).where(torch.arange(5) < torch.tensor([5, 2, 4])[:, None], 0)
for eps, bf16 in ((0.0, False), (0.1, False), (0.1, True)):
    expected = cross_entropy(states @ embedding.T, targets, eps)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        found = output_cross_entropy(states, tied(embedding), targets, eps)
    for a, b in zip(*((x, *torch.autograd.grad(x * 0.37, (states, embedding))) for x in (found, expected))):
        print(float((a - b).norm() / b.norm()), 0.01 if bf16 else 1e-6)
states, embedding = torch.full((1, 2, 1), 1e4, requires_grad=True), torch.tensor([[0.0], [3.0], [-3.0]])
output_cross_entropy(states, tied(embedding), torch.tensor([[1, 2]]), 0.0).backward()
print(float(states.grad.isfinite().logical_not().sum()), 0.5)
"""


needs_triton = pytest.mark.skipif(
    find_spec("triton") is None,
    reason="Triton is not installed: it comes with torch for CUDA, and .ci/run installs it",
)


@needs_triton
def test_fused_in_a_triton_kernel_it_is_the_loss_of_all_logits_at_once():
    """In Triton's interpreter, which has to be chosen before Triton is imported. It prints errors
    and their limits.
    """
    interpreted = os.environ | {"TRITON_INTERPRET": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", FUSED], env=interpreted, capture_output=True, text=True, check=True
    )
    found = [tuple(map(float, line.split(" "))) for line in ended.stdout.split("\n")[:-1]]
    assert len(found) == 10
    assert all(error < limit for error, limit in found), found


@needs_triton
@pytest.mark.parametrize("capability", slow_but([75, 90, 120], [75, 80, 90, 100, 120]))
@pytest.mark.parametrize("dtype", slow_but([torch.bfloat16], [torch.bfloat16, torch.float32]))
def test_the_triton_kernel_is_compiled_for_a_gpu_into_vectors_for_any_vocabulary(
    capability, dtype, tmp_path, monkeypatch
):
    """Without the GPU: for the arguments that it is called with for 37,000 logits, which are no
    multiple of 16.
    """
    from triton import compile as compile_kernel
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from aiayn.kernels import triton_loss

    calls, kernel = [], triton_loss._kernel
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(
        triton_loss, "_kernel", {(3,): lambda *values, **sizes: calls.append((values, sizes))}
    )
    logits = torch.empty(3, 37_008, dtype=dtype)[:, :37_000]
    triton_loss.losses_of_rows(logits, torch.ones(3, dtype=torch.int32), 0.1, needs_gradient=True)
    [(values, sizes)] = calls
    types = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32"}
    kinds = [
        types[v.dtype] if isinstance(v, torch.Tensor) else "i32" if isinstance(v, int) else "fp32"
        for v in values
    ]
    numbers = [v.data_ptr() if isinstance(v, torch.Tensor) else v for v in values]
    aligned = {
        (at,): [["tt.divisibility", 16]] for at, number in enumerate(numbers) if number % 16 == 0
    }
    signature = dict(zip(kernel.arg_names, [*kinds, *["constexpr"] * len(sizes)], strict=True))
    source = ASTSource(fn=kernel, signature=signature, constexprs=sizes, attrs=aligned)
    compiled = compile_kernel(source, target=GPUTarget("cuda", capability, 32))
    assert len(compiled.asm["cubin"]) > 1000
    one_by_one = re.findall(r"(?:ld|st)\.global(?!\S*\.v\d)", compiled.asm["ptx"])
    assert len(one_by_one) == 4, "the target, its logit and both losses of a row"


def test_gradients_in_float16_are_left_to_torch_because_the_scale_comes_later(monkeypatch):
    monkeypatch.setattr(loss_module, "_LossOfStates", None)
    states, embedding = (
        torch.randn(B, T, D, dtype=torch.float16),
        torch.randn(V, D, dtype=torch.float16),
    )
    assert output_cross_entropy(
        states, tied(embedding), torch.ones(B, T, dtype=torch.int64), 0.1
    ).isfinite()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_where_no_gradient_is_wanted_none_is_computed(targets, mode):
    states, embedding = torch.randn(B, T, D), torch.randn(V, D, requires_grad=True)
    expected = output_cross_entropy(states, tied(embedding), targets, 0.1)
    with mode(), FlopCounterMode(display=False) as counter:
        loss = output_cross_entropy(states, tied(embedding), targets, 0.1)
    assert torch.equal(loss, expected.detach())
    assert not loss.requires_grad
    assert counter.get_total_flops() == 2 * 11 * D * V, "the logits, and nothing more"


def test_the_seeds_of_dropout_are_distinct_and_well_spread():
    seeds = [dropout_seed(seed, number) for seed in (0, 1, 2**32 - 1) for number in range(5000)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    n = len(seeds)
    for bit in range(63):
        assert abs(sum(seed >> bit & 1 for seed in seeds) - n / 2) < 5 * math.sqrt(n) / 2
    flips = [(a ^ b).bit_count() for a, b in itertools.pairwise(seeds)]
    assert sum(flips) / len(flips) == pytest.approx(31.5, abs=0.3)


def test_extreme_logits_stay_finite():
    states, embedding = (
        torch.full((1, 2, 1), 1e4, requires_grad=True),
        torch.tensor([[0.0], [3.0], [-3.0]]),
    )
    loss = output_cross_entropy(
        states, tied(embedding.requires_grad_()), torch.tensor([[1, 2]]), 0.0
    )
    loss.backward()
    assert loss.item() == pytest.approx(6e4)
    assert torch.isfinite(states.grad).all()
    assert torch.isfinite(embedding.grad).all()


def test_the_seeds_of_dropout_never_change():
    # A run that is continued with a later version must draw what it would have drawn.
    seeds = [dropout_seed(0, 0), dropout_seed(0, 1), dropout_seed(42, 10**6)]
    assert seeds == [1576848291327681832, 9221934688551543782, 1204009526523900222]
