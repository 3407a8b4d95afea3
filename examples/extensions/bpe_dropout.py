"""A data module: BPE-dropout of the sources (Provilkov et al. 2020), a function of seed and
micro-batch alone.

python train.py 'extensions=[examples/extensions/bpe_dropout.py]' extension.bpe_dropout.p=0.1
"""

import json
import random
import re
from dataclasses import dataclass, replace
from itertools import pairwise

from aiayn.config.rules import require
from aiayn.data.batch import Batch, pad_sources
from aiayn.data.datamodule import TranslationDataModule
from aiayn.token_ids import EOS_ID


@dataclass
class Options:
    p: float = 0.1  # probability of leaving out a merge


def segment(
    word: str, ranks: dict[tuple[str, str], int], p: float, draw: random.Random
) -> list[str]:
    pieces = list(word)
    while found := [
        (ranks[two], i)
        for i, two in enumerate(pairwise(pieces))
        if two in ranks and draw.random() >= p
    ]:
        i = min(found)[1]
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]
    return pieces


class DataModule(TranslationDataModule):
    def on_before_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Is called by Lightning with every batch, also in validation."""
        if not (self.trainer and self.trainer.training and batch.n_tokens):
            return batch
        bpe = json.loads(self.tokenizer.source.to_json())["model"]
        require(
            "merges" in bpe and not self.tokenizer.symbols,
            "bpe_dropout: needs data.tokenizer=bpe, no symbols",
        )
        ranks = {(left, right): rank for rank, (left, right) in enumerate(bpe["merges"])}
        p = self.options.p
        draw, lines = random.Random(f"{self.seed}/{batch.number}"), []
        for row in batch.src.tolist():
            words = re.findall(
                "Ġ?[^Ġ]*", "".join(map(self.tokenizer.source.subword, row[: row.index(EOS_ID)]))
            )
            lines.append(
                [bpe["vocab"][piece] for word in words for piece in segment(word, ranks, p, draw)]
            )
        lengths = 0 * batch.lengths[0] + [len(line) + 1 for line in lines], batch.lengths[1]
        return replace(batch, src=pad_sources(lines), lengths=lengths)
