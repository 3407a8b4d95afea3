"""Translates raw text to raw text: subwords, batches of similar lengths, beam search, results in the input's order."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from aiayn.config.search import SamplingConfig, SearchConfig, SearchOverrides
from aiayn.data.batch import pad_sources, source_mask
from aiayn.data.text_files import MAX_LINE_BYTES
from aiayn.data.tokenizer import Tokenizer
from aiayn.errors import ConfigError, DataError
from aiayn.hardware import choose_device, keep_freed_memory
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import Checkpoint, load, restore
from aiayn.search.batches import BatchDecoder, Progress
from aiayn.search.beam_search import Hypothesis, beam_search, length_penalty
from aiayn.search.build import build_model
from aiayn.search.ensemble import Ensemble, find_ensemble, refuse_different
from aiayn.search.force_decode import force_decode
from aiayn.search.precision import convert_precision
from aiayn.search.sampling import sample
from aiayn.search.translations import ScoredPair, Translation
from aiayn.token_ids import EOS_ID

# Lone UTF-16 surrogates, which Python also uses for bytes of command-line arguments that are not UTF-8.
SURROGATE = re.compile("[\ud800-\udfff]")


class Translator(BatchDecoder):
    """Translates lines with a model, its tokenizer and search options."""

    def __init__(
        self,
        model: Transformer | Ensemble,
        tokenizer: Tokenizer,
        search: SearchConfig,
        device: torch.device | str,
        task: str = "translation",
        languages: tuple[str, str] = ("", ""),
    ):
        """Moves the model to the device and changes nothing else about it, so a model in training may be used.

        `task` and `languages`, source and target, are those of the run.
        """
        super().__init__(model.to(device), torch.device(device), search.batch_tokens)
        self.tokenizer = tokenizer
        self.search = search
        self.task = task
        self.languages = languages

    @classmethod
    def from_run(
        cls,
        run: Path | str,
        checkpoint: str | None = None,
        search: SearchOverrides | None = None,
        accelerator: str = "auto",
        precision: str = "float32",
        ensemble: Sequence[Path | str] = (),
    ) -> "Translator":
        """Loads a checkpoint of a run folder, by default the averaged one if it exists, else the last.

        `ensemble` names further runs that translate together with it, by the mean of their log-probabilities; of each
        the same `checkpoint` is taken. Search options are the first run's.

        With `precision` bfloat16 translation is up to twice as fast on hardware that supports it, scores differ in the
        third digit, and a few translations differ. int8 (CPUs only) is a fifth faster still for wide models, and about
        as many translations differ. auto measures which of them is the fastest here.

        Raises RefusedError for a missing or damaged run, or one of another vocabulary, ConfigError for impossible
        options or a missing GPU.
        """
        first, *others = (load(path) for path in find_ensemble(run, ensemble, checkpoint))
        return cls.from_checkpoint(first, search, accelerator, precision, others)

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: Checkpoint,
        search: SearchOverrides | None = None,
        accelerator: str = "auto",
        precision: str = "float32",
        others: Sequence[Checkpoint] = (),
    ) -> "Translator":
        """Builds model and tokenizer from a checkpoint, and an ensemble with others. Raises what `from_run` raises."""
        device = choose_device(accelerator)
        if device.type == "cpu":
            keep_freed_memory()
        options = search.apply(checkpoint.config.search) if search else checkpoint.config.search
        tokenizer = Tokenizer.from_json(checkpoint.tokenizer)
        for other in others:
            refuse_different(checkpoint, other)
        models = []
        for one in (checkpoint, *others):
            model = build_model(one.config.model, tokenizer.vocab_size)
            restore(model, one)
            models.append(convert_precision(model.eval(), precision, device))
        data = checkpoint.config.data
        languages = (data.src_lang, data.tgt_lang)
        return cls(Ensemble(models) if others else models[0], tokenizer, options, device, data.task, languages)

    def translate(self, lines: list[str], on_batch: Progress | None = None) -> list[str]:
        """Returns the best translation of every line; that of a blank line is empty.

        After every batch `on_batch` gets the number of lines done and of all lines. Raises DataError for input that is
        not text or too long for the model, DivergedError for a broken model, ResourceError if memory runs out.
        """
        return [best.text for best, *_ in self.n_best(lines, 1, on_batch)]

    def n_best(
        self, lines: list[str], n: int, on_batch: Progress | None = None, first_line: int = 1
    ) -> list[list[Translation]]:
        """Returns the n best translations of every line, best first; fewer if the search finished fewer.

        `first_line` is the number of lines[0] in error messages. Raises ConfigError if n exceeds `beam_size`, and what
        `translate` raises.
        """
        if not 1 <= n <= self.search.beam_size:
            raise ConfigError(
                f"{n} translations per line asked for, but search.beam_size={self.search.beam_size}: ask for 1 to "
                f"{self.search.beam_size} or set search.beam_size={max(n, 1)}"
            )
        src_ids = self._sources(lines, first_line)

        def search(batch: list[int]) -> list[list[Translation]]:
            src = self._padded(src_ids, batch)
            found = beam_search(self.model, src, source_mask(src), self.search)
            return [self._to_text(hypotheses[:n]) for hypotheses in found]

        return self._in_batches(src_ids, self.search.beam_size, search, lambda: [Translation()], first_line, on_batch)

    def sample(
        self, lines: list[str], sampling: SamplingConfig, on_batch: Progress | None = None, first_line: int = 1
    ) -> list[Translation]:
        """Returns a translation of every line, drawn from the model's distribution; that of a blank line is empty.

        A line's sample depends on the model, `sampling` and the line's number (lines[0] has `first_line`), not on the
        other lines. Raises what `translate` raises.
        """
        src_ids = self._sources(lines, first_line)

        def draw(batch: list[int]) -> list[Translation]:
            src = self._padded(src_ids, batch)
            numbers = [first_line + number for number in batch]
            return self._to_text(sample(self.model, src, source_mask(src), numbers, sampling, self.search))

        return self._in_batches(src_ids, 1, draw, Translation, first_line, on_batch)

    def score(
        self, sources: list[str], targets: list[str], on_batch: Progress | None = None, first_line: int = 1
    ) -> list[ScoredPair]:
        """Returns how probable the model finds each target as the translation of its source, by forced decoding.

        `log_prob` and `score` are those that a search gives if it finds the same subwords. A pair of two blank lines
        has no tokens and log P = 0. Arguments and errors are those of `n_best`; raises DataError for lists of unequal
        lengths.
        """
        if len(sources) != len(targets):
            raise DataError(f"{len(sources)} sources and {len(targets)} targets: give one target per source")
        src_ids, tgt_ids = self.source_ids(sources, first_line), self.source_ids(targets, first_line)
        longer, positions = [max(pair, key=len) for pair in zip(src_ids, tgt_ids, strict=True)], self.max_positions
        for number, ids in enumerate(longer, first_line):
            if positions and len(ids) + 1 > positions:
                raise DataError(
                    f"line {number} has {len(ids)} subwords: this model's {positions} learned positions allow at most "
                    f"{positions - 1}; split the line"
                )

        def score_pairs(batch: list[int]) -> list[ScoredPair]:
            src, tgt = self._padded(src_ids, batch), self._padded(tgt_ids, batch)
            forced = force_decode(self.model, src, source_mask(src), tgt)
            rows = zip(batch, forced.log_probs.tolist(), forced.is_likeliest.sum(1).tolist(), strict=True)
            return [self._scored_pair(tgt_ids[n], log_probs, likeliest) for n, log_probs, likeliest in rows]

        return self._in_batches(longer, 1, score_pairs, ScoredPair, first_line, on_batch)

    def _scored_pair(self, tgt_ids: list[int], log_probs: list[float], likeliest: int) -> ScoredPair:
        """`log_probs` may be longer than `tgt_ids`: the rest is padding."""
        tokens = [*tgt_ids, EOS_ID]
        log_probs = log_probs[: len(tokens)]
        total = math.fsum(log_probs)
        return ScoredPair(tokens, log_probs, total, total / length_penalty(len(tokens), self.search), likeliest)

    def source_ids(self, lines: list[str], first_line: int = 1) -> list[list[int]]:
        """Returns the subword ids of every line, without eos, after the normalisation of the training text.

        A blank line has none. Raises DataError for input that is not text.
        """
        if isinstance(lines, str):
            raise DataError("the source is a single string: give a list of lines")
        for number, line in enumerate(lines, first_line):
            if not isinstance(line, str) or SURROGATE.search(line):
                raise DataError(f"line {number} is not valid text: {line!r:.80}; correct it")
            if len(line) > MAX_LINE_BYTES:
                raise DataError(f"line {number} has {len(line):,} characters; split it into sentences")
        return self.tokenizer.encode([self.tokenizer.normalise(line) for line in lines])

    @property
    def models(self) -> Sequence[Transformer]:
        """The models of an ensemble, or the model alone."""
        return Ensemble.of(self.model).models

    @property
    def max_positions(self) -> int | None:
        """The fewest learned positions of the models; None without any."""
        configs = [model.config for model in self.models]
        return min((config.max_positions for config in configs if config.positions == "learned"), default=None)

    @property
    def longest_source(self) -> int | None:
        """The most subwords of a line that learned positions allow with its translation; None without any."""
        positions = self.max_positions
        return max(positions - self.search.max_extra_tokens - 1, 0) if positions else None

    def _sources(self, lines: list[str], first_line: int) -> list[list[int]]:
        """Returns `source_ids`. Raises DataError if learned positions are too few for a line and its translation."""
        src_ids, longest = self.source_ids(lines, first_line), self.longest_source
        for number, ids in enumerate(src_ids, first_line):
            if longest is not None and len(ids) > longest:
                raise DataError(
                    f"line {number} has {len(ids)} subwords: with search.max_extra_tokens="
                    f"{self.search.max_extra_tokens} this model's {self.max_positions} learned positions allow at most "
                    f"{longest}; split the line or lower search.max_extra_tokens"
                )
        return src_ids

    def _padded(self, ids: list[list[int]], batch: list[int]) -> Tensor:
        """Returns the subwords of a batch's lines with eos, on the model's device: (B, S)."""
        return pad_sources([ids[number] for number in batch]).to(self.device)

    def _to_text(self, hypotheses: list[Hypothesis]) -> list[Translation]:
        texts = self.tokenizer.decode([hypothesis.tokens for hypothesis in hypotheses])
        # A byte-level vocabulary can produce line breaks, but every line must stay one line.
        return [
            Translation(" ".join(text.splitlines()), hypothesis.score, hypothesis.log_prob, hypothesis.tokens)
            for text, hypothesis in zip(texts, hypotheses, strict=True)
        ]
