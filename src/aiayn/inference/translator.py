"""Raw text in, raw text out: subwords, batches of similar lengths, beam search, and everything back in its place."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from aiayn.config import EOS_ID, PAD_ID, SearchConfig
from aiayn.data.batch import source_mask
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, DataError
from aiayn.inference.beam_search import Hypothesis, beam_search
from aiayn.model.transformer import Transformer

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Translation:
    """One candidate: its text, its length-penalised score, log P of its tokens and the end token, and those tokens."""

    text: str
    score: float
    log_prob: float
    tokens: list[int]


class Translator:
    """A model, its tokenizer and the search options, ready to translate lines."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer, search: SearchConfig, device: torch.device | str):
        """Moves the model to the device; nothing else about it changes for good, so a model in training may be used."""
        self.model = model.to(device)
        self.tokenizer = tokenizer
        self.search = search
        self.device = torch.device(device)

    def translate(self, lines: list[str], on_batch: Progress | None = None) -> list[str]:
        """The best translation of every line, one line for one line; a blank line gives an empty one.

        After every batch `on_batch` is told the number of lines done and of all lines. Raises DataError for a line too
        long for the model, DivergedError for a broken model.
        """
        return [best.text for best, *_ in self.n_best(lines, 1, on_batch)]

    def n_best(self, lines: list[str], n: int, on_batch: Progress | None = None) -> list[list[Translation]]:
        """For every line its n best translations, best first; fewer where the search finished fewer.

        Raises ConfigError if n is more than `beam_size`, and what `translate` raises.
        """
        if not 1 <= n <= self.search.beam_size:
            raise ConfigError(
                f"{n} translations per line asked for, search.beam_size={self.search.beam_size}: the search keeps as "
                f"many as it has beams; ask for 1 to {self.search.beam_size} or set search.beam_size={max(n, 1)}"
            )
        src_ids = self.tokenizer.encode(lines)
        nothing = Translation(text="", score=0.0, log_prob=0.0, tokens=[])
        results = [[nothing] for _ in lines]
        to_do = [number for number, line in enumerate(lines) if line.strip()]
        for number in to_do:
            self._check_length(len(src_ids[number]), number + 1)
        done = len(lines) - len(to_do)
        for batch in self._batches(to_do, src_ids):
            for number, hypotheses in zip(batch, self._search([src_ids[number] for number in batch]), strict=True):
                results[number] = self._to_text(hypotheses[:n])
            done += len(batch)
            if on_batch:
                on_batch(done, len(lines))
        return results

    def _check_length(self, length: int, line_number: int) -> None:
        """Learned positions end somewhere, sinusoids nowhere."""
        config, extra = self.model.config, self.search.max_extra_tokens
        if config.positions == "learned" and length + extra + 1 > config.max_positions:
            raise DataError(
                f"line {line_number} has {length} subwords: with search.max_extra_tokens={extra} this model's "
                f"{config.max_positions} learned positions suffice for {max(config.max_positions - extra - 1, 0)}; "
                "split the line or lower search.max_extra_tokens"
            )

    def _batches(self, to_do: list[int], src_ids: list[list[int]]) -> Iterator[list[int]]:
        """Cuts line numbers, longest lines first, into batches of at most `search.max_tokens` padded positions x beams.

        Longest first, because a lack of memory then shows at once.
        """
        order = sorted(to_do, key=lambda number: len(src_ids[number]), reverse=True)
        start = 0
        while start < len(order):
            width = len(src_ids[order[start]]) + 1
            size = max(1, self.search.max_tokens // (width * self.search.beam_size))
            yield order[start : start + size]
            start += size

    @torch.inference_mode()
    def _search(self, src_ids: list[list[int]]) -> list[list[Hypothesis]]:
        rows: list[Tensor] = [torch.tensor([*ids, EOS_ID]) for ids in src_ids]
        src = pad_sequence(rows, batch_first=True, padding_value=PAD_ID).to(self.device)
        was_training = self.model.training
        self.model.eval()
        try:
            return beam_search(self.model, src, source_mask(src), self.search)
        finally:
            self.model.train(was_training)

    def _to_text(self, hypotheses: list[Hypothesis]) -> list[Translation]:
        texts = self.tokenizer.decode([hypothesis.tokens for hypothesis in hypotheses])
        # A byte-level vocabulary can spell a line break; one line in must stay one line out.
        return [
            Translation(" ".join(text.splitlines()), hypothesis.score, hypothesis.log_prob, hypothesis.tokens)
            for text, hypothesis in zip(texts, hypotheses, strict=True)
        ]
