"""Scores of translations: BLEU of four kinds, chrF and TER, computed from detokenised text.

Scores of different kinds must not be compared, so each comes with its name and its signature:

sacrebleu
    The number to report: mixed case, tokenized as sacreBLEU does for the target language, 13a for
    most. Chinese, Japanese and Korean have tokenizers of their own; other languages without spaces
    between words are scored by characters. The signature names the tokenizer.
bleu_tokenized
    Moses punctuation and tokens, mixed case, no smoothing; equal to normalize-punctuation.perl,
    tokenizer.perl and multi-bleu.perl to the second decimal. Only for languages that Moses has
    rules for.
bleu_tokenized_lc
    The same on lower-cased text as published for Multi30k, with the scripts of that time, which do
    not separate a full stop from a number at the end of a line (12,103 tokens in the reference of
    test 2016).
bleu_compound_split
    As in the paper's English-German tables: the parts of hyphenated words count separately. German
    only. This is get_ende_bleu.sh with typographic quotes straightened on both sides. The script
    alone leaves „“ as they are and scores outputs whose quotes differ from the reference's up to a
    point lower; `details` also holds that score (`bare_script`).
chrf, ter
    sacreBLEU's defaults; lower is better for TER. TER splits Chinese and Japanese into characters
    and does not apply to other languages without spaces.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from aiayn.config.tasks import METRIC_KINDS, TaskScores
from aiayn.data.cleaning import composed
from aiayn.data.languages import SHORT, primary
from aiayn.errors import ConfigError, DataError

References = list[str] | list[list[str]]  # one text, or several

# The tokenizers of BLEU that are not 13a: as sacreBLEU chooses them by language, and characters for
# other languages that put no blanks between words.
TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
TOKENIZERS |= dict.fromkeys(("th", "lo", "km", "my", "bo", "dz"), "char")
# Codes of Chinese and Japanese that are not keys of TOKENIZERS
CODES = dict.fromkeys(("cmn", "yue", "wuu", "lzh", "cn"), "zh") | {"jp": "ja"}
# Scripts without blanks between words, for text whose code says nothing: a language with the same
# tokens. The last are those of South East Asia, Tibet and the Yi.
SCRIPTS = {
    "ja": re.compile("[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f]"),
    "ko": re.compile("[\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb]"),
    "zh": re.compile(
        "[\u2e80-\u2fd5\u3005-\u3007\u3105-\u312f\u31a0-\u31bf\u3400-\u4dbf\u4e00-\u9fff"
        "\uf900-\ufaff\U00020000-\U000323af]"
    ),
    "th": re.compile(
        "[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u1980-\u19ff\u1a20-\u1aad"
        "\u1b00-\u1b7f\ua000-\ua4cf\ua980-\ua9fe\uaa60-\uaadf]"
    ),
}
# of the characters and of the words in other scripts, from which on a script is that of the text;
# Japanese has many characters of Chinese
LEAST_SHARE = 0.4
# What the Moses scripts leave: the reference's German quotes would otherwise match no output of
# straight quotes.
STRAIGHT_QUOTES = str.maketrans(dict.fromkeys("„“”«»", '"') | dict.fromkeys("‚‘’‹›", "'"))


def score(
    hypotheses: list[str],
    references: References,
    tgt_lang: str,
    kinds: Collection[str] = METRIC_KINDS,
) -> TaskScores:
    """Scores detokenised hypotheses against untouched references. Kinds that are not among `kinds`
    are None.

    `details` has for the kinds of BLEU precisions, brevity penalty, ratio of lengths, and tokens on
    both sides; `recomposed` says how many hypotheses and references were not in NFC.

    `references` holds one reference per line, or several such lists. `tgt_lang` is a language code
    such as de or zh-TW. Raises DataError where hypotheses and references differ in number, or there
    are none, ConfigError where the tokenizer of the language is not installed.
    """
    assert set(kinds) <= set(METRIC_KINDS), kinds
    untouched = _same_lines(hypotheses, references)
    texts = [list(map(composed, text)) for text in untouched]
    lang = _language_of(tgt_lang, texts[1:])
    metrics: dict[str, float | None] = dict.fromkeys(METRIC_KINDS)
    signatures: dict[str, str | None] = dict.fromkeys(METRIC_KINDS)
    details: dict[str, dict[str, Any] | None] = dict.fromkeys(METRIC_KINDS)
    for metric_name in kinds:
        if not kind_applies(metric_name, lang):
            continue
        metric, prepare, tokens = _metric_of(metric_name, lang)
        lines, *prepared = (list(map(prepare, text)) for text in texts)
        corpus_score: Any = metric.corpus_score(lines, prepared)
        metrics[metric_name] = corpus_score.score
        signatures[metric_name] = str(metric.get_signature()).replace("tok:none", tokens)
        if isinstance(metric, BLEU):
            counts = {
                "precisions": corpus_score.precisions,
                "brevity_penalty": corpus_score.bp,
                "length_ratio": corpus_score.ratio,
                "hypothesis_tokens": corpus_score.sys_len,
                "reference_tokens": corpus_score.ref_len,
            }
            if metric_name == "bleu_compound_split":
                # That of get_ende_bleu.sh, without straightened quotes
                bare, *others = (list(map(bare_compound_split, text)) for text in texts)
                counts["bare_script"] = _multi_bleu().corpus_score(bare, others).score
            details[metric_name] = counts
    changed = [
        sum(map(str.__ne__, text, in_nfc)) for text, in_nfc in zip(untouched, texts, strict=True)
    ]
    recomposed = {"hypotheses": changed[0], "references": sum(changed[1:])}
    return TaskScores(
        metrics,
        signatures["sacrebleu"] or "",
        signatures,
        len(hypotheses),
        details,
        recomposed if any(recomposed.values()) else None,
    )


def kind_applies(metric_name: str, tgt_lang: str) -> bool:
    """Returns whether a kind of score says anything about text in this language."""
    lang = _language_code(tgt_lang)
    if metric_name == "bleu_compound_split":
        return lang == "de"
    if metric_name.startswith("bleu_tokenized"):
        return lang not in TOKENIZERS and lang in _moses_languages()
    return metric_name != "ter" or TOKENIZERS.get(lang) != "char"


def check_tokenizer(tgt_lang: str, references: list[str]) -> None:
    """Raises ConfigError where BLEU needs a tokenizer for this text that is not installed."""
    _bleu(_language_of(tgt_lang, [references]))


def tokens_by_script(tgt_lang: str, signature: str) -> str:
    """Returns the tokenizer of a signature if the script of the text decided it; "" if the code of
    the language did.
    """
    tokens = re.search(r"tok:([\w-]+)", signature)
    by_code = TOKENIZERS.get(_language_code(tgt_lang), "13a")
    return tokens[1] if tokens and tokens[1] != by_code else ""


def _language_code(tgt_lang: str) -> str:
    """Returns zh for zh-TW, zh_CN, zho_Hans, and de for deu."""
    code = primary(tgt_lang)
    return CODES.get(code, code)


def _language_of(tgt_lang: str, references: list[list[str]]) -> str:
    """Returns the language that text is scored as: that of its code or, of an unknown code, one
    with its script.
    """
    lang = _language_code(tgt_lang)
    if lang in TOKENIZERS or lang in SHORT.values():
        return lang
    text = " ".join(line for stream in references for line in stream[:1000])
    for name, script in SCRIPTS.items():
        rest, characters = script.subn(" ", text)
        if characters > LEAST_SHARE * (characters + len(rest.split())):
            return name
    return lang


def _bleu(lang: str) -> BLEU:
    tokenizer = TOKENIZERS.get(lang, "13a")
    try:
        return BLEU(tokenize=tokenizer)
    except RuntimeError as error:  # Japanese and Korean need MeCab
        raise ConfigError(
            f"data.tgt_lang={lang}: BLEU needs sacreBLEU's tokenizer {tokenizer}: pip install "
            f"'sacrebleu[{lang}]'"
        ) from error


@dataclass(frozen=True)
class Output:
    """A system's output in one kind of score: `lines` (line, statistic), and the score of their
    sums over lines.
    """

    lines: np.ndarray
    score_of: Callable[[np.ndarray], float]

    @property
    def score(self) -> float:
        return self.score_of(self.lines.sum(0))


def output(
    hypotheses: list[str], references: References, tgt_lang: str, metric_name: str
) -> tuple[Output, str]:
    """Returns the output in one kind of score, and the signature of that kind. Raises as `score`
    does.
    """
    texts = [list(map(composed, text)) for text in _same_lines(hypotheses, references)]
    metric, prepare, tokens = _metric_of(metric_name, _language_of(tgt_lang, texts[1:]))
    lines, *prepared = (list(map(prepare, text)) for text in texts)
    statistics: Any = metric._extract_corpus_statistics(lines, prepared)
    signature = str(metric.get_signature()).replace("tok:none", tokens)
    score_of: Any = metric._compute_score_from_stats
    return Output(np.array(statistics, np.float64), lambda sums: score_of(sums).score), signature


def moses_tokenized(line: str, lang: str) -> str:
    """Normalises punctuation like Moses' script, then returns Moses tokens with spaces between
    them.
    """
    # The script sees the line's end, which its rule for a full stop before a closing quote needs.
    return _tokens(_moses(lang).normalizer.normalize(f"{line}\n"), lang)


def lowercased_tokens(line: str, lang: str) -> str:
    """Returns Moses tokens of lower-cased text, as the scripts were when the scores of Multi30k
    were published.
    """
    # Lower case comes first: Moses knows abbreviations by their case.
    moses = _moses(lang)
    return moses.tokenizer.tokenize(
        moses.old_normalizer.normalize(line.lower()), return_str=True, escape=False
    )


def compound_split(line: str) -> str:
    """Tokenises German text like the authors' script get_ende_bleu.sh, with quotes straightened in
    references as well.

    The script maps Unicode punctuation, tokenises, and cuts hyphenated words. It does not normalise
    punctuation as `moses_tokenized` does: that would also swap a comma and the quote before it,
    which raises the score.
    """
    return bare_compound_split(line.translate(STRAIGHT_QUOTES))


def bare_compound_split(line: str) -> str:
    """Tokenises like `compound_split`, with quotes as they are."""
    tokens = _tokens(_moses("de").normalizer.replace_unicode_punct(line), "de")
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokens)


def _tokens(text: str, lang: str) -> str:
    tokens = _moses(lang).tokenizer.tokenize(text, return_str=True, escape=False)
    # As tokenizer.perl: a full stop that ends the line is a token, after numbers and abbreviations
    # as well.
    return re.sub(r"(?<=[^\s.])\.$", " .", tokens)


def _metric_of(metric_name: str, lang: str) -> tuple[Metric, Callable[[str], str], str]:
    """Returns the metric, the function that prepares a line for it, and the name of its tokens in
    the signature.
    """
    match metric_name:
        case "sacrebleu":
            return _bleu(lang), str, ""
        case "bleu_tokenized":
            tokens = _moses_signature("|norm:moses|perl:f6d7ade", lang)
            return _multi_bleu(), partial(moses_tokenized, lang=lang), tokens
        case "bleu_tokenized_lc":
            tokens = _moses_signature("|norm:moses", lang)
            return _multi_bleu(lowercase=True), partial(lowercased_tokens, lang=lang), tokens
        case "bleu_compound_split":
            tokens = _moses_signature("-compound-split|perl:f6d7ade", lang)
            return _multi_bleu(), compound_split, tokens
        case "chrf":
            return CHRF(), str, ""
        case "ter":
            is_asian = lang in ("zh", "ja")
            return TER(normalized=is_asian, asian_support=is_asian), str, ""
    raise KeyError(metric_name)


def _multi_bleu(lowercase: bool = False) -> BLEU:
    """Returns a BLEU like multi-bleu.perl's, which published tokenised scores use: it neither
    tokenises nor smooths.
    """
    return BLEU(lowercase=lowercase, tokenize="none", smooth_method="none", force=True)


def _moses_signature(tokens: str, lang: str) -> str:
    return f"tok:moses-{lang}{tokens}|sacremoses:{_moses(lang).version}"


class _Moses(NamedTuple):
    normalizer: Any  # as the script is now, commit f6d7ade of mosesdecoder
    old_normalizer: Any
    tokenizer: Any
    version: str


@cache
def _moses_languages() -> frozenset[str]:
    from sacremoses.corpus import NonbreakingPrefixes

    return frozenset(NonbreakingPrefixes().available_langs.values())


@cache
def _moses(lang: str) -> _Moses:
    """Returns normaliser and tokenizer of a language, and sacremoses' version."""
    import sacremoses

    new, old = (
        sacremoses.MosesPunctNormalizer(lang=lang, perl_parity=parity) for parity in (True, False)
    )
    return _Moses(new, old, sacremoses.MosesTokenizer(lang=lang), sacremoses.__version__)


def _same_lines(hypotheses: list[str], references: References) -> list[list[str]]:
    """Returns hypotheses and references as lists, with one line per hypothesis each.

    Raises DataError unless the counts agree: sacreBLEU silently compares the lines of the shorter
    side.
    """
    is_one_text = not references or isinstance(references[0], str)
    streams: Any = [references] if is_one_text else references
    for number, stream in enumerate(streams, start=1):
        if len(stream) != len(hypotheses):
            raise DataError(
                f"{len(hypotheses)} hypotheses but {len(stream)} lines in reference {number} of "
                f"{len(streams)}: line N of both must belong together"
            )
    if not hypotheses:
        raise DataError("0 hypotheses and 0 references: nothing to score")
    return [list(text) for text in (hypotheses, *streams)]
