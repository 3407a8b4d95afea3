"""One micro-batch: what its dropout depends on, and that the micro-batches of a step add up to the
step.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from applications import composed
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from aiayn.data.batch import Batch, shift_right
from aiayn.model.flops import training_flops
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID
from aiayn.training.module import TranslationModule, compile_layers

VOCAB = 19
EPS = 0.1


@pytest.fixture
def module(tiny_config):
    base = composed("seed=5", "optim.warmup_steps=20", f"optim.label_smoothing={EPS}")
    return TranslationModule(replace(base, model=tiny_config), VOCAB).train()


def pairs(count: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Sources and targets of unequal lengths, each with its end mark."""
    draw = torch.Generator().manual_seed(count)

    def sentence(longest: int) -> torch.Tensor:
        length = int(torch.randint(1, longest, (), generator=draw))
        return torch.cat(
            [torch.randint(4, VOCAB, (length,), generator=draw), torch.tensor([EOS_ID])]
        )

    return [sentence(9) for _ in range(count)], [sentence(7) for _ in range(count)]


def batch_of(sources, targets, number: int, step_tokens: int) -> Batch:
    if not sources:
        row = [torch.tensor([[token]]) for token in (EOS_ID, BOS_ID, PAD_ID)]
        return Batch(number, *row, (np.empty(0), np.empty(0)), step_tokens)
    src, tgt = (torch.nn.utils.rnn.pad_sequence(rows, True, PAD_ID) for rows in (sources, targets))
    lengths = np.array([*map(len, sources)]), np.array([*map(len, targets)])
    return Batch(number, src, shift_right(tgt), tgt, lengths, step_tokens)


def loss(module, batch, *, index=0, rank=0, accumulate=1, world_size=1) -> torch.Tensor:
    """The loss of a micro-batch as Lightning asks for it: its `index`-th on the device `rank`."""
    module.trainer = SimpleNamespace(
        accumulate_grad_batches=accumulate, world_size=world_size, global_rank=rank, global_step=0
    )
    return module.training_step(batch, index)["loss"]


def test_dropout_depends_on_the_seed_and_the_micro_batch_and_on_nothing_else(module):
    first, second = (batch_of(*pairs(4), number, 30) for number in (6, 7))
    expected = loss(module, first).item()

    torch.rand(17)  # whatever ran before
    assert loss(module, first).item() == expected
    assert loss(module, first, index=3).item() == expected
    assert loss(module, first, rank=1, world_size=2).item() == 2 * expected

    assert loss(module, second).item() != expected
    module.config = replace(module.config, seed=6)
    assert loss(module, first).item() != expected


@pytest.mark.parametrize(("accumulate", "world_size"), [(1, 1), (4, 1), (1, 4), (2, 2)])
def test_the_micro_batches_of_a_step_add_up_to_the_mean_over_its_tokens_on_any_device(
    module, accumulate, world_size
):
    module.model.eval()  # no dropout
    sources, targets = pairs(9)
    tokens = sum(map(len, targets))
    whole = batch_of(sources, targets, 0, tokens)
    logits = module.model.project(
        module.model.decode(
            whole.tgt_in, module.model.encode(whole.src, whole.src_mask), whole.src_mask
        )
    )
    mean = F.cross_entropy(
        logits.flatten(0, 1), whole.tgt_out.flatten(), ignore_index=PAD_ID, label_smoothing=EPS
    )
    expected = torch.autograd.grad(mean, list(module.parameters()))

    # Unequal parts, one of them empty. Lightning divides by what a device accumulates, DDP by the
    # devices.
    cuts = [0, 1, 6, 6, 9] if accumulate * world_size == 4 else [0, 9]
    total = torch.zeros(())
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        part = batch_of(sources[start:stop], targets[start:stop], number, tokens)
        total = (
            total
            + loss(module, part, accumulate=accumulate, world_size=world_size)
            / accumulate
            / world_size
        )
    found = torch.autograd.grad(total, list(module.parameters()))

    torch.testing.assert_close(total, mean)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-4)


