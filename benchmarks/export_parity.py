"""Do the exports translate as the run does? Greedy, and beam 4 with and without length penalty, float32.

Without a length penalty the most probable output can be the empty one. Here an end counts that is among the best 8
continuations of 4 beams, in the other engines one among the best 4; so beam 4 is compared as it is, and with one token
at least. With a length penalty it is |Y|^alpha on all sides (search.penalty=power), and the engines are told to go on
for as long as we do.

python benchmarks/export_parity.py RUN FILE [--sentences 500]
"""

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measure
import torch

from aiayn.checkpoints import find_checkpoint, load
from aiayn.config import BOS_ID, EOS_ID, SearchOverrides
from aiayn.data.batch import pad_sources, source_mask
from aiayn.data.text_files import read_lines
from aiayn.inference.export import export
from aiayn.inference.translator import Translator
from aiayn.model.cache import DecoderCache
from aiayn.model.transformer import Transformer

BATCH = 20
TIE = 1e-3  # log P of two outputs closer than this: a tie, which rounding decides
Engine = Callable[[list[str], int, int, float], list[list[int]]]  # lines, beam size, least tokens, alpha -> ids
CASES = ((1, 0, 0.0), (4, 0, 0.0), (4, 1, 0.0), (4, 1, 0.6))  # beam size, least tokens, alpha


def ctranslate2_engine(folder: Path) -> Engine:
    import ctranslate2
    import tokenizers

    engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=torch.get_num_threads())
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    def translate(lines: list[str], beam_size: int, least: int, alpha: float) -> list[list[int]]:
        sources = [encoding.tokens for encoding in tokenizer.encode_batch(lines)]
        # patience: it stops at so many times beam_size finished outputs, though with a penalty a better one can come.
        options = {"length_penalty": alpha, "patience": 2 if alpha else 1, "min_decoding_length": least}
        found = engine.translate_batch(sources, beam_size=beam_size, max_batch_size=BATCH, **options)
        return [[tokenizer.token_to_id(token) for token in result.hypotheses[0]] for result in found]

    return translate


def marian_engine(folder: Path) -> Engine:
    from transformers import AutoTokenizer, MarianMTModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), MarianMTModel.from_pretrained(folder).eval()

    def translate(lines: list[str], beam_size: int, least: int, alpha: float) -> list[list[int]]:
        found = []
        for start in range(0, len(lines), BATCH):
            batch = tokenizer(lines[start : start + BATCH], return_tensors="pt", padding=True)
            # "never": it gives up only where no better output can come, as we do.
            options = {"early_stopping": "never", "length_penalty": alpha} if beam_size > 1 else {}
            longest = batch["input_ids"].size(1) + 50
            ids = model.generate(**batch, num_beams=beam_size, min_new_tokens=least, max_length=longest, **options)
            found += [row[1 : row.index(EOS_ID, 1)] if EOS_ID in row[1:] else row[1:] for row in ids.tolist()]
        return found

    return translate


@torch.no_grad()
def log_prob(translator: Translator, line: str, output: list[int]) -> float:
    """log P of an output and its end, by one forward pass of our model."""
    src = pad_sources(translator.source_ids([line]))
    logits = translator.model(src, torch.tensor([[BOS_ID, *output]]), source_mask(src))[0].double()
    return float(logits.log_softmax(-1)[range(len(output) + 1), [*output, EOS_ID]].sum())


@contextlib.contextmanager
def never_empty(model: Transformer) -> Iterator[None]:
    """Rules the end token out in the first step of a search."""
    plain = model.step

    def step(tokens: torch.Tensor, cache: DecoderCache) -> torch.Tensor:
        logits = plain(tokens, cache)
        if cache.length == 1:
            logits[..., EOS_ID] = -torch.inf
        return logits

    model.step = step
    yield
    del model.step


def difference(translator: Translator, number: int, line: str, ours: list[int], theirs: list[int]) -> dict[str, Any]:
    """Two outputs for line `number` of the input, counted from 0, and what our model thinks of them."""
    texts = translator.tokenizer.decode([ours, theirs])
    return {
        "line": number + 1,
        "log P of ours": round(log_prob(translator, line, ours), 4),
        "log P of theirs": round(log_prob(translator, line, theirs), 4),
        "ours": texts[0],
        "theirs": texts[1],
    }


def summary(differences: list[dict[str, Any]]) -> dict[str, int]:
    """How many differences are ties, and in how many of the others our output is the more probable one."""
    gaps = [row["log P of ours"] - row["log P of theirs"] for row in differences]
    return {
        "ties": sum(abs(gap) < TIE for gap in gaps),
        "ours better": sum(gap >= TIE for gap in gaps),
        "theirs better": sum(gap <= -TIE for gap in gaps),
        "ours empty": sum(not row["ours"] for row in differences),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("file", type=Path, help="source sentences, plain or .gz")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("outputs/benchmarks"))
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    lines = [line for line in read_lines(options.file) if line.strip()][: options.sentences]
    checkpoint = load(find_checkpoint(options.run, None))

    rows, differences = [], []
    with tempfile.TemporaryDirectory() as temporary:
        engines: dict[str, Engine] = {}
        for name, engine in (("ctranslate2", ctranslate2_engine), ("marian", marian_engine)):
            export(checkpoint, name, Path(temporary) / name)
            engines[name] = engine(Path(temporary) / name)
        for beam_size, least, alpha in CASES:
            search = SearchOverrides(beam_size=beam_size, length_penalty=alpha, penalty="power")
            translator = Translator.from_checkpoint(checkpoint, search)
            with never_empty(translator.model) if least else contextlib.nullcontext():
                ours = [best.tokens for best, *_ in translator.n_best(lines, 1)]
            for name, engine in engines.items():
                theirs = engine(lines, beam_size, least, alpha)
                found = [
                    difference(translator, n, lines[n], ours[n], theirs[n])
                    for n in range(len(lines))
                    if ours[n] != theirs[n]
                ]
                case = {"engine": name, "beam": beam_size, "alpha": alpha, "least tokens": least}
                rows.append(case | {"sentences": len(lines), "identical": len(lines) - len(found)} | summary(found))
                differences += [case | row for row in found]
    measure.report("export_parity", rows, options.out)
    for row in differences:
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
