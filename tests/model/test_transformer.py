"""Figure 1: what the whole model must not see, what it must be equal to, and how large it is."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.config.model import ModelConfig
from aiayn.model.attention import MultiHeadAttention
from aiayn.model.embedding import sinusoids
from aiayn.model.layers import FeedForward, Parts
from aiayn.model.transformer import Transformer
from aiayn.reports.published import TABLE_3
from aiayn.token_ids import BOS_ID, PAD_ID

VOCAB = 17
SRC_LENGTHS, TGT_LENGTHS = [6, 3, 1, 5], [4, 7, 2, 3]


@pytest.fixture
def model(tiny_config) -> Transformer:
    """Ready to be evaluated; its embeddings are large, so that attention is far from uniform."""
    model = Transformer(tiny_config, VOCAB).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(3)
    return model


def padded(lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Random ids (B, L) with padding on the right, and where they are real."""
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.randint(3, VOCAB, real.shape).where(real, PAD_ID), real


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """src (4, 6), tgt_in (4, 7), and where they are real."""
    src, src_real = padded(SRC_LENGTHS)
    tgt_in, tgt_real = padded(TGT_LENGTHS)
    tgt_in[:, 0] = BOS_ID
    return src, tgt_in, src_real, tgt_real


def mask(real: Tensor) -> Tensor:
    return real[:, None, None, :]


@torch.no_grad()
def test_no_logit_changes_by_a_bit_when_later_target_tokens_change(model, batch):
    src, tgt_in, src_real, _ = batch
    logits = model(src, tgt_in, mask(src_real))
    for t in range(1, tgt_in.size(1)):
        changed = tgt_in.clone()
        changed[:, t:] = torch.randint(3, VOCAB, changed[:, t:].shape)
        changed[:, t] = (tgt_in[:, t] + 1) % VOCAB
        others = model(src, changed, mask(src_real))
        assert torch.equal(others[:, :t], logits[:, :t])
        assert not torch.isclose(others[:, t], logits[:, t]).all(dim=-1).any(), (
            "position t does see token t"
        )


@pytest.mark.parametrize("training", [False, True])
def test_the_gradient_of_a_logit_with_respect_to_later_target_tokens_is_exactly_zero(
    model, batch, training
):
    src, tgt_in, src_real, _ = batch
    model.train(training)
    embedded = []
    model.embedding.register_forward_hook(lambda module, arguments, output: embedded.append(output))
    logits = model(src, tgt_in, mask(src_real))
    for t in range(tgt_in.size(1)):
        gradient, of_source = (
            torch.autograd.grad(logits[:, t].square().sum(), target, retain_graph=True)[0]
            for target in embedded[::-1]
        )
        assert torch.all(gradient[:, t + 1 :] == 0)
        assert torch.all(gradient[:, : t + 1].abs().sum(-1) > 0), "every earlier token does matter"
        assert torch.all((of_source.abs().sum(-1) > 0) == src_real), (
            "and so does all of the source, padding excepted"
        )


@torch.no_grad()
def test_what_stands_at_padded_positions_changes_no_bit_of_the_logits(model, batch):
    src, tgt_in, src_real, tgt_real = batch
    model.embedding.weight[PAD_ID:3] *= 50
    logits = model(src, tgt_in, mask(src_real))
    src_noise = torch.randint(0, VOCAB, src.shape).where(~src_real, src)
    tgt_noise = torch.randint(0, VOCAB, tgt_in.shape).where(~tgt_real, tgt_in)
    assert not torch.equal(src, src_noise)
    assert not torch.equal(tgt_in, tgt_noise)
    noisy = model(src_noise, tgt_noise, mask(src_real))
    assert torch.equal(noisy[tgt_real], logits[tgt_real])


