"""Every faster form against the plain one, and code of extensions, which no faster form may pass
over.
"""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import range_attention_on_cpu  # noqa: F401 - computes packed sentences here
import torch
from search.test_beam_search import SEARCH, SENTENCES, search, transformer
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from aiayn.kernels.accelerate import FastDropout, PrepackedLinear, accelerate
from aiayn.model.attention import MultiHeadAttention, attention
from aiayn.model.embedding import SinusoidalPositions, TiedOutput
from aiayn.model.layers import AddNorm, FeedForward, Parts
from aiayn.model.transformer import Transformer
from aiayn.training.loss import output_cross_entropy

CPU, GPU = torch.device("cpu"), torch.device("cuda")
VOCAB, BEAMS = 17, 4
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}

# The forms for a GPU are portable torch, too.
FORMS = {
    "to train": lambda model: accelerate(model, CPU),
    "to translate": lambda model: accelerate(model, CPU, translates=True),
    "on a GPU": lambda model: accelerate(model, GPU),
}
forms = pytest.mark.parametrize("form", FORMS)


def example() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """src (3, 6), tgt_in (3, 7) and src_mask."""
    real = torch.arange(6) < torch.tensor([6, 2, 4])[:, None]
    return (
        torch.randint(3, VOCAB, (3, 6)) * real,
        torch.randint(3, VOCAB, (3, 7)),
        real[:, None, None],
    )


def stepwise(
    model: Transformer, src: torch.Tensor, tgt_in: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """The logits of `model(src, tgt_in, mask)`, computed as a search does."""
    cache = model.init_cache(model.encode(src, mask), mask, 1)
    return torch.cat(
        [model.project(model.step(tgt_in[:, [t]], cache)) for t in range(tgt_in.size(1))], 1
    )


@pytest.mark.parametrize("form", ["to train", "on a GPU"])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("training", [False, True])
def test_an_accelerated_model_has_the_plain_models_logits_and_gradients(
    tiny_config, form, window, training
):
    config = replace(tiny_config, attention_window=window, dropout=0.0)
    plain = Transformer(config, VOCAB).train(training)
    fast = FORMS[form](copy.deepcopy(plain))
    assert fast.state_dict().keys() == plain.state_dict().keys()
    inputs, results = example(), []
    for model in (plain, fast):
        logits = model(*inputs)
        gradients = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
        results.append((logits, *gradients))
    for found, expected in zip(*reversed(results), strict=True):
        torch.testing.assert_close(found, expected, **TOLERANCE)


@forms
@pytest.mark.parametrize("beams", [1, SEARCH.beam_size])
def test_an_accelerated_model_finds_the_plain_models_translations(form, beams):
    config = replace(SEARCH, beam_size=beams)
    plain = transformer(41, seed=3)
    fast = FORMS[form](copy.deepcopy(plain))
    for found, expected in zip(
        search(fast, SENTENCES, config), search(plain, SENTENCES, config), strict=True
    ):
        assert [each.tokens for each in found] == [each.tokens for each in expected]
        assert [each.score for each in found] == pytest.approx(
            [each.score for each in expected], abs=1e-5
        )


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_a_model_that_translates_on_a_cpu_has_prepacked_weights_and_its_logits(tiny_config):
    plain = Transformer(tiny_config, VOCAB).eval()
    fast = accelerate(copy.deepcopy(plain), CPU, translates=True)
    assert not [
        name for name, each in fast.named_modules() if type(each) in (nn.Linear, TiedOutput)
    ]
    torch.testing.assert_close(fast.output.weight, plain.embedding.weight)
    inputs = example()
    with torch.inference_mode():
        torch.testing.assert_close(fast(*inputs), plain(*inputs), rtol=0, atol=1e-5)
    in_16_bits = accelerate(copy.deepcopy(plain).bfloat16(), CPU, translates=True)
    assert type(in_16_bits.output) is TiedOutput


@forms
def test_accelerating_twice_changes_nothing(tiny_config, form):
    model = FORMS[form](Transformer(tiny_config, VOCAB).eval())
    names = [(name, type(each)) for name, each in model.named_modules()]
    assert [(name, type(each)) for name, each in FORMS[form](model).named_modules()] == names


def test_dropout_keeps_its_probability_and_its_mode(tiny_config):
    model = accelerate(Transformer(tiny_config, VOCAB).eval(), CPU)
    assert not any(each.training for each in model.modules())
    assert not any(isinstance(each, nn.Dropout) for each in model.modules())
    assert {each.p for each in model.modules() if isinstance(each, FastDropout)} == {
        tiny_config.dropout
    }


# Extensions. Each case makes a model of which one part is not the paper's.


class OwnForward(MultiHeadAttention):
    def forward(self, x, context, mask):
        return super().forward(x, context, mask) * x.sigmoid()

    def step(self, x, cache, position, mask):
        return super().step(x, cache, position, mask) * x.sigmoid()


class OwnQueries(MultiHeadAttention):
    def queries(self, x, position=None):
        return super().queries(x, position).tanh()


class OwnKeysValues(MultiHeadAttention):
    def keys_values(self, context, position=None):
        k, v = super().keys_values(context, position)
        return -k, v.tanh()


class OwnHeads(MultiHeadAttention):
    """Masks by itself, as most implementations do."""

    def heads(self, q, k, v, mask):
        assert mask is None or mask.dtype == torch.bool
        scores = -(q @ k.mT)
        if mask is not None:
            scores = torch.where(mask, scores, -torch.inf)
        return scores.softmax(-1) @ v


class OwnAttend(MultiHeadAttention):
    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask).tanh()


