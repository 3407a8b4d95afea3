"""A prefix language model: the decoder's layers encode the source as well, and a target position
attends to its states and to the target so far in one softmax (Raffel et al. 2020).
"""

import torch
from torch import nn

from aiayn.model.layers import DecoderLayer, Parts
from aiayn.model.masks import causal_mask
from aiayn.model.transformer import Transformer
from aiayn.training.module import TranslationModule


class SourceKeys(nn.Module):
    """Gives a search the keys and values of this layer's source states, which `memory` holds."""

    def __init__(self, layer, number, width):
        super().__init__()
        self.layer, self.states = [layer], slice(number * width, (number + 1) * width)

    def keys_values(self, memory):
        return self.layer[0].self_attention.keys_values(memory[..., self.states])


class Layer(DecoderLayer):
    def __init__(self, config, number):
        super().__init__(config)
        self.cross_attention = SourceKeys(self, number, config.d_model)
        self.norm_2 = nn.Identity()

    def rest(self, x, attended):
        return self.norm_3(self.norm_1(x, attended), self.feed_forward)

    def encode(self, x, mask):
        return self.rest(x, lambda x: self.self_attention(x, x, mask))

    def attend(self, q, source, target, src_mask, tgt_mask):
        k, v = (torch.cat(pair, 2) for pair in zip(source, target, strict=True))
        rows = tgt_mask.expand(len(q), 1, q.size(2), -1)
        mask = torch.cat([src_mask.expand(*rows.shape[:3], -1), rows], 3)
        return self.self_attention.attend(q, k, v, mask)

    def forward(self, x, memory, tgt_mask, src_mask):
        own, source = self.self_attention, self.cross_attention.keys_values(memory)
        return self.rest(
            x, lambda x: self.attend(own.queries(x), source, own.keys_values(x), src_mask, tgt_mask)
        )

    def step(self, x, cache, position, ancestry, src_mask):
        own, target, source = self.self_attention, cache.self_attention, cache.cross_attention

        def attended(x):
            target.append(*own.keys_values(x, position))
            q, pairs = own.queries(x, position), ((source.k, source.v), (target.k, target.v))
            return self.attend(q, *pairs, src_mask, ancestry)

        return self.rest(x, attended)


class OneStack(Transformer):
    def encode(self, src, src_mask, positions=None):
        x, states = self.dropout(self.embedding(src) + self.src_positions(0, src.size(1))), []
        for layer in self.decoder:
            states.append(x)
            x = layer.encode(x, src_mask)
        return torch.cat(states, -1)

    def decode(self, tgt_in, memory, src_mask, tgt_mask=None, positions=None):
        mask = causal_mask(tgt_in.size(1), tgt_in.device) if tgt_mask is None else tgt_mask
        return super().decode(tgt_in, memory, src_mask, mask, positions)


class Module(TranslationModule):
    @classmethod
    def build_model(cls, config, vocab_size):
        model = OneStack(config.model, vocab_size, Parts())
        model.encoder = nn.ModuleList()
        layers = range(config.model.n_layers)
        model.decoder = nn.ModuleList(Layer(config.model, number) for number in layers)
        model.reset_parameters()
        return model
