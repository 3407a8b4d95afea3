"""Names and codes of languages: of two and three letters (ISO 639), with or without a region or a
script; and which language a line is in, by the library py3langid where it is installed.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any

from aiayn.errors import ConfigError

# English names, codes and further codes of languages, for the names of columns and for people.
LANGUAGES = (
    "arabic=ar=ara bulgarian=bg=bul czech=cs=ces=cze danish=da=dan german=de=deu=ger "
    "greek=el=ell=gre english=en=eng spanish=es=spa estonian=et=est persian=fa=fas=per "
    "finnish=fi=fin french=fr=fra=fre hebrew=he=heb hindi=hi=hin croatian=hr=hrv "
    "hungarian=hu=hun indonesian=id=ind italian=it=ita japanese=ja=jpn korean=ko=kor "
    "lithuanian=lt=lit latvian=lv=lav dutch=nl=nld=dut norwegian=no=nor polish=pl=pol "
    "portuguese=pt=por romanian=ro=ron=rum russian=ru=rus slovak=sk=slk=slo slovenian=sl=slv "
    "serbian=sr=srp swedish=sv=swe turkish=tr=tur ukrainian=uk=ukr vietnamese=vi=vie "
    "chinese=zh=zho=chi"
)
# Further languages that scores know by their two letters.
OTHERS = (
    "as=asm bn=ben bo=bod=tib ca=cat dz=dzo ga=gle gu=guj is=isl=ice km=khm kn=kan lo=lao ml=mal "
    "mr=mar my=mya=bur or=ori pa=pan ta=tam te=tel th=tha"
)
_NAMED = [entry.split("=") for entry in LANGUAGES.split()]
LANGUAGE_CODES = {name: code for name, code, *_ in _NAMED}
_CODES = [codes for _, *codes in _NAMED] + [entry.split("=") for entry in OTHERS.split()]
SHORT = {other: code for code, *others in _CODES for other in others}
# Above this probability, and from so many letters on, the library was never wrong in 5,000 lines of
# five corpora.
SURE, FEWEST_LETTERS = 0.9, 20
# Compared only with the languages of the pair, a language of LANGUAGE_CODES shows in shorter lines:
# wrong for 3 of 13,322 lines of 15 corpora, and right for 77 % of the 1,000 shortest of Tatoeba.
FEWER_LETTERS = 8
# Languages that the library confuses with each other.
ALIKE = (("bs", "hr", "sh", "sr"), ("da", "nb", "nn", "no"), ("id", "ms"), ("wuu", "yue", "zh"))
# Scripts as in the names of characters; Serbian is written in two.
SCRIPT_NAMES = dict.fromkeys(LANGUAGE_CODES.values(), "LATIN") | {
    **{"bg": "CYRILLIC", "ru": "CYRILLIC", "uk": "CYRILLIC", "sr": "", "el": "GREEK"},
    **{"ar": "ARABIC", "fa": "ARABIC", "he": "HEBREW", "hi": "DEVANAGARI", "th": "THAI"},
    **{"zh": "CJK", "ja": "CJK HIRAGANA KATAKANA", "ko": "HANGUL"},
}
LEAST_IN_SCRIPT = 0.7  # of a line's letters that are in the script of its language
SEVERAL = "mul"  # the code of text in several languages
# Names the language to translate into, before a source.
TARGET_TAG = re.compile(r"<2([A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*)>(?!\S)")


def short_code(code: str) -> str:
    """Returns a code as others write it, too: de for DEU and ger, de-at for deu_AT, sr-latin for
    sr@latin.
    """
    first, dash, rest = re.sub("[_@]", "-", code.strip().casefold()).partition("-")
    return SHORT.get(first, first) + dash + rest


def primary(code: str) -> str:
    """Returns the language of a code alone: de for de-AT and for deu."""
    return short_code(code).partition("-")[0]


def best_match(code: str, langs: tuple[str, ...]) -> str | None:
    """Returns which of these languages a code stands for: itself, else the one that it is a variant
    of, else None.

    en-GB (or en_gb, or eng-GB) is en, but if en-GB itself is one of them, that one; en is the only
    one of its variants.
    """
    code, *names = map(short_code, (code, *langs))
    full = dict(zip(names, langs, strict=True))
    wider = [name for name in full if f"{code}-".startswith(f"{name}-")]
    narrower = [name for name in full if name.startswith(f"{code}-")]
    return full[max(wider, key=len)] if wider else full[narrower[0]] if len(narrower) == 1 else None


def target_language(sources: Iterable[str], tgt_lang: str) -> str:
    """Returns the language that sources are translated into: that of the tag `<2fr>` before them,
    else `tgt_lang`.

    `SEVERAL` if they differ.
    """
    tags = {
        tag[1] if (tag := TARGET_TAG.match(source)) else tgt_lang
        for source in sources
        if source.strip()
    }
    return tgt_lang if not tags else tags.pop() if len(set(map(short_code, tags))) == 1 else SEVERAL


def tags_of_targets(symbols: Iterable[str], tgt_lang: str) -> dict[str, str]:
    """Returns the languages that a model translates into, each with the tag that its texts begin
    with; "" for none.

    The first is `tgt_lang`; `symbols` are those of the run.
    """
    return {tgt_lang: ""} | {tag[1]: tag[0] for tag in map(TARGET_TAG.fullmatch, symbols) if tag}


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # pyright: ignore[reportMissingImports]

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def language_judge(langs: tuple[str, str]) -> Callable[[str], str] | None:
    """Returns a function that gives which of two languages a line is clearly in, as its primary
    code; "" if it is in neither or not clear.

    Languages of different scripts are told apart by their letters, others by the library. Returns
    None if that is not installed or if it does not tell the two apart.
    """
    src, tgt = map(primary, langs)
    scripts = {lang: set(SCRIPT_NAMES.get(lang, "").split()) for lang in (src, tgt)}
    if all(scripts.values()) and scripts[src].isdisjoint(scripts[tgt]):

        def by_script(line: str) -> str:
            names = [
                unicodedata.name(char, "").partition(" ")[0] for char in line if char.isalpha()
            ]
            for lang, known in scripts.items():
                if sum(name in known for name in names) > LEAST_IN_SCRIPT * len(names):
                    return lang
            return ""

        return by_script
    if src == tgt or any({src, tgt} <= set(group) for group in ALIKE):
        return None
    with suppress(ImportError):
        identifier = _identifier()
        if {src, tgt} <= set(identifier.labels):
            return lambda line: _identified(identifier, line)
    return None


def _identified(identifier: Any, line: str) -> str:
    """Returns the language of a line; "" if it is short or the library is not sure."""
    if sum(map(str.isalpha, line)) < FEWEST_LETTERS:
        return ""
    name, probability = identifier.classify(line)
    return name if probability > SURE else ""


def _third_language(identifier: Any, line: str, known: set[str]) -> str:
    """Returns the language of a line if it is one of LANGUAGE_CODES rather than a known one; "" if
    it is very short or not clear.
    """
    if sum(map(str.isalpha, line)) < FEWER_LETTERS:
        return ""
    likely = dict(identifier.rank(line))
    name = max(likely.keys() & SCRIPT_NAMES.keys() - known, key=likely.__getitem__, default="")
    among = sum(likely[lang] for lang in known)
    return name if name and likely[name] > SURE * (likely[name] + among) else ""


def wrong_languages(langs: tuple[str, str]) -> Callable[[str, str], str]:
    """Returns a function that gives the languages of a pair, such as fr-es, if they are wrong; else
    "".

    A side that is very short, or in a language that the library is not sure of, counts as right.
    Raises ConfigError if the library is not installed.
    """
    try:
        identifier = _identifier()
    except ImportError as error:
        raise ConfigError(
            "data.drop_wrong_language=true: py3langid is not installed: pip install 'aiayn[text]'"
        ) from error
    alike = [
        next((set(group) for group in ALIKE if lang in group), {lang})
        for lang in map(primary, langs)
    ]
    known = [group & set(identifier.labels) for group in alike]

    def languages(src: str, tgt: str) -> str:
        names = []
        for line, of_side in zip((src, tgt), known, strict=True):
            name = _identified(identifier, line) if of_side else ""
            if all(known) and not name:
                name = _third_language(identifier, line, known[0] | known[1])
            names.append(name)
        is_wrong = any(name and name not in group for name, group in zip(names, alike, strict=True))
        return "-".join(name or "?" for name in names) if is_wrong else ""

    return languages
