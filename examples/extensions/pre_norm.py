"""Pre-norm layers, x + Dropout(Sublayer(LayerNorm(x))), and a norm after each stack (Xiong et al.
2020).

python train.py 'extensions=[examples/extensions/pre_norm.py]'
"""

from collections.abc import Callable

from torch import Tensor, nn

from aiayn.model.layers import AddNorm, Parts


class PreNorm(AddNorm):
    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Normalises before the sub-layer: x (B, T, D). Returns (B, T, D)."""
        return x + self.dropout(sublayer(self.norm(x)))


PARTS = Parts(
    add_norm=lambda config, layer: PreNorm(config.d_model, config.dropout),
    final_norm=lambda config, layer: nn.LayerNorm(config.d_model),
)
