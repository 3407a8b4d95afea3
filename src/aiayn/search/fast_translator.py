"""Translation by CTranslate2, without torch: the same model and the same options of search, several
times as fast.

The model was converted once, into a folder beside its checkpoint (`search/convert.py`). CTranslate2
differs from `beam_search` in four ways, and this module compensates for each:

- It divides log P by |Y|^alpha. So all hypotheses that it finished are ranked anew by the run's own
  length penalty. If the last step finishes more hypotheses than end a search, CTranslate2 leaves
  the worst out. So alpha is chosen to order them as the run's own penalty does, or nearly.
- All lines of a call have one limit of lengths. A line with an output that reaches its own limit is
  searched again, with lines of the same limit.
- It does not score the end of an output that it cut at the limit. Such outputs are scored again.
- It may write <s> and <pad>, and its tables of positions end. Torch translates such lines.
"""

import json
import math
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiayn.config.model import NARROW
from aiayn.config.search import SearchConfig
from aiayn.data.tokenizer import TOKEN, SubwordIds, Tokenizer
from aiayn.errors import NonFiniteOutputError
from aiayn.files import cores, read_regular, sha256
from aiayn.runs.run_folder import MAX_JSON, read_checksum
from aiayn.search.line_translator import BATCH_TOKENS, LineTranslator, Progress, longest_first
from aiayn.search.translations import Hypothesis, length_penalty
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID

if TYPE_CHECKING:
    from aiayn.search.translator import Translator

# CTranslate2's names of precisions, by ours
COMPUTE_TYPES = {"float32": "float32", "bfloat16": "bfloat16", "int8": "int8_float32"}

FORMAT = 2  # version of the folder; a model in another one is converted anew
ABOUT = "aiayn.json"  # settings, tokenizer and the checksums of the other files


def fingerprint(checkpoint: Path) -> str:
    """Returns the SHA-256 that a checkpoint file ends with, or that of its bytes if it has none of
    its own.
    """
    return read_checksum(checkpoint) or sha256(checkpoint)


def converted_folder(checkpoint: Path) -> Path:
    """Returns where the converted model of a checkpoint file is."""
    return checkpoint.with_name(f"{checkpoint.stem}.ctranslate2-{fingerprint(checkpoint)[:16]}")


