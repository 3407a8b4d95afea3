"""Minimum-risk training (Shen et al. 2016): the expected error, 1 - chrF, of a few translations
drawn from the model.

python train.py 'extensions=[examples/extensions/minimum_risk.py]' init_from=outputs/GENERAL
optim.lr_scale=0.1
"""

import torch
from sacrebleu.metrics import CHRF
from torch import Tensor

from aiayn.config.search import SamplingConfig
from aiayn.data.batch import Batch, pad_sources, shift_right
from aiayn.search.sampling import sample
from aiayn.token_ids import PAD_ID
from aiayn.training.module import TranslationModule

SAMPLES, SHARPNESS = 4, 0.05


class Module(TranslationModule):
    def training_loss(self, batch: Batch) -> Tensor:
        """Returns risk and likelihood in equal parts, weighted by the target's length."""
        loss = super().training_loss(batch)
        if not batch.n_tokens:
            return loss
        self.model.eval()
        lines = [batch.number * 10_000 + row for row in range(len(batch.src))]
        drawn = [
            sample(
                self.model,
                batch.src,
                batch.src_mask,
                lines,
                SamplingConfig(seed=seed),
                self.config.search,
            )
            for seed in range(SAMPLES * self.config.seed, SAMPLES * (self.config.seed + 1))
        ]
        self.model.train()
        decode = self.trainer.datamodule.tokenizer.decode
        truth = decode(
            [[token for token in row if token != PAD_ID] for row in batch.tgt_out.tolist()]
        )
        log_p, risk = [], []
        for found in drawn:
            out = pad_sources([each.tokens for each in found]).to(batch.src.device)
            scores = self.model(batch.src, shift_right(out), batch.src_mask).log_softmax(-1)
            log_p.append((scores.gather(2, out[..., None])[..., 0] * (out != PAD_ID)).sum(1))
            texts = zip(decode([each.tokens for each in found]), truth, strict=True)
            risk.append(
                [
                    1 - CHRF().sentence_score(text, [reference]).score / 100
                    for text, reference in texts
                ]
            )
        share = (SHARPNESS * torch.stack(log_p)).softmax(0)
        return (
            loss
            + (share * torch.tensor(risk).to(share)).sum(0)
            @ torch.as_tensor(batch.lengths[1]).to(share)
        ) / 2