class OwnAttention(MultiHeadAttention):
    def __init__(self, *sizes, dropout=0.0):
        super().__init__(*sizes, dropout)
        self.attention = self.uniform

    def uniform(self, q, k, v, mask, p_drop=0.0):
        assert mask is None or mask.dtype == torch.bool
        return attention(q * 0, k, v, mask)


class LoRA(nn.Linear):
    def __init__(self, plain: nn.Linear):
        super().__init__(plain.in_features, plain.out_features, plain.bias is not None)
        self.load_state_dict(plain.state_dict())
        self.a, self.b = (
            nn.Parameter(torch.randn(size, 2)) for size in (self.in_features, self.out_features)
        )

    def forward(self, input):
        return super().forward(input) + input @ self.a @ self.b.T


class LoRAInQueries(MultiHeadAttention):
    def __init__(self, *sizes, dropout=0.0):
        super().__init__(*sizes, dropout)
        self.w_q = LoRA(self.w_q)


class GELU(FeedForward):
    def forward(self, x):
        return self.w_2(F.gelu(self.w_1(x)))


class LoRAFeedForward(FeedForward):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.w_1, self.w_2 = LoRA(self.w_1), LoRA(self.w_2)


class PreNorm(AddNorm):
    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class Backwards(SinusoidalPositions):
    def forward(self, start, length):
        return -super().forward(start, length)


class Gated(nn.Dropout):
    def forward(self, input):
        return input.sigmoid() * input


class GatedNorm(AddNorm):
    def __init__(self, d_model, dropout):
        super().__init__(d_model, dropout)
        self.dropout = Gated(dropout)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


def attention_of(kind: type[MultiHeadAttention]) -> Callable:
    return lambda c, place: kind(c.d_model, c.n_heads, c.d_k, c.d_v)


ATTENTIONS = (
    OwnForward,
    OwnQueries,
    OwnKeysValues,
    OwnHeads,
    OwnAttend,
    OwnAttention,
    LoRAInQueries,
)
PARTS = {
    **{f"self {kind.__name__}": Parts(self_attention=attention_of(kind)) for kind in ATTENTIONS},
    **{f"cross {kind.__name__}": Parts(cross_attention=attention_of(kind)) for kind in ATTENTIONS},
    "GELU": Parts(feed_forward=lambda c, place: GELU(c.d_model, c.d_ff)),
    "LoRA in feed-forward": Parts(feed_forward=lambda c, place: LoRAFeedForward(c.d_model, c.d_ff)),
    "pre-norm": Parts(add_norm=lambda c, place: PreNorm(c.d_model, c.dropout)),
    "other norm": Parts(
        add_norm=lambda c, place: AddNorm(c.d_model, c.dropout, nn.RMSNorm(c.d_model))
    ),
    "dropout": Parts(add_norm=lambda c, place: GatedNorm(c.d_model, c.dropout)),
    "positions": Parts(positions=lambda c, place: Backwards(c.d_model)),
    "final norm": Parts(final_norm=lambda c, place: nn.Tanh()),
}


def every(model: Transformer, kind: type[nn.Module]) -> list[nn.Module]:
    return [each for each in model.modules() if type(each) is kind]


def hook(module: nn.Module) -> None:
    module.register_forward_hook(lambda module, inputs, output: output * 0.5)


