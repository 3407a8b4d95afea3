"""Translation speed beside CTranslate2 and Hugging Face's generate: the same weights, sentences and beams.

python benchmarks/translate.py [--lengths-of FILE] [--sentences 128] [--rounds 3] [--threads 1] [--device cuda]

The paper's base model with random weights does not end its sentences, so every engine is told how many tokens to write:
those of the source and one more. Sources are random subwords in the lengths of FILE (1.3 subwords a word) or of a
log-normal distribution with a mean of 27; sorted by length, those of a batch are cut to one length. Every engine has a
process of its own, and they take turns. Beside seconds on the clock stand seconds of the processor, which other
programs on the machine disturb less.
"""

import argparse
import math
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
import torch
from measure import Apart, draw_bars, interleaved, report, spread
from train_step import read_config

from aiayn.checkpoints import Checkpoint
from aiayn.config import EOS_ID, PAD_ID, SearchConfig
from aiayn.data.batch import pad_sources, source_mask
from aiayn.data.text_files import read_lines
from aiayn.data.tokenizer import SPECIAL_IDS
from aiayn.inference.beam_search import beam_search
from aiayn.inference.export import export
from aiayn.inference.translator import convert_precision
from aiayn.model.cache import DecoderCache
from aiayn.model.transformer import Transformer

VOCAB = 37000
SEARCH = SearchConfig(beam_size=4, length_penalty=0.0, penalty="gnmt", max_extra_tokens=1, batch_tokens=10**9)
Batch = list[list[int]]  # sources of one length
Engine = Callable[[Batch], list[list[int]]]  # outputs of that length and one more


def base_checkpoint() -> Checkpoint:
    """The paper's base model with random weights and a vocabulary of made-up words."""
    config = read_config("data=files", "data.train=x", "data.val=x")
    torch.manual_seed(0)
    weights = Transformer(config.model, VOCAB).state_dict()
    words = SPECIAL_IDS | {f"w{number}": number for number in range(len(SPECIAL_IDS), VOCAB)}
    core = tokenizers.Tokenizer(tokenizers.models.BPE(words, []))
    core.normalizer = tokenizers.normalizers.Prepend(" ")
    core.add_special_tokens(list(SPECIAL_IDS))
    return Checkpoint(0, config, weights, core.to_str(), "", 1, [])


def sources(file: Path | None, count: int, batch_size: int) -> list[Batch]:
    """Random subwords, longest sentences first, those of a batch as long as its shortest."""
    dice = random.Random(0)
    if file:
        lines = [line for line in read_lines(file) if line.strip()]
        lengths = [round(1.3 * len(line.split())) for line in dice.sample(lines, count)]
    else:
        lengths = [max(1, min(100, round(dice.lognormvariate(math.log(27) - 0.18, 0.6)))) for _ in range(count)]
    lengths.sort(reverse=True)
    groups = [lengths[start : start + batch_size] for start in range(0, count, batch_size)]
    return [[dice.choices(range(len(SPECIAL_IDS), VOCAB), k=min(group)) for _ in group] for group in groups]


def our_engine(precision: str, device: str) -> Engine:
    checkpoint = base_checkpoint()
    model = Transformer(checkpoint.config.model, VOCAB).eval()
    model.load_state_dict(checkpoint.weights)
    convert_precision(model, precision, torch.device(device)).to(device)
    plain = model.step

    def step(tokens: torch.Tensor, cache: DecoderCache) -> torch.Tensor:
        """No sentence ends before its limit."""
        logits = plain(tokens, cache)
        logits[..., EOS_ID] = -1e4
        return logits

    model.step = step

    def translate(batch: Batch) -> list[list[int]]:
        src = pad_sources(batch).to(device)
        return [[*best.tokens, EOS_ID][:-1] for best, *_ in beam_search(model, src, source_mask(src), SEARCH)]

    return translate


