"""All layers of a stack are one, as in the Universal Transformer and ALBERT."""

from torch import nn

from aiayn.model.transformer import Transformer
from aiayn.training.module import TranslationModule


class Module(TranslationModule):
    @classmethod
    def build_model(cls, config, vocab_size):
        model = Transformer(config.model, vocab_size)
        model.encoder = nn.ModuleList([model.encoder[0]] * len(model.encoder))
        model.decoder = nn.ModuleList([model.decoder[0]] * len(model.decoder))
        return model
