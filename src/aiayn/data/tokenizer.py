"""Subwords (section 5.1): byte-level BPE, unigram, characters or bytes, learned on both languages
together or on each; lossless and deterministic.
"""

import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from aiayn.config.data import OTHER_ALGORITHMS, DataConfig, DataOptions
from aiayn.config.rules import one_of
from aiayn.config.stored import as_option
from aiayn.config.tasks import TASKS
from aiayn.data.cleaning import (
    REPLACED,
    CleaningReport,
    canonical,
    clean,
    grouped,
    training_rules,
)
from aiayn.data.raw_text import RawText, with_progress
from aiayn.errors import DataError
from aiayn.token_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

log = logging.getLogger(__name__)

SubwordIds = list[list[int]]  # those of each line

SPECIAL_IDS = {"<pad>": PAD_ID, "<s>": BOS_ID, "</s>": EOS_ID, "<unk>": UNK_ID}
TOKEN = {number: token for token, number in SPECIAL_IDS.items()}

# The alphabet of byte-level BPE: printable bytes are their own characters, the others 256 + n.
_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
_BYTES = sorted(range(256), key=lambda byte: chr(byte) not in _ALPHABET)
BYTE_OF_CHARACTER = dict(zip(_ALPHABET, _BYTES, strict=True))

# They divide a text before merges of bytes make subwords of its parts.
CHARACTER, BETWEEN_SPACES = r"[\s\S]", " ?[^ ]+"

# By algorithm: the model, and what trains it.
LEARNERS: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "bpe": (models.BPE, trainers.BpeTrainer),
    "characters": (models.BPE, trainers.BpeTrainer),
    "unigram": (models.Unigram, partial(trainers.UnigramTrainer, unk_token="<unk>")),
}

# `cleaning.canonical` in the library's file format.
CANONICAL: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"Regex": pattern.pattern}, "content": content}
    for pattern, content in REPLACED
]
CANONICAL.append({"type": "NFC"})

# The library's threads do not survive a fork. Setting the variable keeps threads on in this process
# without a warning at every fork; children (data workers, ranks) use one thread instead of waiting
# for threads that do not exist.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
os.register_at_fork(
    after_in_child=lambda: os.environ.__setitem__("TOKENIZERS_PARALLELISM", "false")
)