@torch.no_grad()
def test_the_amount_of_padding_changes_the_logits_by_rounding_only(model, batch):
    src, tgt_in, src_real, tgt_real = batch
    logits = model(src, tgt_in, mask(src_real))
    more = [nn.functional.pad(x, (0, 11)) for x in (src, tgt_in, src_real)]
    padded_more = model(more[0], more[1], mask(more[2]))[:, :7]
    torch.testing.assert_close(padded_more[tgt_real], logits[tgt_real], rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_sentence_has_the_logits_that_it_has_alone_wherever_in_the_batch_it_stands(model, batch):
    src, tgt_in, src_real, _ = batch
    logits = model(src, tgt_in, mask(src_real))
    backwards = model(src.flip(0), tgt_in.flip(0), mask(src_real.flip(0))).flip(0)
    torch.testing.assert_close(backwards, logits, rtol=0, atol=1e-5)
    for n, (s, t) in enumerate(zip(SRC_LENGTHS, TGT_LENGTHS, strict=True)):
        alone = model(src[[n], :s], tgt_in[[n], :t], mask(src_real[[n], :s]))
        torch.testing.assert_close(alone[0], logits[n, :t], rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_model_is_a_stack_of_torchs_layers_without_final_norms(
    tiny_config, batch, torch_twin, seed
):
    torch.manual_seed(seed)
    config = replace(
        tiny_config, n_layers=3, n_heads=(1, 2, 4)[seed], d_k=None, d_v=None, dropout=0.0
    )
    model = Transformer(config, VOCAB)
    first = [torch_twin(layer) for layer in (model.encoder[0], model.decoder[0])]
    encoder = nn.TransformerEncoder(first[0], 3, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(first[1], 3)
    encoder.layers = nn.ModuleList(map(torch_twin, model.encoder))
    decoder.layers = nn.ModuleList(map(torch_twin, model.decoder))
    src, tgt_in, src_real, _ = batch
    weight = model.embedding.weight.detach().clone().requires_grad_()
    embedded = [weight[ids] * math.sqrt(12) + sinusoids(ids.size(1), 12) for ids in (src, tgt_in)]
    memory = encoder(embedded[0], src_key_padding_mask=~src_real)
    causal = torch.ones(7, 7, dtype=torch.bool).triu(1)
    states = decoder(embedded[1], memory, tgt_mask=causal, memory_key_padding_mask=~src_real)
    expected, logits = states @ weight.T, model(src, tgt_in, mask(src_real))
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    sample = torch.randn_like(logits)
    gradient = torch.autograd.grad((logits * sample).sum(), model.embedding.weight)
    torch.testing.assert_close(
        gradient, torch.autograd.grad((expected * sample).sum(), weight), rtol=1e-4, atol=1e-4
    )


@torch.no_grad()
def test_in_float64_the_logits_are_torchs_to_twelve_digits_also_beyond_the_first_table(
    tiny_config, torch_twin
):
    model = Transformer(replace(tiny_config, d_k=None, d_v=None), VOCAB).double().eval()
    encoder = nn.Sequential(*map(torch_twin, model.encoder)).double()
    decoder = [torch_twin(layer).double() for layer in model.decoder]
    src, tgt_in = torch.randint(3, VOCAB, (2, 1100)), torch.randint(3, VOCAB, (2, 9))
    angles = torch.arange(1100, dtype=torch.float64)[:, None] / 10000 ** (
        torch.arange(0, 12, 2, dtype=torch.float64) / 12
    )
    encodings = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    weight = model.embedding.weight
    memory, states = (
        weight[ids] * math.sqrt(12) + encodings[: ids.size(1)] for ids in (src, tgt_in)
    )
    memory = encoder(memory)
    for layer in decoder:
        states = layer(states, memory, tgt_mask=torch.ones(9, 9, dtype=torch.bool).triu(1))
    logits = model(src, tgt_in, mask(src > 0))
    torch.testing.assert_close(logits, states @ weight.T, rtol=0, atol=1e-12)


def test_dropout_stands_behind_both_embedding_sums_and_every_sublayer_and_nowhere_else(
    tiny_config, batch, monkeypatch
):
    src, tgt_in, src_real, _ = batch
    seen = []
    monkeypatch.setattr(
        nn.Dropout, "forward", lambda self, x: (seen.append((self.p, tuple(x.shape))), x)[1]
    )
    model = Transformer(tiny_config, VOCAB)
    model(src, tgt_in, mask(src_real))
    assert seen == [(0.3, (4, 6, 12))] * (1 + 2 * 2) + [(0.3, (4, 7, 12))] * (1 + 2 * 3)


@torch.no_grad()
def test_training_is_random_by_torchs_seed_and_evaluation_is_not_random(model, batch):
    src, tgt_in, src_real, _ = batch
    inputs = (src, tgt_in, mask(src_real))
    assert torch.equal(model(*inputs), model(*inputs))
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(model.train()(*inputs))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])


@torch.no_grad()
@pytest.mark.parametrize("d_model", [64, 256])
def test_initial_weights_have_the_documented_statistics(tiny_config, d_model):
    config = replace(
        tiny_config, d_model=d_model, d_ff=3 * d_model, d_k=d_model // 4, d_v=d_model // 2
    )
    model = Transformer(replace(config, positions="learned", max_positions=300), 4000)
    matrices = []
    for name, parameter in model.named_parameters():
        if name.startswith(("embedding", "src_positions", "tgt_positions")):
            assert float(parameter.std()) == pytest.approx(d_model**-0.5, rel=0.05)
            assert abs(float(parameter.mean())) < 0.05 * d_model**-0.5
        elif parameter.dim() == 2:
            bound = math.sqrt(6 / sum(parameter.shape))
            if name.endswith(("w_o.weight", "w_2.weight")):  # these write into the residual stream
                bound /= math.sqrt(2 * config.n_layers)
            assert 0.95 * bound < float(parameter.abs().max()) <= bound
            assert float(parameter.std()) == pytest.approx(bound / math.sqrt(3), rel=0.05)
            matrices.append(parameter)
        else:
            assert torch.all(parameter == (1.0 if name.endswith("norm.weight") else 0.0)), name
    assert len(matrices) == 2 * (4 + 2) + 2 * (8 + 2)
    assert len({float(matrix[0, 0]) for matrix in matrices}) == len(matrices), (
        "every matrix has its own draw"
    )
    ids = torch.randint(0, 4000, (3, 50))
    assert float(model.embedding(ids).std()) == pytest.approx(1, rel=0.05)


def count(config: ModelConfig, vocab_size: int) -> int:
    """Parameters, without allocating them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Transformer(config, vocab_size).parameters())


def test_the_number_of_parameters_is_what_the_equations_add_up_to(tiny_config):
    d, f, h, d_k, d_v = 12, 20, 3, 5, 7
    attention, feed_forward, norm = 2 * d * h * d_k + 2 * d * h * d_v, 2 * d * f + f + d, 2 * d
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    assert count(tiny_config, VOCAB) == VOCAB * d + 2 * (encoder + decoder)
    learned = replace(tiny_config, positions="learned")
    assert count(learned, VOCAB) == count(tiny_config, VOCAB) + 2 * 64 * d


@pytest.mark.parametrize(
    "row",
    [row for row in TABLE_3 if row.name not in ("big", "e_learned")],
    ids=lambda row: row.name,
)
def test_at_vocabulary_size_40960_base_sized_rows_have_the_papers_number_of_parameters(row):
    """In millions; where Table 3 prints none, base's."""
    assert count(row.model, 40_960) / 1e6 == pytest.approx(row.printed["parameters"] or 65, abs=0.6)


class Experts(nn.Module):
    def __init__(self, d_model, reset):
        super().__init__()
        self.matrices = nn.Parameter(torch.full((2, d_model, d_model), 0.5))
        self.inner = nn.Linear(d_model, d_model)
        if reset:
            self.reset_parameters()

    def forward(self, x):
        return self.inner(x @ self.matrices.mean(0))


class OwnReset(Experts):
    def reset_parameters(self):
        nn.init.constant_(self.matrices, 0.25)
        nn.init.constant_(self.inner.weight, 0.125)


def test_what_a_part_draws_itself_is_left_and_its_linear_layers_are_drawn_as_the_papers(
    tiny_config,
):
    for part, values in ((Experts, {0.5}), (OwnReset, {0.25})):
        parts = Parts(
            feed_forward=lambda config, place, part=part: part(config.d_model, part is OwnReset)
        )
        model = Transformer(tiny_config, VOCAB, parts)
        experts = model.decoder[0].feed_forward
        assert set(experts.matrices.flatten().tolist()) == values
        assert (len(set(experts.inner.weight.flatten().tolist())) == 1) == (part is OwnReset)
        assert experts.inner.bias.abs().sum() == 0 or part is OwnReset


class SwiGLU(nn.Module):
    """The output is called `down` and is not the last attribute."""

    def __init__(self, d_model, width):
        super().__init__()
        self.down, self.gate, self.up = (
            nn.Linear(width, d_model),
            nn.Linear(d_model, width),
            nn.Linear(d_model, width),
        )


class Routed(nn.Module):
    def __init__(self, d_model, width):
        super().__init__()
        self.experts = nn.ModuleList(SwiGLU(d_model, width) for _ in range(2))
        self.router = nn.Linear(d_model, 2)


class Squared(nn.Module):
    """The output has the inputs' size and is the first attribute."""

    def __init__(self, d_model):
        super().__init__()
        self.out, self.gate, self.up = (nn.Linear(d_model, d_model) for _ in range(3))

    def forward(self, x):
        return self.out(F.silu(self.gate(x)) * self.up(x))


class Adapted(FeedForward):
    """Two branches are added up, the second with a narrow layer of its own."""

    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.down, self.back = nn.Linear(d_model, 2), nn.Linear(2, d_model)

    def forward(self, x):
        y = super().forward(x)
        return y + self.back(F.relu(self.down(y)))


class FirstOfExperts(nn.Module):
    """Routes all positions of the trial to one expert."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.experts = nn.ModuleDict({name: Squared(d_model) for name in "abc"})
        self.router = nn.Linear(d_model, 3)

    def forward(self, x):
        return self.experts["a"](x) * self.router(x).softmax(-1)[..., :1]


class GatedAttention(MultiHeadAttention):
    """The gate is the last attribute, and multiplies what the output projects."""

    def __init__(self, d_model, *sizes):
        super().__init__(d_model, *sizes)
        self.gate = nn.Linear(d_model, d_model)

    def forward(self, x, context, mask):
        heads = self.heads(self.queries(x), *self.keys_values(context), mask & True)
        return self.w_o(heads.transpose(1, 2).flatten(2) * self.gate(x)[..., :1].sigmoid())


@pytest.mark.parametrize(
    ("build", "last"),
    [
        (lambda c: {"feed_forward": Squared(c.d_model)}, ("out",)),
        (lambda c: {"feed_forward": Adapted(c.d_model, c.d_ff)}, ("w_2", "back")),
        (lambda c: {"feed_forward": FirstOfExperts(c.d_model, c.d_ff)}, ("out",)),
        (
            lambda c: {"self_attention": GatedAttention(c.d_model, c.n_heads, c.d_k, c.d_v)},
            ("w_o",),
        ),
    ],
)
def test_the_layers_that_no_other_one_follows_start_smaller_wherever_they_are_defined(
    tiny_config, build, last
):
    [name] = build(tiny_config)
    parts = Parts(**{name: lambda config, place: build(config)[name]})
    model = Transformer(replace(tiny_config, d_model=24), VOCAB, parts)
    for path, linear in getattr(model.encoder[0], name).named_modules():
        if isinstance(linear, nn.Linear):
            glorot = (6 / (linear.in_features + linear.out_features)) ** 0.5
            gain = 0.5 if path.rpartition(".")[2] in last else 1
            assert float(linear.weight.detach().abs().max()) == pytest.approx(
                glorot * gain, rel=0.15
            ), path


def test_a_trial_of_a_part_leaves_its_counters_and_the_random_numbers_as_they_are(tiny_config):
    class Counting(FeedForward):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x) + torch.rand(())

    def built(part):
        torch.manual_seed(3)
        return Transformer(tiny_config, VOCAB, Parts(feed_forward=part))

    counting = built(lambda c, place: Counting(c.d_model, c.d_ff))
    assert [layer.feed_forward.calls for layer in counting.encoder] == [0, 0]
    plain = built(Parts().feed_forward).state_dict()
    assert all(torch.equal(plain[name], weight) for name, weight in counting.state_dict().items())


@pytest.mark.parametrize(
    ("part", "last"),
    [
        (lambda d, f: FeedForward(d, f), "w_2"),
        (lambda d, f: SwiGLU(d, f), "down"),
        (lambda d, f: nn.Sequential(nn.Linear(d, f), nn.ReLU(), nn.Linear(f, d)), "2"),
        (lambda d, f: Routed(d, f), "down"),
    ],
)
def test_the_last_linear_layer_of_a_sub_layer_starts_smaller_whatever_it_is_called(
    tiny_config, part, last
):
    config = replace(tiny_config, n_decoder_layers=5)
    torch.manual_seed(2)
    model = Transformer(config, VOCAB, Parts(feed_forward=lambda c, place: part(c.d_model, c.d_ff)))
    for stack, depth in ((model.encoder, 2), (model.decoder, 5)):
        linears = [each for each in stack.named_modules() if isinstance(each[1], nn.Linear)]
        for name, linear in linears:
            glorot = (6 / (linear.in_features + linear.out_features)) ** 0.5
            expected = glorot * ((2 * depth) ** -0.5 if name.endswith((f".{last}", ".w_o")) else 1)
            assert float(linear.weight.abs().max()) == pytest.approx(expected, rel=0.15), name
