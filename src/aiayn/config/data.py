"""Options of the group `data`: text, cleaning, vocabulary and tokens per step."""

import re
from functools import partial

from aiayn.config.rules import (
    TAG,
    Options,
    Paths,
    at_least,
    language_code,
    listed,
    mutable_option,
    option,
    option_group,
    path_or_paths,
    require,
    require_value,
    tagged,
)
from aiayn.config.tasks import TASKS

# The algorithms of data.tokenizer besides bpe
OTHER_ALGORITHMS = ("unigram", "characters")
# What a run takes over from the one that `init_from` names.
OF_VOCABULARY = ("vocab_size", "src_vocab_size", "lowercase", "tokenizer", "tokenizer_pairs")
_text = partial(path_or_paths, "a prefix of text files, a split's name,")


@option_group("train", "data")
class DataOptions(Options):
    """Section 5.1: which text, how it is cleaned and cut into subwords, and the tokens of a
    step.
    """

    source: str = option("where text comes from", choices=("hub", "files", "phrasebook"))
    task: str = option("parsing needs data=treebank", choices=tuple(TASKS))
    hub_path: str | None = option("hub: name of the data set, or a local folder of the same layout")
    hub_name: str | None = option("hub: configuration of the data set")
    hub_revision: str | None = option("hub: a commit, to pin the text; null: the newest")
    train: Paths = option(
        "files: a prefix, a file of pairs, or a list of them, each with an optional tag: "
        "<2de>PREFIX",
        _text,
    )
    val: Paths = option("like train", _text)
    test: Paths = mutable_option("like train; null: no test set", _text)
    src_lang: str = option(
        "source language: suffix of its files, or column of the data set", language_code
    )
    tgt_lang: str = option("target language", language_code)
    folder: str = mutable_option("folder of the prepared corpora")
    vocab_size: int | None = option(  # bytes and special tokens
        "size of the joint byte-level BPE, special tokens included; 260: bytes alone",
        least=260,
        most=10_000_000,
        inferred_from_data=True,
    )
    src_vocab_size: int | None = option(
        "a number: separate vocabularies, with this size for the source",
        least=260,
        most=10_000_000,
    )
    tokenizer: str = option(
        "bpe | unigram | characters (at most vocab_size, others as bytes) | the tokenizer.json of "
        "another corpus"
    )
    symbols: list[str] = option(
        "words in angle brackets that are one subword each, such as <sep>; tags of data.train "
        "are always included",
    )
    temperature: float = option(
        "several training files: 1 keeps their sizes, 5 repeats smaller ones, a large value "
        "makes all equal",
        least=1,
        most=1e9,
    )
    weights: list[float] | None = option(
        "one per file of train: how often an epoch uses its pairs; [3, 0.5]: three times, and "
        "half of them",
    )
    lowercase: bool = option(
        "true: lower-case all text, as some published recipes do",
    )
    tags: str = option(
        "parsing: keep part-of-speech tags, or replace each with XX", choices=("kept", "xx")
    )
    drop_duplicates: str | None = option(
        "keep only the first of equal training pairs; normalised ignores case and punctuation",
        choices=("exact", "normalised"),
    )
    drop_equal: bool = option(
        "drop training pairs whose sides are equal, ignoring case and punctuation"
    )
    drop_placeholder_mismatch: bool = option(
        "drop training pairs whose tags, {name}, %s, &amp; or addresses differ"
    )
    drop_wrong_language: bool = option(
        "drop training pairs that are clearly in other languages (needs aiayn[text])", absent=False
    )
    drop_without_letters: bool = option(
        "drop training pairs with a side without letters, such as 12:30", absent=False
    )
    check_sides: bool = mutable_option(
        "refuse text whose sides are swapped or in neither language of data.val", absent=True
    )
    max_expansion: int = mutable_option(
        "files: beyond 64 MB, how many times its compressed size a file may expand to",
        least=1,
        absent=200,
    )
    write_dropped: bool = mutable_option(
        "write dropped pairs with file, line and reason to dropped.jsonl of the prepared corpus"
    )
    max_length: int = option("longest sentence kept for training, in subwords", least=1)
    max_length_ratio: float = option(
        "longest side / shortest side, in subwords; a difference of 5 is always allowed", least=1
    )
    tokenizer_pairs: int | None = option(
        "number of pairs that the BPE is learned from; null: all", least=1
    )
    tokens_per_step: int | None = option(
        "tokens of each language in an optimizer step", least=1, inferred_from_data=True
    )
    parts_per_step: int = option(
        "a step mixes pairs of this many lengths, as the eight GPUs of the paper did",
        least=1,
        most=1000,
    )
    # It only sets the number of micro-batches, which is stored with the run.
    max_tokens_per_device: int | None = mutable_option(
        "padded tokens, per side, in one micro-batch; null: 16,384; on a GPU 4,096 to 32,768, by "
        "its memory",
        least=1,
    )
    micro_batches: int | None = option(
        "number per step; null: as few as parts_per_step, max_tokens_per_device and devices allow",
        least=1,
        most=1_000_000,
    )
    num_workers: int = mutable_option("loader processes", least=0, most=1000)
    prepare_per_node: bool = mutable_option(
        "true: each machine prepares the text; false: one does, on a shared disk"
    )
    prepare_processes: int | None = mutable_option(
        "processes that encode the text; null: one for each core", least=1, most=1000
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        is_parsing = self.task == "parsing"
        require(
            self.tags == "kept" or is_parsing,
            f"data.tags={self.tags}: only works with data.task=parsing",
        )
        require(
            self.source != "hub" or bool(self.hub_path),
            "data.hub_path is empty: name a data set, or use data=files with data.train=PREFIX",
        )
        is_algorithm = self.tokenizer in ("bpe", *OTHER_ALGORITHMS)
        names = ", ".join(OTHER_ALGORITHMS)
        require_value(
            is_algorithm or self.tokenizer.endswith(".json"),
            "data.tokenizer",
            self.tokenizer,
            f"choose one of bpe, {names}, or name the tokenizer.json of a corpus",
        )
        changes_labels = self.lowercase or self.tokenizer == "characters"
        require(
            self.task == "translation" or not changes_labels,
            f"data.task={self.task}: its labels are words in capitals; leave out "
            "data.lowercase=true and data.tokenizer=characters",
        )
        for symbol in self.symbols:
            is_taken = symbol in ("<pad>", "<s>", "</s>", "<unk>")
            is_tag = re.fullmatch(TAG, symbol) is not None
            require(
                is_tag and not is_taken,
                f"data.symbols: {symbol}: write another word in angle brackets, such as <2de>",
            )
        require(
            self.src_lang != self.tgt_lang,
            f"data.src_lang and data.tgt_lang are both {self.src_lang}: name two languages",
        )
        if self.weights is not None:
            self._check_weights(self.weights)
        parts = self.parts_per_step
        count = self.micro_batches or parts
        require(
            count % parts == 0 or parts % count == 0,
            f"data.micro_batches={count}: must be a multiple or a divisor of "
            f"data.parts_per_step={parts}",
        )
        for name in ("tokens_per_step", "max_tokens_per_device"):
            value = getattr(self, name)
            fits = value is None or value > self.max_length
            require(
                fits,
                f"data.{name}={value}: the longest sentence (data.max_length={self.max_length} "
                f"and its end token) does not fit; raise data.{name} or lower data.max_length",
            )

    def _check_weights(self, weights: list[float]) -> None:
        names, key = len(listed(self.train)), f"data.weights={weights}"
        require(
            len(weights) == names,
            f"{key}: give one value per name in data.train, which has {names}",
        )
        require(
            self.temperature == 1,
            f"{key} and data.temperature={self.temperature:g}: leave one out",
        )
        for weight in weights:
            at_least("data.weights", weight, 0, most=1000)
        require(max(weights) >= 1, f"{key}: at least one value must be 1 or more")

    @property
    def all_symbols(self) -> list[str]:
        """Returns `symbols` and the tags of the training text."""
        names = listed(self.train) if self.source == "files" else []
        tags = [tag for tag, _ in map(tagged, names) if tag]
        return list(dict.fromkeys([*self.symbols, *tags]))


class DataConfig(DataOptions):
    """The options of a text whose vocabulary and steps have a size."""

    vocab_size: int
    tokens_per_step: int
