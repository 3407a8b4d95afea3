"""Translates raw text to raw text in torch: batches of similar lengths, beam search, results in the
input's order.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

from aiayn.config.extensions import Extension, constraint_of
from aiayn.config.rules import one_of, require
from aiayn.config.search import PRECISIONS, SamplingConfig, SearchConfig, SearchOverrides
from aiayn.data.batch import pad_sources, source_mask
from aiayn.data.tokenizer import SubwordIds, Tokenizer
from aiayn.errors import ConfigError, DataError
from aiayn.hardware import choose_device, is_out_of_memory
from aiayn.kernels.accelerate import accelerate
from aiayn.model.transformer import Transformer
from aiayn.runs.checkpoints import Checkpoint
from aiayn.search.beam_search import Constraint, beam_search
from aiayn.search.build import load_model, load_tokenizer
from aiayn.search.line_translator import BATCH_TOKENS, LineTranslator, Progress, longest_first
from aiayn.search.translations import Hypothesis, Translation, length_penalty
from aiayn.token_ids import EOS_ID

if TYPE_CHECKING:
    from aiayn.search.ensemble import Ensemble
    from aiayn.search.force_decode import ScoredPair

T = TypeVar("T")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Puts a model into evaluation mode, and afterwards each of its modules back into its own: some
    may be frozen.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


class Translator(LineTranslator):
    """Translates lines with a model, its tokenizer and search options; scores translations, and
    draws them.
    """

    def __init__(
        self,
        model: "Transformer | Ensemble",
        tokenizer: Tokenizer,
        search: SearchConfig,
        device: torch.device | str,
        task: str = "translation",
        languages: tuple[str, str] = ("", ""),
        constraint: Constraint | None = None,
    ):
        """Moves the model to the device and changes nothing else about it, so a model in training
        may be used.
        """
        self.model = model.to(device)
        # Several models are an ensemble.
        self.models = [self.model] if isinstance(self.model, Transformer) else self.model.models
        configs = [trained.config for trained in self.models]
        learned = [config.max_positions for config in configs if config.positions == "learned"]
        super().__init__(tokenizer, search, task, languages, min(learned, default=None))
        self.device = torch.device(device)
        self.constraint = constraint
        self.batch_tokens = search.batch_tokens or BATCH_TOKENS[self.device.type]

    def in_torch(self) -> "Translator":
        return self

    def find(
        self, src_ids: SubwordIds, n: int, on_batch: Progress | None, first_line: int
    ) -> list[list[Hypothesis]]:
        def search(batch: list[int], src: Tensor, mask: Tensor) -> list[list[Hypothesis]]:
            of_lines = beam_search(self.model, src, mask, self.search, self.constraint)
            return [hypotheses[:n] for hypotheses in of_lines]

        return self.in_batches(src_ids, search, list, first_line, on_batch, self.search.beam_size)

    def sample(
        self,
        lines: list[str],
        sampling: SamplingConfig,
        on_batch: Progress | None = None,
        first_line: int = 1,
    ) -> list[Translation]:
        """Returns a translation of every line, drawn from the model's distribution; that of a blank
        line is empty.

        A line's sample depends on the model, `sampling` and the line's number (lines[0] has
        `first_line`), not on the other lines. Raises what `translate` raises.
        """
        from aiayn.search.sampling import sample

        require(
            self.constraint is None,
            "--sample: constraints of extensions only work in a search; leave out --sample, or the "
            "extension",
        )
        src_ids = self.sources(lines, first_line)

        def draw(batch: list[int], src: Tensor, mask: Tensor) -> list[Translation]:
            numbers = [first_line + number for number in batch]
            return self.to_text(sample(self.model, src, mask, numbers, sampling, self.search))

        return self.in_batches(src_ids, draw, Translation, first_line, on_batch)

    def score(
        self,
        sources: list[str],
        targets: list[str],
        on_batch: Progress | None = None,
        first_line: int = 1,
    ) -> "list[ScoredPair]":
        """Returns how probable the model finds each target as the translation of its source, by
        forced decoding.

        `log_prob` and `score` are those that a search gives if it finds the same subwords. A pair
        of two blank lines has no tokens and log P = 0. Arguments and errors are those of `n_best`;
        raises DataError for lists of unequal lengths.
        """
        from aiayn.search.force_decode import ScoredPair, force_decode

        if len(sources) != len(targets):
            raise DataError(
                f"{len(sources)} sources and {len(targets)} targets: give one target per source"
            )
        src_ids = self.source_ids(sources, first_line)
        tgt_ids = self.target_ids(targets, first_line)
        longer = [max(pair, key=len) for pair in zip(src_ids, tgt_ids, strict=True)]
        self.refuse_long(longer, first_line, self.max_positions and self.max_positions - 1)

        def force(batch: list[int], src: Tensor, mask: Tensor) -> list[ScoredPair]:
            tgt = self.padded(tgt_ids, batch)
            log_probs, likeliest = force_decode(self.models, src, mask, tgt)
            rows = zip(batch, log_probs.tolist(), likeliest.sum(1).tolist(), strict=True)
            pairs = []
            for number, row, count in rows:
                tokens = [*tgt_ids[number], EOS_ID]
                of_tokens = row[: len(tokens)]  # the rest is padding
                total = math.fsum(of_tokens)
                score = total / length_penalty(len(tokens), self.search)
                pairs.append(ScoredPair(tokens, of_tokens, total, score, count))
            return pairs

        return self.in_batches(src_ids, force, ScoredPair, first_line, on_batch, longer=longer)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return is_out_of_memory(error)

    def padded(self, ids: SubwordIds, batch: list[int]) -> Tensor:
        """Returns the subwords of a batch's lines with eos, on the model's device: (B, S)."""
        return pad_sources([ids[number] for number in batch]).to(self.device)

    def in_batches(
        self,
        src_ids: SubwordIds,
        decode: Callable[[list[int], Tensor, Tensor], list[T]],
        blank: Callable[[], T],
        first_line: int,
        on_batch: Progress | None,
        beams: int = 1,
        longer: SubwordIds | None = None,
    ) -> list[T]:
        """Returns what `decode` finds for each line; it gets the indices of a batch, their sources,
        and the mask of these. For blank lines: `blank()`. `longer`: the longer side of each pair.
        """
        ids = longer or src_ids
        outputs = [blank() for _ in ids]
        order = longest_first(ids)
        done = len(ids) - len(order)

        def decode_batch(batch: list[int]) -> list[T]:
            src = self.padded(src_ids, batch)
            return decode(batch, src, source_mask(src))

        batches = self.run_batches(
            [order], ids, lambda batch: partial(decode_batch, batch), first_line, beams
        )
        with evaluating(self.model):
            for batch, decoded in batches:
                for number, output in zip(batch, decoded, strict=True):
                    outputs[number] = output
                done += len(batch)
                if on_batch:
                    on_batch(done, len(ids))
        return outputs


def load_translator(
    checkpoint: Checkpoint,
    search: SearchOverrides | None = None,
    accelerator: str = "auto",
    precision: str = "float32",
    others: Sequence[Checkpoint] = (),
    extensions: Sequence[Extension] = (),
) -> Translator:
    """Returns the translator of a checkpoint, with the constraints of extensions.

    `others` translate together with it, by the mean of their log-probabilities. Search options that
    are not given are those of the checkpoint's run. With `precision` bfloat16 scores differ in the
    third digit, and a few translations differ.

    Raises RefusedError for a checkpoint of another vocabulary, ConfigError for impossible options
    or a missing GPU.
    """
    from aiayn.search.ensemble import Ensemble, refuse_different

    one_of("precision", precision, PRECISIONS)
    if precision == "int8":
        raise ConfigError(
            "precision=int8: only CTranslate2 supports it; choose float32 or bfloat16"
        )
    device = choose_device(accelerator)
    options = search.apply(checkpoint.config.search) if search else checkpoint.config.search
    tokenizer = load_tokenizer(checkpoint)
    for other in others:
        refuse_different(checkpoint, other)
    models = []
    for member in (checkpoint, *others):
        model = load_model(member).eval().to(getattr(torch, precision))
        models.append(accelerate(model, device, translates=True))
    trained_on = checkpoint.config.data
    return Translator(
        Ensemble(models) if others else models[0],
        tokenizer,
        options,
        device,
        trained_on.task,
        (trained_on.src_lang, trained_on.tgt_lang),
        constraint_of(extensions, tokenizer),
    )