def untie(model: Transformer) -> None:
    model.output = nn.Linear(model.config.d_model, VOCAB, bias=False)


def own_method(model: Transformer) -> None:
    for each in every(model, FeedForward):
        each.forward = lambda x, each=each: each.w_2(each.w_1(x).tanh())


CHANGES: dict[str, Callable[[Transformer], object]] = {
    "parametrization": lambda model: [
        parametrize.register_parametrization(each.w_k, "weight", Doubled())
        for each in every(model, MultiHeadAttention)
    ],
    "parametrized embedding": lambda model: parametrize.register_parametrization(
        model.embedding, "weight", Doubled()
    ),
    "hook on linear layers": lambda model: [hook(each) for each in every(model, nn.Linear)],
    "hook on feed-forward networks": lambda model: [
        hook(each) for each in every(model, FeedForward)
    ],
    "hook on the output layer": lambda model: hook(model.output),
    "untied output": untie,
    "method of an object": own_method,
}


def extended(config, case: str) -> Transformer:
    torch.manual_seed(3)
    model = Transformer(config, VOCAB, PARTS.get(case, Parts())).eval()
    if case in CHANGES:
        CHANGES[case](model)
    return model


# In `make test`: one case for each place at which code can be another's.
@pytest.mark.quick("self OwnForward", "cross OwnKeysValues", "GELU", "pre-norm", "hook on linear")
@forms
@pytest.mark.parametrize("case", [*PARTS, *CHANGES])
def test_overridden_code_runs_in_every_form_in_a_whole_pass_and_in_steps(tiny_config, case, form):
    config = replace(tiny_config, dropout=0.0)
    plain = extended(config, case)
    fast = FORMS[form](extended(config, case))
    inputs = example()
    with torch.no_grad():
        expected = plain(*inputs)
        usual = Transformer(config, VOCAB).eval()
        usual.load_state_dict(plain.state_dict(), strict=False)
        assert not torch.allclose(usual(*inputs), expected, atol=1e-3), "the case changes nothing"
        torch.testing.assert_close(stepwise(plain, *inputs), expected, **TOLERANCE)
        torch.testing.assert_close(fast(*inputs), expected, **TOLERANCE)
        torch.testing.assert_close(stepwise(fast, *inputs), expected, **TOLERANCE)
        later = inputs[1].clone()
        later[:, 4] = 3 + (later[:, 4] - 2) % (VOCAB - 3)
        torch.testing.assert_close(
            fast(inputs[0], later, inputs[2])[:, :4], expected[:, :4], **TOLERANCE
        )


@pytest.mark.quick("self LoRAInQueries", "parametrized embedding", "output layer", "untied")
@pytest.mark.parametrize("form", ["to train", "on a GPU"])
@pytest.mark.parametrize("case", [*PARTS, *CHANGES])
def test_overridden_code_is_trained_by_the_loss_of_the_models_own_logits(tiny_config, case, form):
    config = replace(tiny_config, dropout=0.0)
    src, tgt_in, mask = example()
    targets = torch.randint(3, VOCAB, (3, 7))
    plain, fast = extended(config, case).train(), FORMS[form](extended(config, case).train())
    losses = [
        F.cross_entropy(
            plain(src, tgt_in, mask).flatten(0, 1),
            targets.flatten(),
            reduction="sum",
            label_smoothing=0.1,
        ),
        output_cross_entropy(
            fast.decode(tgt_in, fast.encode(src, mask), mask), fast.output, targets, 0.1
        ),
    ]
    torch.testing.assert_close(losses[1], losses[0], **TOLERANCE)
    gradients = [
        torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
        for loss, model in zip(losses, (plain, fast), strict=True)
    ]
    assert sum(gradient is None for gradient in gradients[0]) == 0
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, **TOLERANCE)


# The forms by themselves.


@torch.no_grad()
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
@pytest.mark.parametrize("biased", [True, False])
def test_a_prepacked_product_is_that_of_the_plain_layer(biased):
    linear = nn.Linear(6, 7, bias=biased)
    quick, x = PrepackedLinear(linear.weight, linear.bias), torch.randn(5, 3, 6)
    torch.testing.assert_close(quick(x), linear(x))
    assert torch.equal(quick.weight, linear.weight)
    # A teacher in a training with trainer.precision=bf16-mixed
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(
            quick(x.bfloat16()), linear(x.bfloat16()).float(), rtol=0.02, atol=0.02
        )
