"""SwiGLU instead of the feed-forward network (Shazeer 2020): W_2 (silu(W_1 x) * W_3 x), with 2/3 of its inner width.

python train.py extensions=[examples/extensions/swiglu.py]
"""

from torch import Tensor, nn
from torch.nn import functional as F

from aiayn.model.layers import Parts


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.w_1 = nn.Linear(d_model, d_ff, bias=False)
        self.w_3 = nn.Linear(d_model, d_ff, bias=False)
        self.w_2 = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, D). Returns (B, T, D)."""
        return self.w_2(F.silu(self.w_1(x)) * self.w_3(x))


PARTS = Parts(feed_forward=lambda config: SwiGLU(config.d_model, config.d_ff * 2 // 3))
