"""Options of the group `data`: text, cleaning, vocabulary and tokens per step."""

import re
from dataclasses import dataclass, field

from aiayn.config.rules import TAG, Paths, are_paths, at_least, by_text, language_code, listed, one_of, require, tagged
from aiayn.config.tasks import TASKS


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Section 5.1: which text, how it is cleaned and cut into subwords, and how many tokens make a step."""

    source: str = "hub"  # hub | files | phrasebook
    task: str = "translation"  # translation | parsing: source and target are words and linear trees of `aiayn trees`
    hub_path: str | None = "wmt/wmt14"  # hub: the data set, a name on the hub or a local folder of the same layout
    hub_name: str | None = "de-en"  # hub: its configuration
    hub_revision: str | None = (
        "b199e406369ec1b7634206d3ded5ba45de2fe696"  # hub: commit, so that the text cannot change under a run
    )
    train: Paths = "train"  # files: a prefix, a file of pairs, or a list of them; hub: a split's name
    val: Paths = "validation"
    test: Paths = "test"
    src_lang: str = "en"
    tgt_lang: str = "de"
    folder: str = "data"  # where prepared corpora are kept
    vocab_size: int = by_text(37_000)  # joint byte-level BPE, special tokens included; null: by the number of pairs
    tokenizer: str = "bpe"  # bpe | unigram | a tokenizer.json that this program has written
    symbols: list[str] = field(default_factory=list)  # words in angle brackets that are one subword each, as tags are
    temperature: float = 1.0  # T: of several files in data.train each has pairs ^ (1 / T) of an epoch's pairs
    weights: list[float] | None = None  # one for each name of data.train: how often an epoch has each of its pairs
    lowercase: bool = False  # the tokenizer lower-cases both sides: translations have no capitals
    tags: str = "kept"  # parsing: kept | xx: XX for every part-of-speech tag, as in "Grammar as a Foreign Language"
    drop_duplicates: str | None = None  # repeated training pairs: exact | normalised: ignoring case, punctuation
    drop_equal: bool = False  # training pairs whose sides are equal, ignoring case and punctuation
    drop_number_mismatch: bool = False  # training pairs whose numbers differ
    drop_placeholder_mismatch: bool = False  # training pairs whose tags, {name}, %s, web addresses differ
    write_dropped: bool = False  # every dropped pair with file, line and reason to dropped.jsonl of the prepared corpus
    max_length: int = 255  # longest sentence kept for training, in subwords without the end token
    max_length_ratio: float = 4.0  # longest side / shortest side, in subwords; a difference of 5 is always allowed
    tokenizer_pairs: int | None = None  # learn the BPE on at most this many pairs, evenly spread; null: on all
    tokens_per_step: int = by_text(25_000)  # about so many source and target tokens; null: by the number of pairs
    parts_per_step: int = 4  # parts of different lengths that make up a step; a part holds pairs of about one length
    max_tokens_per_device: int | None = None  # most padded tokens a side of a micro-batch; null: by the device's memory
    micro_batches: int | None = None  # per step; null: a part each, or pieces as max_tokens_per_device and devices need
    num_workers: int = 1  # loader processes; 0: the training process makes its own batches
    prepare_per_node: bool = True  # every machine prepares; false: the first rank does, the others wait for its folder
    prepare_processes: int | None = None  # that encode long text; null: one for each core

    def __post_init__(self) -> None:
        one_of("data.task", self.task, tuple(TASKS))
        one_of("data.tags", self.tags, ("kept", "xx"))
        if self.drop_duplicates is not None:
            one_of("data.drop_duplicates", self.drop_duplicates, ("exact", "normalised"))
        require(
            self.tags == "kept" or self.task == "parsing", f"data.tags={self.tags}: only data.task=parsing has tags"
        )
        one_of("data.source", self.source, ("hub", "files", "phrasebook"))
        require(
            self.source != "hub" or bool(self.hub_path),
            "data.hub_path is empty: name a data set, or use data=files with data.train=PREFIX",
        )
        for split in ("train", "val", "test"):
            value = getattr(self, split)
            require(
                value is None or are_paths(value),
                f"data.{split}={value}: must be a prefix of text files, a list of prefixes, or the name of a split",
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
        at_least("data.temperature", self.temperature, 1, most=1e9)
        if self.weights is not None:
            names, weights = len(listed(self.train)), f"data.weights={self.weights}"
            require(len(self.weights) == names, f"{weights}: give one for each name of data.train, which has {names}")
            require(self.temperature == 1, f"{weights} and data.temperature={self.temperature:g}: leave one out")
            for weight in self.weights:
                at_least("data.weights", weight, 0, most=1000)
            require(max(self.weights) >= 1, f"{weights}: how often an epoch has each pair; one must be 1 or more")
        for side in ("src_lang", "tgt_lang"):
            require(bool(getattr(self, side)), f"data.{side} is empty: set it, for example data.{side}=en")
            language_code(f"data.{side}", getattr(self, side))
        require(
            self.src_lang != self.tgt_lang,
            f"data.src_lang and data.tgt_lang are both {self.src_lang}: name two languages",
        )
        # More than the 256 bytes and 4 special tokens.
        at_least("data.vocab_size", self.vocab_size, 261, most=10_000_000)
        for name in ("max_length", "tokens_per_step", "max_tokens_per_device", "tokenizer_pairs"):
            at_least(f"data.{name}", getattr(self, name), 1)
        at_least("data.micro_batches", self.micro_batches, 1, most=1_000_000)
        at_least("data.parts_per_step", self.parts_per_step, 1, most=1000)
        parts, count = self.parts_per_step, self.micro_batches
        require(
            count is None or count % parts == 0 or parts % count == 0,
            f"data.micro_batches={count}: neither a multiple nor a divisor of data.parts_per_step={parts}; set one",
        )
        at_least("data.max_length_ratio", self.max_length_ratio, 1)
        at_least("data.num_workers", self.num_workers, 0, most=1000)
        at_least("data.prepare_processes", self.prepare_processes, 1, most=1000)
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
