"""Sub-layers of the decoder read the same input side by side, and one norm follows their sum."""

from torch import nn

from aiayn.model.layers import DecoderLayer
from aiayn.training.module import TranslationModule


class Parallel(DecoderLayer):
    def forward(self, x, memory, tgt_mask, src_mask):
        return self.together(
            x,
            lambda x: self.self_attention(x, x, tgt_mask),
            lambda x: self.cross_attention(x, memory, src_mask),
        )

    def step(self, x, cache, position, ancestry, src_mask):
        own, source = cache.self_attention, cache.cross_attention
        return self.together(
            x,
            lambda x: self.self_attention.step(x, own, position, ancestry),
            lambda x: self.cross_attention.step(x, source, position, src_mask),
        )

    def together(self, x, *attentions):
        sublayers = *attentions, self.feed_forward
        return self.norm_1(x, lambda x: sum(sublayer(x) for sublayer in sublayers))


class Module(TranslationModule):
    @classmethod
    def build_model(cls, config, vocab_size):
        model = super().build_model(config, vocab_size)
        for number in range(len(model.decoder)):
            layer = Parallel(config.model, number=number)
            layer.norm_2, layer.norm_3 = nn.Identity(), nn.Identity()
            model.decoder[number] = layer
        model.reset_parameters()
        return model
