"""LoRA (Hu et al. 2022): a finished model stays as it is, and matrices of low rank beside its
queries and values learn.

python train.py 'extensions=[examples/extensions/lora.py]' init_from=outputs/GENERAL name=adapted
"""

import torch
from torch import Tensor, nn

from aiayn.config.schema import Config
from aiayn.model.transformer import Transformer
from aiayn.training.module import TranslationModule

RANK = 8


class LoRA(nn.Linear):
    def __init__(self, d_in: int, d_out: int):
        super().__init__(d_in, d_out, bias=False)
        self.down, self.up = (
            nn.Linear(d_in, RANK, bias=False),
            nn.Parameter(torch.zeros(d_out, RANK)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.down(x) @ self.up.T


class Module(TranslationModule):
    @classmethod
    def build_model(cls, config: Config, vocab_size: int) -> Transformer:
        model = super().build_model(config, vocab_size)
        model.requires_grad_(False)
        for layer in (*model.encoder, *model.decoder):
            for name in ("w_q", "w_v"):
                d_out, d_in = getattr(layer.self_attention, name).weight.shape
                setattr(layer.self_attention, name, LoRA(d_in, d_out))
                getattr(layer.self_attention, name).weight.requires_grad_(False)
        return model

    def initial_weights(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.model.state_dict() | weights
