"""Raw text in, raw text out: subwords, batches of similar lengths, beam search, and everything back in its place."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from aiayn.checkpoints import Checkpoint, find_checkpoint, load, restore
from aiayn.config import PRECISIONS, SearchConfig, SearchOverrides, one_of
from aiayn.data.batch import pad_sources, source_mask
from aiayn.data.cleaning import normalise
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, DataError, ResourceError
from aiayn.hardware import choose_device, has_bfloat16
from aiayn.inference.beam_search import Hypothesis, beam_search
from aiayn.inference.int8 import quantize_int8
from aiayn.model.transformer import Transformer

Progress = Callable[[int, int], None]

# Half of a character in UTF-16; Python also puts one for every byte of an argument that is not UTF-8.
SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Translation:
    """One candidate: its text, its length-penalised score, log P of its tokens and the end token, and those tokens."""

    text: str
    score: float
    log_prob: float
    tokens: list[int]


def convert_precision(model: Transformer, precision: str, device: torch.device) -> Transformer:
    """The model itself, turned to float32, bfloat16 or int8. Raises ConfigError for what is neither or not there."""
    one_of("precision", precision, PRECISIONS)
    if precision != "int8":
        return model.to(getattr(torch, precision))
    if device.type != "cpu":
        raise ConfigError("precision=int8 is for CPUs; set accelerator=cpu, or precision=bfloat16")
    return quantize_int8(model, torch.bfloat16 if has_bfloat16(device) else torch.float32)


class Translator:
    """A model, its tokenizer and the search options, ready to translate lines."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer, search: SearchConfig, device: torch.device | str):
        """Moves the model to the device; nothing else about it changes for good, so a model in training may be used."""
        self.model = model.to(device)
        self.tokenizer = tokenizer
        self.search = search
        self.device = torch.device(device)

    @classmethod
    def from_run(
        cls,
        run: Path | str,
        checkpoint: str | None = None,
        search: SearchOverrides | None = None,
        accelerator: str = "cpu",
        precision: str = "float32",
    ) -> "Translator":
        """The model of a run's folder: its averaged checkpoint where there is one, else the last, or the one named.

        `precision` bfloat16 computes with a third of the digits: about twice as fast where the hardware has it, with
        scores that are off in the third digit and now and then another translation. int8 multiplies whole numbers of
        eight bits, on CPUs: a third faster still, with twice as many other translations.

        Raises RefusedError for a missing or damaged run, ConfigError for impossible options or a GPU that is not there.
        """
        return cls.from_checkpoint(load(find_checkpoint(Path(run), checkpoint)), search, accelerator, precision)

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        search: SearchOverrides | None = None,
        accelerator: str = "cpu",
        precision: str = "float32",
    ) -> "Translator":
        """Rebuilds model and tokenizer from the checkpoint alone. Raises what `from_run` raises."""
        device = choose_device(accelerator)
        options = search.apply(checkpoint.config.search) if search else checkpoint.config.search
        tokenizer = Tokenizer.from_json(checkpoint.tokenizer)
        model = Transformer(checkpoint.config.model, tokenizer.vocab_size)
        restore(model, checkpoint)
        return cls(convert_precision(model.eval(), precision, device), tokenizer, options, device)

    def translate(self, lines: list[str], on_batch: Progress | None = None) -> list[str]:
        """The best translation of every line, one line for one line; a blank line gives an empty one.

        After every batch `on_batch` is told the number of lines done and of all lines. Raises DataError for what is not
        text or too long for the model, DivergedError for a broken model, ResourceError where memory does not suffice.
        """
        return [best.text for best, *_ in self.n_best(lines, 1, on_batch)]

    def n_best(
        self, lines: list[str], n: int, on_batch: Progress | None = None, first_line: int = 1
    ) -> list[list[Translation]]:
        """For every line its n best translations, best first; fewer where the search finished fewer.

        `first_line` is the number that error messages give to lines[0]. Raises ConfigError if n is more than
        `beam_size`, and what `translate` raises.
        """
        if not 1 <= n <= self.search.beam_size:
            raise ConfigError(
                f"{n} translations per line asked for, search.beam_size={self.search.beam_size}: the search keeps as "
                f"many as it has beams; ask for 1 to {self.search.beam_size} or set search.beam_size={max(n, 1)}"
            )
        src_ids = self.source_ids(lines, first_line)
        nothing = Translation(text="", score=0.0, log_prob=0.0, tokens=[])
        results = [[nothing] for _ in lines]
        to_do = [number for number, ids in enumerate(src_ids) if ids]
        for number in to_do:
            self._check_length(len(src_ids[number]), first_line + number)
        done = len(lines) - len(to_do)
        for batch in self._batches(to_do, src_ids):
            for number, hypotheses in zip(batch, self._search([src_ids[number] for number in batch]), strict=True):
                results[number] = self._to_text(hypotheses[:n])
            done += len(batch)
            if on_batch:
                on_batch(done, len(lines))
        return results

    def source_ids(self, lines: list[str], first_line: int = 1) -> list[list[int]]:
        """Subwords of every line without end mark, spaced as the training text was; none of a blank line.

        Raises DataError for what is not text.
        """
        if isinstance(lines, str):
            raise DataError("the source is one text: give a list of lines")
        for number, line in enumerate(lines, first_line):
            if not isinstance(line, str) or SURROGATE.search(line):
                raise DataError(f"line {number} is not text that UTF-8 can hold: {line!r:.80}; correct it")
        return self.tokenizer.encode([normalise(line)[0] for line in lines])

    @contextmanager
    def without_dropout(self) -> Iterator[None]:
        """The model in evaluation mode for a while, afterwards in the mode it was in."""
        was_training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(was_training)

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
        """Cuts line numbers, longest lines first, into batches of at most search.batch_tokens padded positions x beams.

        Longest first, because a lack of memory then shows at once.
        """
        order = sorted(to_do, key=lambda number: len(src_ids[number]), reverse=True)
        start = 0
        while start < len(order):
            width = len(src_ids[order[start]]) + 1
            size = max(1, self.search.batch_tokens // (width * self.search.beam_size))
            yield order[start : start + size]
            start += size

    @torch.inference_mode()
    def _search(self, src_ids: list[list[int]]) -> list[list[Hypothesis]]:
        src = pad_sources(src_ids).to(self.device)
        with self.without_dropout():
            try:
                return beam_search(self.model, src, source_mask(src), self.search)
            except torch.OutOfMemoryError as error:
                raise ResourceError(
                    f"out of memory with {src.size(0)} sentences of {src.size(1)} subwords: lower search.batch_tokens "
                    f"(now {self.search.batch_tokens}) or search.beam_size (now {self.search.beam_size})"
                ) from error

    def _to_text(self, hypotheses: list[Hypothesis]) -> list[Translation]:
        texts = self.tokenizer.decode([hypothesis.tokens for hypothesis in hypotheses])
        # A byte-level vocabulary can spell a line break; one line in must stay one line out.
        return [
            Translation(" ".join(text.splitlines()), hypothesis.score, hypothesis.log_prob, hypothesis.tokens)
            for text, hypothesis in zip(texts, hypotheses, strict=True)
        ]
