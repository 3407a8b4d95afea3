"""R-Drop (Liang et al. 2021): two passes with different dropout should predict alike.

python train.py extensions=[examples/extensions/r_drop.py] extension.r_drop.alpha=5
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from aiayn.data.batch import Batch
from aiayn.token_ids import PAD_ID
from aiayn.training.loss import cross_entropy
from aiayn.training.module import TranslationModule


@dataclass
class Options:
    alpha: float = 5.0  # weight of the disagreement

    def __post_init__(self) -> None:
        if self.alpha < 0:
            raise ValueError(f"alpha={self.alpha}: must be at least 0")


class Module(TranslationModule):
    def training_loss(self, batch: Batch) -> Tensor:
        """The mean of both losses, and half of equation (3)'s divergence, summed over tokens."""
        smoothing, real = self.config.optim.label_smoothing, batch.tgt_out != PAD_ID
        logits = [self.model.project(self.states(batch)) for _ in range(2)]
        losses = [cross_entropy(each, batch.tgt_out, smoothing) for each in logits]
        p, q = (each[real].float().log_softmax(-1) for each in logits)
        apart = F.kl_div(p, q, reduction="sum", log_target=True) + F.kl_div(q, p, reduction="sum", log_target=True)
        return sum(losses) / 2 + Options(**self.config.extension["r_drop"]).alpha * apart / 4

    def flops(self, batch: Batch) -> float:
        return 2 * self.plain_flops(batch)
