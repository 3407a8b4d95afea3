"""Word-level distillation (Kim and Rush 2016): a small model learns what a finished one would
predict.

python train.py model=tiny 'extensions=[examples/extensions/distillation.py]'
extension.distillation.teacher=outputs/BIG

Both need the same tokenizer: the same data options, or init_from.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

import aiayn
from aiayn.data.batch import Batch
from aiayn.errors import ConfigError
from aiayn.token_ids import PAD_ID
from aiayn.training.loss import cross_entropy
from aiayn.training.module import TranslationModule


@dataclass
class Options:
    teacher: str = ""  # a run's folder
    weight: float = 0.5  # weight of the teacher's loss; the rest is the paper's


class Module(TranslationModule):
    def on_fit_start(self) -> None:
        teacher = aiayn.load(self.options.teacher, engine="torch")
        if teacher.tokenizer.to_json() != self.trainer.datamodule.tokenizer.to_json():
            raise ConfigError(
                f"extension.distillation.teacher={self.options.teacher} has another tokenizer"
            )
        self.teacher = (teacher.model.to(self.device),)  # in a tuple: neither trained nor saved

    def training_loss(self, batch: Batch) -> Tensor:
        real = batch.tgt_out != PAD_ID
        with torch.no_grad():
            expected = self.teacher[0](batch.src, batch.tgt_in, batch.src_mask)[real].softmax(-1)
        logits = self.model(batch.src, batch.tgt_in, batch.src_mask)
        words = cross_entropy(logits, batch.tgt_out, self.config.optim.label_smoothing)
        teacher = F.cross_entropy(logits[real], expected, reduction="sum")
        weight = self.options.weight
        return (1 - weight) * words + weight * teacher
