"""RMSNorm (Zhang and Sennrich 2019) and SwiGLU (Shazeer 2020), whose output comes first."""

from torch import nn
from torch.nn import functional as F

from aiayn.model.layers import AddNorm, Parts


class SwiGLU(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.down = nn.Linear(d_ff, d_model, bias=False)
        self.gate, self.up = (nn.Linear(d_model, d_ff, bias=False) for _ in range(2))

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


PARTS = Parts(
    feed_forward=lambda c, place: SwiGLU(c.d_model, c.d_ff),
    add_norm=lambda c, place: AddNorm(c.d_model, c.dropout, nn.RMSNorm(c.d_model)),
)
