"""The proof of the first step sees what a model computes, whatever its methods and weights are
called.
"""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from applications import small_model
from torch import nn

from aiayn.config.extensions import name_class
from aiayn.data.batch import Batch
from aiayn.errors import ConfigError
from aiayn.model.attention import MultiHeadAttention
from aiayn.model.layers import AddNorm, DecoderLayer, FeedForward, Parts
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import Checkpoint
from aiayn.runs.run_folder import saved_steps
from aiayn.token_ids import BOS_ID, EOS_ID
from aiayn.training import proof
from aiayn.training.module import TranslationModule
from aiayn.training.run import train

VOCAB = 60
TOKENIZER = json.dumps({"model": {"vocab": {f"{number}": number for number in range(VOCAB)}}})


class Relative(MultiHeadAttention):
    """Adds a learned bias of zeros for the distance of each key, taken from the places of rows and
    columns.
    """

    reach = 3

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.bias = nn.Parameter(torch.zeros(2 * self.reach + 1, self.n_heads))

    def heads(self, q, k, v, mask):
        offset = torch.arange(k.size(2)) - torch.arange(q.size(2))[:, None]
        bias = self.bias[offset.clamp(-self.reach, self.reach) + self.reach].permute(2, 0, 1)
        scores = q @ k.mT / math.sqrt(q.size(-1)) + bias
        return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v


class FarRelative(Relative):
    """Differs only for keys that are further away than any short sentence has."""

    reach = 11

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.bias = nn.Parameter(torch.zeros(2, self.n_heads))

    def heads(self, q, k, v, mask):
        far = (torch.arange(q.size(2))[:, None] - torch.arange(k.size(2)) > self.reach).long()
        scores = q @ k.mT / math.sqrt(q.size(-1)) + self.bias[far].permute(2, 0, 1)
        return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v


