"""Linear layers of a training in bfloat16, against products in float64 and torch's own."""

import pytest
import torch
from torch.nn import functional as F

from aiayn.kernels import loss as kernels
from aiayn.kernels.accelerate import accelerate
from aiayn.kernels.linear import ROWS, Linear, linear, padded_rows
from aiayn.model.transformer import Transformer
from aiayn.token_ids import PAD_ID
from aiayn.training.loss import cross_entropy, output_cross_entropy

D, M, VOCAB = 24, 40, 33
# Leading dimensions of x: numbers of rows that are multiples, or are not.
SHAPES = [(3, 71), (2, ROWS), (5 * ROWS + 1,)]


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected).detach().norm() / expected.detach().norm())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_under_autocast_results_and_gradients_are_those_of_float64_to_the_precision_of_bfloat16(shape, bias, dtype):
    layer = Linear(D, M, bias=bias)
    x, grad = torch.randn(*shape, D).to(dtype).requires_grad_(), torch.randn(*shape, M).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    y.backward(grad)
    exact_x, w = x.detach().double().requires_grad_(), layer.weight.detach().double().requires_grad_()
    b = layer.bias.detach().double().requires_grad_() if bias else None
    exact = exact_x @ w.T + (0 if b is None else b)
    exact.backward(grad.double())
    assert y.shape == (*shape, M)
    assert y.dtype == torch.bfloat16
    assert relative_error(y, exact) < 0.006
    parameters = [(x, exact_x), (layer.weight, w)] + ([] if b is None else [(layer.bias, b)])
    for found, expected in parameters:
        assert found.grad is not None
        assert found.grad.dtype == found.dtype
        assert relative_error(found.grad, expected.grad) < 0.006


def test_without_autocast_or_with_few_rows_it_is_torchs_own_product_to_the_bit():
    layer = Linear(D, M)
    x, few = torch.randn(3, 71, D), torch.randn(2, 9, D)
    assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(few), F.linear(few, layer.weight, layer.bias))


def test_an_accelerated_layer_keeps_its_hooks(tiny_config):
    model, seen = Transformer(tiny_config, VOCAB), []
    layer = model.encoder[0].feed_forward.w_1
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    accelerate(model, torch.device("cpu"))
    assert type(layer) is Linear
    model.encoder[0].feed_forward(torch.randn(2, 3, tiny_config.d_model))
    assert seen == [(2, 3, tiny_config.d_ff)]


def test_rows_of_zeros_are_added_up_to_a_multiple():
    x = torch.randn(2, 70, D)
    padded = padded_rows(x)
    assert padded.shape == (2 * ROWS, D)
    assert torch.equal(padded[:140], x.flatten(0, 1).bfloat16())
    assert not padded[140:].any()
    whole = torch.randn(ROWS, D).bfloat16()
    assert padded_rows(whole).data_ptr() == whole.data_ptr()


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch is built without oneDNN")
def test_batches_with_other_numbers_of_tokens_need_no_new_kernels(capfd):
    weight = torch.randn(M + 1, D + 1, requires_grad=True)  # a shape of no other test, whose kernels may be there
    embedding = torch.randn(VOCAB, D + 1, requires_grad=True)

    def compiled(rows: int) -> int:
        x = torch.randn(rows, D + 1, requires_grad=True)
        capfd.readouterr()
        with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON_CREATION):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                states = linear(linear(x, weight), weight.T)
                loss = output_cross_entropy(states[None], embedding, torch.full((1, rows), 5), 0.1)
            loss.backward()
        return capfd.readouterr().out.count("cache_miss")

    compiled(ROWS + 1)
    assert [compiled(ROWS + more) for more in (2, 17, 90, ROWS)] == [0, 0, 0, 0]
    assert compiled(2 * ROWS + 1) > 0


@pytest.mark.parametrize("count", [5, ROWS, 2 * ROWS + 3])
@pytest.mark.parametrize("chunk", [None, ROWS])
def test_the_loss_and_its_gradients_do_not_count_the_rows_of_zeros(monkeypatch, count, chunk):
    if chunk is not None:
        monkeypatch.setattr(kernels, "CPU_LOGITS", chunk * VOCAB)
    states, embedding = torch.randn(1, count + 2, D).bfloat16().float(), torch.randn(VOCAB, D).bfloat16().float()
    targets = F.pad(torch.randint(1, VOCAB, (1, count)), (1, 1), value=PAD_ID)
    x, w = states.requires_grad_(), embedding.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = output_cross_entropy(x, w, targets, 0.1)
    exact_x, exact_w = x.detach().double().requires_grad_(), w.detach().double().requires_grad_()
    exact = cross_entropy(exact_x @ exact_w.T, targets, 0.1)
    found_all = (loss, *torch.autograd.grad(loss, (x, w)))
    expected_all = (exact, *torch.autograd.grad(exact, (exact_x, exact_w)))
    for found, expected in zip(found_all, expected_all, strict=True):
        assert found.shape == expected.shape
        assert relative_error(found, expected) < 0.006
