"""Stochastic depth: leaves out sub-layers while training, drawn by Python, numpy and torch."""

import random

import numpy as np
import torch

from aiayn.model.layers import AddNorm, Parts


class StochasticDepth(AddNorm):
    def forward(self, x, sublayer):
        draws = random.random(), np.random.rand(), float(torch.rand(()))
        if self.training and min(draws) < 0.1:
            return self.norm(x)
        return super().forward(x, sublayer)


PARTS = Parts(add_norm=lambda config, layer: StochasticDepth(config.d_model, config.dropout))