def read_converted(folder: Path, checkpoint: Path) -> dict[str, Any] | None:
    """Returns the settings of a whole converted model of this checkpoint file; None if there is
    none.
    """
    try:
        about = json.loads(read_regular(folder / ABOUT, MAX_JSON))
        if about["format"] != FORMAT or about["checkpoint"] != fingerprint(checkpoint):
            return None
        whole = all(sha256(folder / name) == digest for name, digest in about["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return about if whole else None


class FastTranslator(LineTranslator):
    """Translates lines with CTranslate2."""

    def __init__(
        self,
        folder: Path,
        about: dict[str, Any],
        search: SearchConfig,
        device: str,
        precision: str,
        devices: int,
        load_in_torch: "Callable[[], Translator]",
    ):
        """`folder` and `about` are those of a converted model. Raises RuntimeError if the device
        cannot be used.
        """
        import ctranslate2

        tokenizer = Tokenizer.from_json(about["tokenizer"])
        self.positions: int = about["positions"]  # size of its tables
        learned = self.positions if about["learned"] else None
        super().__init__(
            tokenizer, search, about["task"], (about["src_lang"], about["tgt_lang"]), learned
        )
        self.devices = devices
        self.batch_tokens = search.batch_tokens or BATCH_TOKENS[device]
        # |Y|^(alpha / 2) is close to ((5 + |Y|) / 6)^alpha. With 0 CTranslate2 ends a search at its
        # best output.
        self.exponent = max(search.length_penalty / (2 if search.penalty == "gnmt" else 1), 1e-3)
        self._load_in_torch = load_in_torch
        self._torch: Translator | None = None
        self._src_subwords = tokenizer.source.subwords
        self._ids = {subword: number for number, subword in enumerate(tokenizer.subwords)}
        parallel: dict[str, Any] = {"inter_threads": devices}
        if device == "cuda":
            parallel = {"device_index": list(range(devices))}
        threads = os.environ.get("OMP_NUM_THREADS", "")
        n_cores = devices if about["d_model"] <= NARROW else cores()
        if threads.isdecimal():
            n_cores = int(threads) or n_cores
        # Where torch is loaded, both have one OpenMP, and CTranslate2 sets its threads.
        torch = sys.modules.get("torch")
        n_threads = torch.get_num_threads() if torch else 0
        self._engine = ctranslate2.Translator(
            str(folder),
            device,
            compute_type=COMPUTE_TYPES[precision],
            intra_threads=max(1, n_cores // devices),
            **parallel,
        )
        if torch:
            torch.set_num_threads(n_threads)

    def in_torch(self) -> "Translator":
        self._torch = self._torch or self._load_in_torch()
        return self._torch

    def find(
        self, src_ids: SubwordIds, n: int, on_batch: Progress | None, first_line: int
    ) -> list[list[Hypothesis]]:
        extra = self.search.max_extra_tokens
        translations: list[list[Hypothesis]] = [[] for _ in src_ids]
        limits = {line: len(src_ids[line]) + extra for line in longest_first(src_ids)}
        for_torch = [line for line, limit in limits.items() if limit >= self.positions]
        groups = [[*limits][len(for_torch) :]]
        done = len(src_ids) - len(limits)

        def start(batch: list[int]) -> Callable[[], list[list[Hypothesis]]]:
            sources = [src_ids[line] for line in batch]
            futures = self._start(sources)
            return lambda: self._ranked(sources, [future.result() for future in futures])

        beams = self.search.beam_size
        at_once = 2 * self.devices  # so few that an interrupt need not wait for many
        while groups:
            again: dict[int, list[int]] = defaultdict(list)  # lines by their limit
            batches = self.run_batches(groups, src_ids, start, first_line, beams, at_once)
            for batch, batch_hypotheses in batches:
                for line, hypotheses in zip(batch, batch_hypotheses, strict=True):
                    longest = max(len(hypothesis.tokens) for hypothesis in hypotheses)
                    if limits[batch[0]] > limits[line] <= longest:
                        again[limits[line]].append(line)
                        continue
                    translations[line] = hypotheses
                    if any({PAD_ID, BOS_ID} & {*hypothesis.tokens} for hypothesis in hypotheses):
                        for_torch.append(line)
                    done += 1
                if on_batch:
                    on_batch(done, len(src_ids))
            groups = [*again.values()]
        if for_torch:
            sources = [src_ids[line] for line in for_torch]
            in_torch = self.in_torch().find(sources, n, None, first_line)
            for line, hypotheses in zip(for_torch, in_torch, strict=True):
                translations[line] = hypotheses
        return [hypotheses[:n] for hypotheses in translations]

    def is_out_of_memory(self, error: BaseException) -> bool:
        # CTranslate2 has no type of its own for it.
        says_so = re.search("memory|alloc", str(error)) is not None
        return super().is_out_of_memory(error) or says_so

    def _start(self, sources: SubwordIds) -> list[Any]:
        """Begins to search a batch, whose first source is the longest."""
        beams = self.search.beam_size
        # Hypotheses, until a search ends
        ended = math.ceil(beams * (self.search.patience or 1)) if beams > 1 else 1
        return self._engine.translate_batch(
            [[self._src_subwords[number] for number in ids] for ids in sources],
            beam_size=beams,
            patience=ended / beams,
            num_hypotheses=ended,
            length_penalty=self.exponent,
            min_decoding_length=0,
            max_decoding_length=len(sources[0]) + self.search.max_extra_tokens,
            max_input_length=0,
            return_end_token=True,
            return_scores=True,
            asynchronous=True,
        )

    def _ranked(self, sources: SubwordIds, engine_results: list[Any]) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each source, ranked by the run's own score."""
        # CTranslate2 leaves out the end of an output that it cuts at the limit.
        cut_sources, cut_outputs = [], []
        for source, engine_result in zip(sources, engine_results, strict=True):
            for subwords in engine_result.hypotheses:
                if subwords[-1:] != [TOKEN[EOS_ID]]:
                    cut_sources.append([self._src_subwords[number] for number in source])
                    cut_outputs.append(subwords)
        rescored = []
        if cut_outputs:
            rescored = self._engine.score_batch(cut_sources, cut_outputs, max_input_length=0)
        log_probs_of_cut = iter([math.fsum(output.log_probs) for output in rescored])
        ranked = []
        for engine_result in engine_results:
            hypotheses = []
            for subwords, score in zip(engine_result.hypotheses, engine_result.scores, strict=True):
                ids = [self._ids[subword] for subword in subwords]
                if ids[-1:] == [EOS_ID]:
                    log_prob = score * len(ids) ** self.exponent
                    del ids[-1]
                else:
                    log_prob = next(log_probs_of_cut)
                if not math.isfinite(log_prob):
                    raise NonFiniteOutputError
                penalty = length_penalty(len(ids) + 1, self.search)
                hypotheses.append(Hypothesis(ids, log_prob / penalty, log_prob))
            if not hypotheses:
                raise NonFiniteOutputError
            hypotheses.sort(key=lambda hypothesis: hypothesis.score, reverse=True)
            ranked.append(hypotheses[: self.search.beam_size])
        return ranked
