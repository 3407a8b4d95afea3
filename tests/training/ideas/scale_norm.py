"""ScaleNorm (Nguyen and Salazar 2019): one learned length for every vector."""

import torch
from torch import nn
from torch.nn import functional as F

from aiayn.model.layers import AddNorm, Parts


class ScaleNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.length = nn.Parameter(torch.tensor(d_model**0.5))

    def forward(self, x):
        return self.length * F.normalize(x, dim=-1)


PARTS = Parts(add_norm=lambda c, place: AddNorm(c.d_model, c.dropout, ScaleNorm(c.d_model)))