class Gated(MultiHeadAttention):
    """Adds row numbers behind a gate that is closed at first."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.gate = nn.Parameter(torch.zeros(()))

    def keys_values(self, context, position=None):
        k, v = super().keys_values(context, position)
        rows = torch.arange(context.size(1))[:, None]
        return k, v + self.gate.tanh() * rows


class OnlyForward(MultiHeadAttention):
    def forward(self, x, context, mask):
        return -super().forward(x, context, mask)


class Unmasked(MultiHeadAttention):
    def heads(self, q, k, v, mask):
        return super().heads(q, k, v, None)


class Grouped(MultiHeadAttention):
    """Heads share keys and values: a cache of fewer heads."""

    def __init__(self, d_model, n_heads, d_k, d_v, groups=1):
        super().__init__(d_model, n_heads, d_k, d_v)
        self.groups = groups
        self.w_k = nn.Linear(d_model, groups * d_k, bias=False)
        self.w_v = nn.Linear(d_model, groups * d_v, bias=False)

    def keys_values(self, context, position=None):
        return tuple(
            w(context).unflatten(2, (self.groups, -1)).transpose(1, 2) for w in (self.w_k, self.w_v)
        )

    def heads(self, q, k, v, mask):
        shared = self.n_heads // self.groups
        return super().heads(
            q, k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1), mask
        )


class MeanOf(FeedForward):
    """Adds a mean over one dimension: 0 the sentences of a batch, 1 the positions."""

    def __init__(self, *sizes, dim=0):
        super().__init__(*sizes)
        self.dim = dim

    def forward(self, x):
        return super().forward(x) + x.mean(self.dim, keepdim=True)


class Crowded(FeedForward):
    """Has capacity for half of all words of a batch, padding among them."""

    def forward(self, x):
        capacity = x[..., 0].numel() // 2
        served = torch.arange(x[..., 0].numel()).view(x.shape[:2]) < capacity
        return super().forward(x) * served[..., None]


class OwnLayer(DecoderLayer):
    def forward(self, x, memory, tgt_mask, src_mask):
        return super().forward(x, memory, tgt_mask, src_mask) * 2


class SlowLayer(OwnLayer):
    def step(self, x, cache, position, ancestry, src_mask):
        return super().step(x, cache, position, ancestry, src_mask) * 2


class OwnDecode(Transformer):
    def decode(self, tgt_in, memory, src_mask):
        return super().decode(tgt_in, memory, src_mask) * 2


class Factorized(Transformer):
    """Has embeddings without one matrix of their own."""

    def __init__(self, config, *sizes):
        super().__init__(config, *sizes)
        self.embedding = nn.Sequential(nn.Embedding(VOCAB, 4), nn.Linear(4, config.d_model))
        self.output = nn.Linear(config.d_model, VOCAB)


def attention_of(kind, **more):
    return lambda c, place: kind(c.d_model, c.n_heads, c.d_k, c.d_v, **more)


def feed_forward_of(stack, dim):
    def build(c, place):
        return (
            MeanOf(c.d_model, c.d_ff, dim=dim)
            if place.stack == stack
            else FeedForward(c.d_model, c.d_ff)
        )

    return build


def built(parts: Parts | None = None, kind=Transformer, layer=None) -> Transformer:
    torch.manual_seed(5)
    config = small_model(n_heads=4, max_positions=90)
    model = kind(config, VOCAB, parts or Parts()).eval()
    if layer:
        model.decoder[1] = layer(config).eval()
    return model


def differences(model: Transformer, max_length: int = 30, seed: int | None = 0) -> dict[str, float]:
    with torch.inference_mode():
        if seed is not None:
            proof.moved(model, seed)
        faults = proof.position_faults(model, VOCAB, (max_length + 1,), max_length)
        return faults | proof.short_faults(model, VOCAB)


@pytest.mark.parametrize(
    ("fault", "build"),
    {
        "distances by rows": (
            "search",
            lambda: built(Parts(self_attention=attention_of(Relative))),
        ),
        "far distances by rows": (
            "search",
            lambda: built(Parts(self_attention=attention_of(FarRelative))),
        ),
        "rows behind a closed gate": (
            "search",
            lambda: built(Parts(self_attention=attention_of(Gated))),
        ),
        "only one of two methods": (
            "search",
            lambda: built(Parts(cross_attention=attention_of(OnlyForward))),
        ),
        "only the whole layer": ("search", lambda: built(layer=OwnLayer)),
        "only the whole decoder": ("search", lambda: built(kind=OwnDecode)),
        "no mask": ("padding", lambda: built(Parts(cross_attention=attention_of(Unmasked)))),
        "the future": ("future", lambda: built(Parts(self_attention=attention_of(Unmasked)))),
        "a mean over targets": (
            "future",
            lambda: built(Parts(feed_forward=feed_forward_of("decoder", 1))),
        ),
        "a mean over sources": (
            "padding",
            lambda: built(Parts(feed_forward=feed_forward_of("encoder", 1))),
        ),
        "a mean over sentences": (
            "neighbours",
            lambda: built(Parts(feed_forward=feed_forward_of("decoder", 0))),
        ),
    }.values(),
)
def test_a_model_whose_search_is_not_its_training_is_seen(fault, build):
    assert fault in differences(build())


@pytest.mark.parametrize(
    "build",
    {
        "the paper's": built,
        "one group": lambda: built(Parts(attention_of(Grouped), attention_of(Grouped))),
        "two groups, in self-attention": lambda: built(
            Parts(self_attention=attention_of(Grouped, groups=2))
        ),
        "two groups, over the source": lambda: built(
            Parts(cross_attention=attention_of(Grouped, groups=2))
        ),
        "both methods": lambda: built(layer=SlowLayer),
        "embeddings of low rank": lambda: built(kind=Factorized),
        "norms": lambda: built(
            Parts(add_norm=lambda c, place: AddNorm(c.d_model, 0.1, nn.RMSNorm(c.d_model)))
        ),
        "a window": lambda: Transformer(replace(small_model(), attention_window=6), VOCAB).eval(),
        "learned positions": lambda: Transformer(
            replace(small_model(), positions="learned"), VOCAB
        ).eval(),
    }.values(),
)
def test_a_model_whose_search_is_its_training_passes(build):
    assert differences(build()) == {}


def test_words_that_compete_with_those_of_neighbours_may_compete_with_padding():
    def build(c, place):
        return (Crowded if place.stack == "encoder" else FeedForward)(c.d_model, c.d_ff)

    assert differences(built(Parts(feed_forward=build))).keys() == {"neighbours"}


def test_without_noise_a_fault_behind_zeros_would_not_be_seen():
    assert differences(built(Parts(self_attention=attention_of(Gated))), seed=None) == {}


def test_a_fault_that_only_long_sentences_show_is_not_seen_in_short_ones():
    assert differences(built(Parts(self_attention=attention_of(FarRelative))), max_length=5) == {}


@pytest.mark.parametrize("reach", [11, 40, 70])
@pytest.mark.parametrize("has_other_sizes", [True, False])
def test_distances_are_compared_over_a_whole_long_sentence_by_a_narrow_model_of_the_same_code(
    reach, has_other_sizes, config
):
    kind = type("Own", (FarRelative,), {"reach": reach})
    if not has_other_sizes:

        def build(c, place):
            assert c.d_ff == config.model.d_ff, "code for one size"
            return kind(c.d_model, c.n_heads, c.d_k, c.d_v)
    else:
        build = attention_of(kind)
    own = module_of(self_attention=build)
    parts = name_class(own)
    config = replace(
        config,
        model=replace(config.model, parts=parts),
        data=replace(config.data, max_length=60),
    )
    checkpoint = Checkpoint(1, config, {}, TOKENIZER, "", 1, [])
    torch.manual_seed(5)
    model = own.build_model(checkpoint.config, checkpoint.vocab_size).eval()
    with torch.inference_mode():
        faults = proof.code_faults(checkpoint, proof.moved(model, 0), 0, 0.5)

    assert ("search" in faults) == (reach < (60 if has_other_sizes else proof.POSITIONS))


def module_of(kind=Transformer, **parts) -> type[TranslationModule]:
    class Own(TranslationModule):
        @classmethod
        def build_model(cls, config, vocab_size):
            return kind(config.model, vocab_size, Parts(**parts))

    return Own


class OwnLogits(Transformer):
    def project(self, states):
        return super().project(states) * 2


class OwnForward(Transformer):
    def forward(self, src, tgt_in, src_mask):
        return super().forward(src, tgt_in, src_mask) * 2


class Fails(MultiHeadAttention):
    def queries(self, x, position=None):
        assert x.size(1) > 2, "of three positions at least"
        return super().queries(x, position)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            module_of(self_attention=attention_of(Gated)),
            r"Own: decoding position by position .* differ by [\d.]+\)",
        ),
        (
            module_of(self_attention=attention_of(Unmasked)),
            "Own: a target position depends on later ones",
        ),
        (
            module_of(OwnLogits),
            "Own: the reloaded model gives different outputs",
        ),
        (module_of(OwnForward), "Own: forward gives different outputs from decode and output"),
        (
            module_of(cross_attention=attention_of(Fails)),
            "Own: fails when it decodes position by position, .*of three pos",
        ),
    ],
)
def test_a_run_whose_model_cannot_be_searched_ends_at_its_first_step(
    module, message, config, tmp_path
):
    with pytest.raises(ConfigError, match=message):
        train(config, tmp_path, module=module)
    assert saved_steps(tmp_path / "run/checkpoints") == []


class Mean(module_of(feed_forward=feed_forward_of("decoder", 0))):
    def training_loss(self, batch):
        return super().training_loss(batch) / batch.n_tokens


def test_sentences_that_change_each_other_or_their_weights_are_named_and_train_on(
    config, tmp_path, caplog
):
    few = replace(config, trainer=replace(config.trainer, max_steps=1, val_every=1))
    run = train(few, tmp_path, module=Mean)
    assert "a sentence's outputs depend on the other sentences of its batch" in caplog.text
    assert re.search(r"the loss of two sentences together is 0\.[45]\d? times the sum", caplog.text)
    assert saved_steps(run / "checkpoints") == [1]


class Counting(FeedForward):
    """Counts its calls in training, and computes with the number."""

    in_buffer = False

    def __init__(self, *sizes):
        super().__init__(*sizes)
        if self.in_buffer:
            self.register_buffer("calls", torch.zeros(()))
        else:
            self.calls = 0

    def forward(self, x):
        self.calls = self.calls + self.training
        return super().forward(x) * (1 + self.calls * self.training)


@pytest.mark.parametrize("in_buffer", [False, True])
def test_what_training_changes_and_no_checkpoint_holds_is_named(in_buffer, config):
    kind = type("Own", (Counting,), {"in_buffer": in_buffer})
    own = module_of(feed_forward=lambda c, place: kind(c.d_model, c.d_ff))
    torch.manual_seed(5)
    module = own(config, VOCAB)
    module.configure_model()
    src, tgt = torch.tensor([[4, 5, EOS_ID]]), torch.tensor([[BOS_ID, 6, 7]])
    batch = Batch(0, src, tgt, tgt, (np.array([3]), np.array([3])), 3)
    module.states(batch)
    saved = {name: weight.clone() for name, weight in module.model.state_dict().items()}
    reloaded = own.build_model(module.config, VOCAB)
    reloaded.load_state_dict(saved)

    with torch.inference_mode():
        faults = proof.reload_faults(reloaded.eval(), module, batch, saved)
    assert faults.keys() == (set() if in_buffer else {"resume"})
    assert proof.holds(module.model, saved), "buffers are as they were"
    assert module.model.training
    module.states(batch).sum().backward()