class Tokenizer:
    """Text to subword ids and back: `decode(encode(lines))` are the lines in the form of
    `cleaning.canonical`, for every string that UTF-8 can encode, and in lower case if trained with
    `lowercase`.

    Every line gets one space in front, which decoding removes. So a word has the same subwords at
    the beginning of a line as in the middle, and a line's own leading spaces are kept. The alphabet
    is all bytes, so `<unk>` is never produced; its id is reserved for other engines.
    """

    def __init__(self, core: tokenizers.Tokenizer, source: "Tokenizer | None" = None):
        """`source`: see the property.

        Python makes text canonical, faster than the library, which only learns of it in `to_json`.
        """
        self._own_source = source
        # Treats text that looks like a special token as text. Not part of the library's file
        # format.
        core.encode_special_tokens = True
        self._core = core

    @classmethod
    def train(
        cls,
        batches: Iterable[list[str]],
        vocab_size: int,
        pretokenized: bool = False,
        lowercase: bool = False,
        algorithm: str = "bpe",
        symbols: Sequence[str] = (),
        option: str = "data.vocab_size",
        at_most: bool = False,
    ) -> "Tokenizer":
        """Learns exactly, or `at_most`, `vocab_size` subwords, special tokens, the 256 bytes and
        the symbols included.

        A word of `symbols` is one subword. algorithm: bpe; unigram, whose last digits the library's
        threads change; or characters: the most frequent ones get an id each, at most `vocab_size`,
        and the others are bytes. BPE of 260 subwords has bytes alone.

        With `pretokenized`, only spaces divide words before BPE merges bytes, so that a frequent
        symbol such as `(NP` becomes one subword; otherwise letters, digits and punctuation are
        divided too. With `lowercase`, text is lower-cased before it is encoded, so decoding returns
        it in lower case.

        Raises DataError, for `option`, if the text has too few distinct words, and ConfigError for
        another algorithm.
        """
        one_of("algorithm", algorithm, tuple(LEARNERS))
        pattern = BETWEEN_SPACES if pretokenized else None
        core = _untrained(CHARACTER if algorithm == "characters" else pattern, lowercase)
        texts = (list(map(canonical, batch)) for batch in batches)
        settings: dict[str, Any] = {
            "vocab_size": vocab_size - len(symbols),
            "special_tokens": list(SPECIAL_IDS),
            "initial_alphabet": pre_tokenizers.ByteLevel.alphabet(),
            "show_progress": False,
        }
        make_model, make_trainer = LEARNERS[algorithm]
        core.model = make_model()
        core.train_from_iterator(texts, make_trainer(**settings))
        _add_symbols(core, symbols)
        learned = core.get_vocab_size()
        if learned > vocab_size:
            raise DataError(
                f"{option}={vocab_size}: bytes and symbols alone need {learned}; set "
                f"{option}={learned} or more"
            )
        if learned < vocab_size and algorithm != "characters" and not at_most:
            raise DataError(
                f"{option}={vocab_size}: this text supports at most {learned}; set "
                f"{option}={learned} or less, or leave it out (data=files infers it)"
            )
        return cls(core)

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """Reads the JSON of `to_json`. Raises DataError for anything else.

        The library never sees the JSON, because its own reader can be made to panic, to hang, and
        to change text silently (dropout, truncation, other ids). The tokenizer is built anew from
        the merges, and must equal the JSON.
        """
        try:
            fields = json.loads(text)
            model = fields["model"]
            lowercase = {"type": "Lowercase"} in fields["normalizer"]["normalizers"]
            steps = fields["pre_tokenizer"].get("pretokenizers", [])[:1]
            patterns = [step["pattern"]["Regex"] for step in steps]
            pattern = BETWEEN_SPACES if patterns else None
            core = _untrained(CHARACTER if CHARACTER in patterns else pattern, lowercase)
            if model["type"] == "Unigram":
                vocabulary = [(piece, score) for piece, score in model["vocab"]]
                pieces = [piece for piece, score in vocabulary if piece and math.isfinite(score)]
                if pieces[:4] != list(SPECIAL_IDS) or not set(_ALPHABET).issubset(pieces):
                    raise ValueError("a vocabulary without special tokens or bytes")
                core.model = models.Unigram(vocabulary, UNK_ID, False)
            else:
                # The ids as the trainer gives them: special tokens, the 256 bytes, then what each
                # merge makes, which is in the file: forged ones could double the text without limit
                pieces = [*SPECIAL_IDS, *_ALPHABET]
                ids = {piece: number for number, piece in enumerate(pieces)}
                merges = [(left, right) for left, right in model["merges"]]
                for left, right in merges:
                    if left not in ids or right not in ids or left + right not in model["vocab"]:
                        raise ValueError("a merge of unknown subwords")
                    ids.setdefault(left + right, len(ids))
                core.model = models.BPE(vocab=ids, merges=merges)
            core.add_special_tokens(list(SPECIAL_IDS))
            added = [token["content"] for token in fields["added_tokens"] if not token["special"]]
            _add_symbols(core, added)
            source = cls.from_json(json.dumps(fields["source"])) if "source" in fields else None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DataError(
                f"not a tokenizer of this program ({type(error).__name__}: {error!s:.80})"
            ) from error
        tokenizer = cls(core, source)
        if tokenizer._fields() != fields:
            raise DataError("not a tokenizer of this program: it differs from its own merges")
        return tokenizer

    def to_json(self) -> str:
        """Returns the tokenizer as canonical JSON: equal tokenizers give equal text."""
        return json.dumps(self._fields(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    def _fields(self) -> dict[str, Any]:
        fields = json.loads(self._core.to_str())
        fields["normalizer"]["normalizers"] = CANONICAL + fields["normalizer"]["normalizers"]
        if self._own_source:
            fields["source"] = self._own_source._fields()
        return fields

    def __reduce__(self):
        return Tokenizer.from_json, (self.to_json(),)

    @property
    def source(self) -> "Tokenizer":
        """Returns the tokenizer of sources: this one, unless each language has its own; then this
        is that of targets.
        """
        return self._own_source or self

    def with_source(self, source: "Tokenizer") -> "Tokenizer":
        """Returns this tokenizer as one of targets, with that of their sources."""
        return Tokenizer(self._core, source)

    @property
    def symbols(self) -> list[str]:
        """Returns the words that are one subword each, besides those that were learned."""
        return [
            token.content
            for token in self._core.get_added_tokens_decoder().values()
            if not token.special
        ]

    @property
    def vocab_size(self) -> int:
        return self._core.get_vocab_size()

    @cached_property
    def fingerprint(self) -> str:
        """Returns the SHA-256 of the canonical JSON, as hexadecimal digits."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def encode(self, lines: list[str]) -> SubwordIds:
        """Returns the subword ids of every line, without bos and eos. An empty line has none."""
        encodings = self._core.encode_batch_fast(
            list(map(canonical, lines)), add_special_tokens=False
        )
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: SubwordIds) -> list[str]:
        """Returns the text of every row. Special ids are skipped; bytes that are not UTF-8 become
        U+FFFD.
        """
        return self._core.decode_batch(ids, skip_special_tokens=True)

    def byte_lengths(self, ids: list[int]) -> list[int]:
        """Returns how many bytes of text each id stands for, a line's added space included; 0 for
        special ids.
        """
        # The library writes every byte as one character.
        return [0 if number in TOKEN else len(self.subword(number)) for number in ids]

    def tokens(self, ids: list[int]) -> list[str]:
        """Returns a readable subword for each id, for plots: `▁` is a space, and bytes that are
        only a part of a character are in hex, such as \\xe7\\x8c.
        """
        readable = []
        for subword in map(self.subword, ids):
            if BYTE_OF_CHARACTER.keys() >= set(subword):
                content = bytes(map(BYTE_OF_CHARACTER.__getitem__, subword))
                subword = content.decode("utf-8", "backslashreplace").replace(" ", "▁")
            readable.append(subword)  # or one of data.symbols, in its own letters
        return readable

    @property
    def subwords(self) -> list[str]:
        """Returns every subword by its id, as `subword` returns it."""
        ids = self._core.get_vocab()
        return sorted(ids, key=ids.__getitem__)

    def subword(self, number: int) -> str:
        """Returns the subword of an id as the vocabulary writes it, a character for every byte."""
        subword = self._core.id_to_token(number)
        assert subword is not None, f"the vocabulary has no id {number}"
        return subword


def _untrained(pattern: str | None, lowercase: bool) -> tokenizers.Tokenizer:
    """Returns all of the tokenizer that is not learned; without a pattern, letters, digits and
    punctuation are divided.
    """
    core = tokenizers.Tokenizer(models.BPE())
    steps = [normalizers.Lowercase()] if lowercase else []
    core.normalizer = normalizers.Sequence([*steps, normalizers.Prepend(" ")])
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    if pattern:
        words = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
        core.pre_tokenizer = pre_tokenizers.Sequence([words, core.pre_tokenizer])
    core.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return core


def _add_symbols(core: tokenizers.Tokenizer, symbols: Sequence[str]) -> None:
    """Makes each symbol a subword; normalised, because a word has its space, and a line's first
    word gets one.
    """
    core.add_tokens([tokenizers.AddedToken(symbol, normalized=True) for symbol in symbols])


def supported_vocab_size(config: DataOptions, text: RawText, size: int) -> int:
    """Returns `size`, or the largest size that the text supports if that is less.

    Stops reading when it has seen enough words; learns a vocabulary only of a text that has few.
    Raises what `learn_tokenizer` raises.
    """
    if config.tokenizer.endswith(".json"):
        return size
    core = _untrained(
        BETWEEN_SPACES if TASKS[config.task].splits_at_spaces else None, config.lowercase
    )
    sides, words = ("src", "tgt") if config.src_vocab_size is None else ("tgt",), set[str]()
    for batch in _batches(config, text, sides):
        for line in batch:
            normalised = core.normalizer.normalize_str(canonical(line))
            words.update(word for word, _ in core.pre_tokenizer.pre_tokenize_str(normalised))
        # Each word of several bytes needs a subword of its own at the latest when all are merged.
        if len(words) >= size:
            return size
    sized = replace(config, vocab_size=size)
    return _learn(sized, text, "vocab_size", sides, at_most=True).vocab_size


def learn_tokenizer(config: DataConfig, text: RawText) -> Tokenizer:
    """Learns from the clean pairs of the training text, or from `data.tokenizer_pairs` of them,
    evenly spaced.

    With `data.src_vocab_size` from each side by itself. Raises DataError for text that is hardly
    usable, before the vocabulary is learned, which takes the longest.
    """
    sizes = [size for size in (config.src_vocab_size, config.vocab_size) if size is not None]
    log.info(f"learning {' and '.join(f'{size:,}' for size in sizes)} subwords from {text.option}")
    if config.src_vocab_size is None:
        return _learn(config, text, "vocab_size", ("src", "tgt"))
    source = _learn(config, text, "src_vocab_size", ("src",))
    return _learn(config, text, "vocab_size", ("tgt",)).with_source(source)


def _learn(
    config: DataOptions, text: RawText, option: str, sides: tuple[str, ...], at_most: bool = False
) -> Tokenizer:
    return Tokenizer.train(
        _batches(config, text, sides),
        getattr(config, option),
        pretokenized=TASKS[config.task].splits_at_spaces,
        lowercase=config.lowercase,
        algorithm=config.tokenizer,
        symbols=config.all_symbols,
        option=f"data.{option}",
        at_most=at_most,
    )


def _batches(config: DataOptions, text: RawText, sides: tuple[str, ...]) -> Iterator[list[str]]:
    """Yields what a vocabulary is learned from."""
    pairs, report, size = text.pairs(), CleaningReport(), config.tokenizer_pairs
    if size is not None:
        total = text.count()
        pairs = (
            pair for i, pair in enumerate(pairs) if (i + 1) * size // total > i * size // total
        )
    pairs = with_progress(pairs, "reading", None)
    cleaned = clean(pairs, report, training_rules(config), config.tags)
    for batch in grouped(cleaned, size=500, characters=200_000):
        yield [getattr(pair, side) for pair in batch for side in sides]
    report.check(text, config)


def existing_tokenizer(config: DataOptions, tokenizer: Tokenizer | None) -> Tokenizer | None:
    """Returns this tokenizer, else that of the file that `data.tokenizer` names; None if one is to
    be learned. Raises DataError for another file, and for options that the tokenizer contradicts.
    """
    if tokenizer is None:
        if config.tokenizer in ("bpe", *OTHER_ALGORITHMS):
            return None
        try:
            text = Path(config.tokenizer).expanduser().read_text("utf-8")
            tokenizer = Tokenizer.from_json(text)
        except (OSError, UnicodeDecodeError, DataError) as error:
            raise DataError(
                f"data.tokenizer={config.tokenizer}: {error}; name the tokenizer.json of a corpus"
            ) from error
    unknown = [symbol for symbol in config.all_symbols if symbol not in tokenizer.symbols]
    if unknown:
        raise DataError(
            f"data.symbols: the tokenizer splits {', '.join(unknown)}; learn a new one, or leave "
            "these symbols out"
        )
    has_two = tokenizer.source is not tokenizer
    stored = {
        "vocab_size": tokenizer.vocab_size,
        "src_vocab_size": tokenizer.source.vocab_size if has_two else None,
        "lowercase": tokenizer.decode(tokenizer.encode(["A"])) == ["a"],
    }
    for name, value in stored.items():
        option = getattr(config, name)
        if option != value and (option is not None or name != "vocab_size"):
            raise DataError(
                f"data.{name}={as_option(option)}: set {as_option(value)}, as in the tokenizer of "
                f"data.tokenizer={config.tokenizer}"
            )
    return tokenizer