def ctranslate2_engine(folder: str, compute_type: str, device: str) -> Engine:
    import ctranslate2

    engine = ctranslate2.Translator(
        folder, device=device, compute_type=compute_type, intra_threads=torch.get_num_threads(), inter_threads=1
    )

    def translate(batch: Batch) -> list[list[int]]:
        words = [[f"w{number}" for number in ids] for ids in batch]
        length = len(batch[0]) + 1
        found = engine.translate_batch(
            words,
            beam_size=4,
            length_penalty=0,
            min_decoding_length=length,
            max_decoding_length=length,
            suppress_sequences=[["<pad>"], ["<s>"]],
        )
        return [[int(word.lstrip("w")) for word in result.hypotheses[0]] for result in found]

    return translate


def hugging_face_engine(folder: str, dtype: torch.dtype, device: str) -> Engine:
    from transformers import MarianMTModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = MarianMTModel.from_pretrained(folder, dtype=dtype).eval().to(device)
    model.generation_config.max_length = None

    @torch.inference_mode()
    def translate(batch: Batch) -> list[list[int]]:
        src, length = pad_sources(batch).to(device), len(batch[0]) + 1
        found = model.generate(
            input_ids=src,
            attention_mask=(src != PAD_ID).long(),
            num_beams=4,
            length_penalty=0.0,
            min_new_tokens=length,
            max_new_tokens=length,
        )
        return found[:, 1:].tolist()

    return translate


def whole(batches: list[Batch], engine: Callable[..., Engine], *arguments: Any) -> Callable[[], list[list[int]]]:
    """All batches through an engine that is made here and now; outputs of all their sentences."""
    translate = engine(*arguments)
    return lambda: [output for batch in batches for output in translate(batch)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths-of", type=Path, help="text whose sentences are as long, plain or .gz")
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32, help="sentences at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="or cuda")
    parser.add_argument("--out", type=Path, default=Path("outputs/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    batches = sources(options.lengths_of, options.sentences, options.batch)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ctranslate2", "marian"):
            export(base_checkpoint(), name, Path(folder) / name)
        kinds = {
            "ours float32": (our_engine, "float32"),
            "ours bfloat16": (our_engine, "bfloat16"),
            "ours int8": (our_engine, "int8"),
            "CTranslate2 float32": (ctranslate2_engine, f"{folder}/ctranslate2", "float32"),
            "CTranslate2 int8": (ctranslate2_engine, f"{folder}/ctranslate2", "int8"),
            "Hugging Face float32": (hugging_face_engine, f"{folder}/marian", torch.float32),
            "Hugging Face bfloat16": (hugging_face_engine, f"{folder}/marian", torch.bfloat16),
        }
        if options.device != "cpu":
            del kinds["ours int8"]
        engines = {name: Apart(whole, batches, *kind, options.device) for name, kind in kinds.items()}
    outputs: dict[str, list[list[int]]] = {}

    def run(name: str) -> None:
        outputs[name] = engines[name]()

    seconds = interleaved({name: lambda name=name: run(name) for name in engines}, options.rounds, warmup=1)

    rows: list[dict[str, Any]] = []
    tokens = sum(len(ids) + 1 for batch in batches for ids in batch)
    for name in engines:
        clock, cpu = spread(seconds[name]), spread(engines[name].cpu[1:])
        # An end that was forced is not written by all; what stands before it is compared.
        same = sum(a[: len(b) - 1] == b[:-1] for a, b in zip(outputs["ours float32"], outputs[name], strict=True))
        rows.append(
            {
                "engine": name,
                "tokens/s": tokens / clock["median"],
                "from": tokens / clock["high"],
                "to": tokens / clock["low"],
                "tokens/processor second": tokens / cpu["median"],
                "outputs as ours float32": f"{same} of {options.sentences}",
            }
        )
    report("translate", rows, options.out)
    draw_bars(options.out / "translate.png", rows, "engine", ("tokens/s", "from", "to"))


if __name__ == "__main__":
    main()