def test_validation_sums_the_smoothed_loss_the_likelihood_and_the_right_tokens_over_real_tokens(
    module,
):
    module.model.eval()
    batch = batch_of(*pairs(5), 0, 99)
    memory = module.model.encode(batch.src, batch.src_mask)
    logits = module.model.project(module.model.decode(batch.tgt_in, memory, batch.src_mask))
    log_probs = logits.log_softmax(-1)[batch.tgt_out != PAD_ID]  # (tokens, V)
    nll = -log_probs.gather(1, batch.tgt_out[batch.tgt_out != PAD_ID][:, None]).sum()

    targets = batch.tgt_out[batch.tgt_out != PAD_ID]
    right = sum(
        int(row.argmax()) == int(target) for row, target in zip(log_probs, targets, strict=True)
    )

    smoothed, found_nll, found_right, tokens = module.evaluation_sums(batch)

    torch.testing.assert_close(found_nll.float(), nll)
    torch.testing.assert_close(smoothed.float(), (1 - EPS) * nll - EPS * log_probs.mean(1).sum())
    assert (found_right, tokens) == (right, len(targets)) != (0, 0)


class Marked(nn.Module):
    """A layer that notes when the gradient of its input is known."""

    def __init__(self, layer: nn.Module, note: Callable[[], None]):
        super().__init__()
        self.layer, self.note = layer, note

    def forward(self, x: Tensor, *rest: Any) -> Tensor:
        x.register_hook(lambda gradient: self.note())
        return self.layer(x, *rest)


def test_gradients_of_a_layer_are_ready_before_the_backward_pass_of_the_one_before(module):
    """So that DDP sends them meanwhile."""
    trained, events = TranslationModule(module.config, VOCAB).train(), []
    for name in ("encoder", "decoder"):
        layers = getattr(trained.model, name)
        for number, layer in enumerate(layers):
            next(layer.parameters()).register_post_accumulate_grad_hook(
                lambda _, event=(name, number, "weights"): events.append(event)
            )
            layers[number] = Marked(
                layer, lambda event=(name, number, "input"): events.append(event)
            )
    loss(trained, batch_of(*pairs(5), 3, 30)).backward()
    for name in ("encoder", "decoder"):
        count = len(getattr(trained.model, name))
        assert count > 1
        for number in range(1, count):
            assert events.index((name, number, "weights")) < events.index(
                (name, number - 1, "input")
            )


@pytest.mark.slow
def test_every_layer_is_compiled_into_a_graph_of_its_own(module):
    """So gradients of a layer are ready as early as above: one graph of several layers returns all
    at its end.

    Compiled except for the last stage, for which a C++ compiler would be called.
    """
    compiled = TranslationModule(module.config, VOCAB).train()
    compile_layers(compiled.model, "aot_eager")
    found, new = set(), [loss(compiled, batch_of(*pairs(5), 3, 30)).grad_fn]
    while new:
        found.update(new)
        new = [
            node
            for node in {node for each in new for node, _ in each.next_functions if node}
            if node not in found
        ]
    graphs = [node for node in found if node.name() == "CompiledFunctionBackward"]
    assert len(graphs) == len(compiled.model.encoder) + len(compiled.model.decoder)


class Operations(TorchDispatchMode):
    """Refuses all operations on tensors."""

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        raise AssertionError(operation)


def test_flops_are_counted_from_lengths_on_the_host_without_an_operation_of_the_device(module):
    sources, targets = pairs(5)
    batch = batch_of(sources, targets, 3, 30)
    lengths = zip(map(len, sources), map(len, targets), strict=True)
    expected = sum(training_flops(module.config.model, VOCAB, s, t) for s, t in lengths)
    with Operations():
        assert module.flops(batch) == pytest.approx(expected)
