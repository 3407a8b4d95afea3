"""Options of the group `data`: text, cleaning, vocabulary and tokens per step."""

import re
from dataclasses import dataclass, field
from functools import partial

from aiayn.config.rules import (
    TAG,
    Paths,
    at_least,
    check_rules,
    language_code,
    listed,
    option,
    path_or_paths,
    require,
    tagged,
)
from aiayn.config.tasks import TASKS

# What a run takes over from the one that `init_from` names.
OF_VOCABULARY = ("vocab_size", "src_vocab_size", "lowercase", "tokenizer", "tokenizer_pairs")
_text = partial(path_or_paths, "a prefix of text files, a split's name,")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Section 5.1: which text, how it is cleaned and cut into subwords, and how many tokens make a step.

    What each option does stands beside its value in `conf/data/wmt14_en_de.yaml`.
    """

    source: str = option("hub", choices=("hub", "files", "phrasebook"))
    task: str = option("translation", choices=tuple(TASKS))
    hub_path: str | None = "wmt/wmt14"
    hub_name: str | None = "de-en"
    hub_revision: str | None = "b199e406369ec1b7634206d3ded5ba45de2fe696"
    train: Paths = option("train", _text)
    val: Paths = option("validation", _text)
    test: Paths = option("test", _text, may_change=True)
    src_lang: str = option("en", language_code)
    tgt_lang: str = option("de", language_code)
    folder: str = option("data", may_change=True)
    vocab_size: int = option(37_000, least=261, most=10_000_000, by_text=True)  # more than the bytes and special tokens
    src_vocab_size: int | None = option(least=261, most=10_000_000)
    tokenizer: str = "bpe"
    symbols: list[str] = field(default_factory=list)
    temperature: float = option(1.0, least=1, most=1e9)
    weights: list[float] | None = None
    lowercase: bool = False
    tags: str = option("kept", choices=("kept", "xx"))
    drop_duplicates: str | None = option(choices=("exact", "normalised"))
    drop_equal: bool = False
    drop_placeholder_mismatch: bool = False
    drop_wrong_language: bool = False
    check_sides: bool = option(True, may_change=True)
    write_dropped: bool = option(False, may_change=True)
    max_length: int = option(255, least=1)
    max_length_ratio: float = option(4.0, least=1)
    tokenizer_pairs: int | None = option(least=1)
    tokens_per_step: int = option(25_000, least=1, by_text=True)
    parts_per_step: int = option(4, least=1, most=1000)
    # May change, because it only sets the number of micro-batches, which is stored with the run.
    max_tokens_per_device: int | None = option(least=1, may_change=True)
    micro_batches: int | None = option(least=1, most=1_000_000)
    num_workers: int = option(1, least=0, most=1000, may_change=True)
    prepare_per_node: bool = option(True, may_change=True)
    prepare_processes: int | None = option(least=1, most=1000, may_change=True)

    def __post_init__(self) -> None:
        check_rules("data.", self)
        require(
            self.tags == "kept" or self.task == "parsing", f"data.tags={self.tags}: only data.task=parsing has tags"
        )
        require(
            self.source != "hub" or bool(self.hub_path),
            "data.hub_path is empty: name a data set, or use data=files with data.train=PREFIX",
        )
        require(
            not self.lowercase or self.task == "translation",
            f"data.lowercase=true: the labels of data.task={self.task} are in capitals; leave it false",
        )
        require(
            self.tokenizer in ("bpe", "unigram") or self.tokenizer.endswith(".json"),
            f"data.tokenizer={self.tokenizer}: choose one of bpe, unigram, or name the tokenizer.json of a corpus",
        )
        for symbol in self.symbols:
            good = re.fullmatch(TAG, symbol) and symbol not in ("<pad>", "<s>", "</s>", "<unk>")
            require(bool(good), f"data.symbols: {symbol}: write a word in angle brackets, such as <2de>")
        if self.weights is not None:
            names, weights = len(listed(self.train)), f"data.weights={self.weights}"
            require(len(self.weights) == names, f"{weights}: give one for each name of data.train, which has {names}")
            require(self.temperature == 1, f"{weights} and data.temperature={self.temperature:g}: leave one out")
            for weight in self.weights:
                at_least("data.weights", weight, 0, most=1000)
            require(max(self.weights) >= 1, f"{weights}: how often an epoch has each pair; one must be 1 or more")
        require(
            self.src_lang != self.tgt_lang,
            f"data.src_lang and data.tgt_lang are both {self.src_lang}: name two languages",
        )
        parts, count = self.parts_per_step, self.micro_batches
        require(
            count is None or count % parts == 0 or parts % count == 0,
            f"data.micro_batches={count}: neither a multiple nor a divisor of data.parts_per_step={parts}; set one",
        )
        for name in ("tokens_per_step", "max_tokens_per_device"):
            value = getattr(self, name)
            require(
                value is None or value > self.max_length,
                f"data.{name}={value}: the longest sentence (data.max_length={self.max_length} and its "
                f"end token) does not fit; raise data.{name} or lower data.max_length",
            )

    @property
    def all_symbols(self) -> list[str]:
        """`symbols`, and the tags of the training text."""
        tags = [tagged(name)[0] for name in listed(self.train)] if self.source == "files" else []
        return list(dict.fromkeys([*self.symbols, *filter(None, tags)]))
