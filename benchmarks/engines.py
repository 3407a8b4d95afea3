"""Translation engines with one interface: this program, CTranslate2 and Hugging Face's Marian."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import tokenizers
import torch

from aiayn.apps.export.export import export_ctranslate2, export_marian
from aiayn.config.search import SearchConfig, SearchOverrides
from aiayn.data.batch import pad_sources, source_mask
from aiayn.data.tokenizer import Tokenizer
from aiayn.model.cache import DecoderCache
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import load
from aiayn.runs.run_folder import find_checkpoint
from aiayn.search.beam_search import beam_search
from aiayn.search.engine import Choice, open_translator
from aiayn.token_ids import EOS_ID, PAD_ID

PATIENCE = 2  # the default of our front end and of CTranslate2

Ids = list[list[int]]
# Sources and outputs without eos; beam size, length penalty |Y|^alpha, fewest and most tokens of an
# output.
Engine = Callable[[Ids, int, float, int, int], Ids]


def our_engine(model: Transformer, device: str) -> Engine:
    model = model.eval().to(device)
    step, project, length, steps_without_end = model.step, model.project, 0, 0

    def counting_step(tokens: torch.Tensor, cache: DecoderCache) -> torch.Tensor:
        nonlocal length
        states, length = step(tokens, cache), cache.length
        return states

    def project_without_end(states: torch.Tensor) -> torch.Tensor:
        logits = project(states)
        if length <= steps_without_end:
            logits[..., EOS_ID] = -1e4
        return logits

    model.step, model.project = counting_step, project_without_end

    def translate(sources: Ids, beam_size: int, alpha: float, shortest: int, longest: int) -> Ids:
        nonlocal steps_without_end
        # The other engines do not score the end of an output that has to have the greatest length.
        steps_without_end = shortest if shortest < longest else longest + 1
        src = pad_sources(sources).to(device)
        extra = longest - max(map(len, sources))
        search = SearchConfig(
            beam_size=beam_size,
            length_penalty=alpha,
            penalty="power",
            max_extra_tokens=extra,
            batch_tokens=1,
        )
        return [best.tokens for best, *_ in beam_search(model, src, source_mask(src), search)]

    return translate


def ctranslate2_engine(folder: Path, precision: str, device: str) -> Engine:
    import ctranslate2

    threads = torch.get_num_threads()
    engine = ctranslate2.Translator(
        str(folder), device, compute_type=precision, intra_threads=threads
    )
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    def translate(sources: Ids, beam_size: int, alpha: float, shortest: int, longest: int) -> Ids:
        translated = engine.translate_batch(
            [[tokenizer.id_to_token(token) for token in ids] for ids in sources],
            beam_size=beam_size,
            length_penalty=alpha,
            patience=2
            if alpha
            else 1,  # with a length penalty, longer outputs can be better than the first ones
            min_decoding_length=shortest,
            max_decoding_length=longest,
            suppress_sequences=[["<pad>"], ["<s>"]],
        )
        return [
            [tokenizer.token_to_id(token) for token in best.hypotheses[0]] for best in translated
        ]

    return translate


def marian_engine(folder: Path, precision: str, device: str) -> Engine:
    from transformers import MarianMTModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = MarianMTModel.from_pretrained(folder, dtype=getattr(torch, precision)).eval().to(device)
    model.generation_config.max_length = None

    @torch.inference_mode()
    def translate(sources: Ids, beam_size: int, alpha: float, shortest: int, longest: int) -> Ids:
        src = pad_sources(sources).to(device)
        # "never" stops only when no better output is possible, as our search does.
        beams = {"length_penalty": alpha, "early_stopping": "never"} if beam_size > 1 else {}
        generated = model.generate(
            input_ids=src,
            attention_mask=(src != PAD_ID).long(),
            num_beams=beam_size,
            min_new_tokens=shortest,
            max_new_tokens=longest,
            **beams,
        )
        return [[*row, EOS_ID][: [*row, EOS_ID].index(EOS_ID)] for row in generated[:, 1:].tolist()]

    return translate


# Text to text, as a user has it: lines, beam size, batch size. Each engine tokenizes, batches and
# restores the order.
FrontEnd = Callable[[list[str], int, int], list[str]]


def our_front_end(
    run: Path, precision: str, engine: str, patience: float | None = PATIENCE
) -> FrontEnd:
    """As `aiayn translate --engine ENGINE`; without a patience the search is exact. The batch size is one of padded tokens x beams."""
    choice = Choice(
        checkpoints=[find_checkpoint(run, None)],
        search=SearchOverrides(patience=patience),
        engine=engine,
        accelerator="cpu",
        precision=precision,
    )
    with open_translator(choice) as (translator, _):
        search = translator.search

    def translate(lines: list[str], beam_size: int, batch_size: int) -> list[str]:
        translator.search, translator.batch_tokens = (
            replace(search, beam_size=beam_size),
            batch_size,
        )
        return translator.translate(lines)

    return translate


def ctranslate2_front_end(run: Path, precision: str) -> FrontEnd:
    """The exported model; CTranslate2 sorts by length itself. The batch size is one of
    sentences.
    """
    import ctranslate2

    search = load(find_checkpoint(run, None)).config.search
    with tempfile.TemporaryDirectory() as folder:
        export_ctranslate2(load(find_checkpoint(run, None)), Path(folder) / "model")
        engine = ctranslate2.Translator(
            folder + "/model", "cpu", compute_type=precision, intra_threads=torch.get_num_threads()
        )
        tokenizer = tokenizers.Tokenizer.from_file(folder + "/model/tokenizer.json")

    def translate(lines: list[str], beam_size: int, batch_size: int) -> list[str]:
        encoded = tokenizer.encode_batch(lines, add_special_tokens=False)
        translated = engine.translate_batch(
            [encoding.tokens for encoding in encoded],
            beam_size=beam_size,
            length_penalty=search.length_penalty,
            patience=PATIENCE,
            max_batch_size=batch_size,
        )
        return tokenizer.decode_batch(
            [[tokenizer.token_to_id(token) for token in best.hypotheses[0]] for best in translated]
        )

    return translate


def marian_front_end(run: Path, precision: str) -> FrontEnd:
    """Hugging Face's generate, in batches of sentences sorted by length."""
    from transformers import MarianMTModel

    checkpoint = load(find_checkpoint(run, None))
    tokenizer = Tokenizer.from_json(checkpoint.tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        export_marian(checkpoint, Path(folder) / "model")
        model = MarianMTModel.from_pretrained(
            folder + "/model", dtype=getattr(torch, precision)
        ).eval()
    model.generation_config.max_length = None

    @torch.inference_mode()
    def translate(lines: list[str], beam_size: int, batch_size: int) -> list[str]:
        ids = tokenizer.encode(lines)
        order = sorted(range(len(ids)), key=lambda number: -len(ids[number]))
        outputs: Ids = [[] for _ in ids]
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            src = pad_sources([ids[number] for number in batch])
            generated = model.generate(
                input_ids=src,
                attention_mask=(src != PAD_ID).long(),
                num_beams=beam_size,
                max_new_tokens=src.size(1) + checkpoint.config.search.max_extra_tokens,
                early_stopping=beam_size > 1,
                length_penalty=checkpoint.config.search.length_penalty,
            )
            for number, row in zip(batch, generated[:, 1:].tolist(), strict=True):
                outputs[number] = [*row, EOS_ID][: [*row, EOS_ID].index(EOS_ID)]
        return tokenizer.decode(outputs)

    return translate
