"""Translation speed beside CTranslate2 and Hugging Face's generate: same weights, sentences and beams.

python benchmarks/translate.py [--lengths-of FILE] [--sentences 200] [--rounds 3]

A base-sized model with random weights does not end its sentences. So all engines are told how many tokens to write: as
many as the source has, the longest of a batch for the whole batch. Sources are random subwords in the lengths of FILE
(1.3 subwords a word), or of a log-normal distribution with a mean of 27.
"""

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import tokenizers
import torch

from aiayn.checkpoint import Checkpoint
from aiayn.config import EOS_ID
from aiayn.data.text_files import read_lines
from aiayn.data.tokenizer import SPECIAL_IDS
from aiayn.model.cache import DecoderCache
from aiayn.model.transformer import Transformer

VOCAB = 37000
Batches = list[list[list[int]]]
Engine = Callable[[], list[list[int]]]


def base_checkpoint(beam_size: int) -> Checkpoint:
    """The paper's base model with random weights and a vocabulary of made-up words."""
    from hydra import compose, initialize_config_dir

    from aiayn.config import Config
    from aiayn.entry import checked, register

    register(Config)
    with initialize_config_dir(str(Path(__file__).parent.parent / "conf"), version_base="1.3"):
        options = ["data=files", "data.train=x", "data.val=x", f"search.beam_size={beam_size}"]
        config = checked(compose("train", options), Config)
    torch.manual_seed(0)
    weights = Transformer(config.model, VOCAB).state_dict()
    words = SPECIAL_IDS | {f"w{number}": number for number in range(len(SPECIAL_IDS), VOCAB)}
    core = tokenizers.Tokenizer(tokenizers.models.BPE(words, []))
    core.normalizer = tokenizers.normalizers.Prepend(" ")
    core.add_special_tokens(list(SPECIAL_IDS))
    return Checkpoint(0, config, weights, core.to_str(), "", 1, [])


def sources(file: Path | None, count: int) -> list[list[int]]:
    """Random subwords, longest sentence first."""
    dice = random.Random(0)
    if file:
        lines = [line for line in read_lines(file) if line.strip()]
        lengths = [round(1.3 * len(line.split())) for line in dice.sample(lines, count)]
    else:
        lengths = [max(1, min(100, round(dice.lognormvariate(math.log(27) - 0.18, 0.6)))) for _ in range(count)]
    return [
        [dice.randrange(len(SPECIAL_IDS), VOCAB) for _ in range(length)] for length in sorted(lengths, reverse=True)
    ]


def cut(sentences: list[list[int]], size: int) -> Batches:
    return [sentences[start : start + size] for start in range(0, len(sentences), size)]


@contextlib.contextmanager
def ends_late(model: Transformer) -> Iterator[None]:
    """No sentence ends by itself."""
    plain = model.step

    def step(tokens: torch.Tensor, cache: DecoderCache) -> torch.Tensor:
        logits = plain(tokens, cache)
        logits[..., EOS_ID] = -torch.inf
        return logits

    model.step = step
    yield
    del model.step
