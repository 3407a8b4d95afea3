"""Gradient noise (Neelakantan et al. 2015) from a generator whose state is saved with the step."""

import torch
from pytorch_lightning import Callback


class Noise(Callback):
    def __init__(self):
        self.generator = torch.Generator().manual_seed(1)

    def on_before_optimizer_step(self, trainer, module, optimizer):
        for weight in module.parameters():
            noise = torch.empty(weight.shape).normal_(std=0.01, generator=self.generator)
            weight.grad += noise.to(weight)

    def state_dict(self):
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state):
        self.generator.set_state(state["generator"])


def callbacks(run):
    return [Noise()]
