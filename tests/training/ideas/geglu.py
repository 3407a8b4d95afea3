"""GEGLU (Shazeer 2020): a feed-forward network with a gate, its output inside a Sequential."""

from torch import nn
from torch.nn import functional as F

from aiayn.model.layers import Parts


class GEGLU(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.both = nn.Linear(d_model, 2 * d_ff, bias=False)
        self.back = nn.Sequential(nn.Identity(), nn.Linear(d_ff, d_model, bias=False))

    def forward(self, x):
        gate, up = self.both(x).chunk(2, -1)
        return self.back(F.gelu(gate) * up)


PARTS = Parts(feed_forward=lambda c, place: GEGLU(c.d_model, c.d_ff))
