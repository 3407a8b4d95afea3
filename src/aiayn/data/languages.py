"""Languages of columns of text: by the names that people write over them, and by their most frequent words."""

import re
from collections.abc import Iterable

# By code (ISO 639-1): in English and in the language itself.
NAMES = {
    "ar": ("arabic", "العربية"),
    "bg": ("bulgarian", "български"),
    "ca": ("catalan", "català"),
    "cs": ("czech", "čeština"),
    "da": ("danish", "dansk"),
    "de": ("german", "deutsch"),
    "el": ("greek", "ελληνικά"),
    "en": ("english",),
    "es": ("spanish", "español"),
    "et": ("estonian", "eesti"),
    "fa": ("persian", "فارسی"),
    "fi": ("finnish", "suomi"),
    "fr": ("french", "français"),
    "ga": ("irish", "gaeilge"),
    "he": ("hebrew", "עברית"),
    "hi": ("hindi", "हिन्दी"),
    "hr": ("croatian", "hrvatski"),
    "hu": ("hungarian", "magyar"),
    "id": ("indonesian", "bahasa indonesia"),
    "is": ("icelandic", "íslenska"),
    "it": ("italian", "italiano"),
    "ja": ("japanese", "日本語"),
    "ko": ("korean", "한국어"),
    "lt": ("lithuanian", "lietuvių"),
    "lv": ("latvian", "latviešu"),
    "mt": ("maltese", "malti"),
    "nl": ("dutch", "nederlands"),
    "no": ("norwegian", "norsk"),
    "pl": ("polish", "polski"),
    "pt": ("portuguese", "português"),
    "ro": ("romanian", "română"),
    "ru": ("russian", "русский"),
    "sk": ("slovak", "slovenčina"),
    "sl": ("slovenian", "slovenščina"),
    "sr": ("serbian", "српски"),
    "sv": ("swedish", "svenska"),
    "tr": ("turkish", "türkçe"),
    "uk": ("ukrainian", "українська"),
    "vi": ("vietnamese", "tiếng việt"),
    "zh": ("chinese", "中文"),
}
# Names of other columns that a header line may have.
SIDES = {"src": ("source", "src"), "tgt": ("target", "tgt", "translation")}
OTHERS = {"", "id", "nr", "no.", "text", "score", "key", "comment", "note", "domain", "context", "date", "index"}
# Frequent words by language code: enough to see that two columns are exchanged.
FREQUENT = {
    "cs": "a je na se že v jsem to jsou si ale jak který není pro",
    "da": "og det at en den til er som på de med han af for ikke der var jeg",
    "de": "der die das und ist nicht ein eine zu den mit von auf für sie ich es wird oder werden",
    "en": "the of and to is in that it you for with on are this be not was have or a",
    "es": "de la que el en y a los se del las un por con no una su para es lo",
    "fr": "de la le et les des en un du une que est pour qui dans à il au ce pas",
    "it": "di e il la che è per un in non sono del una si con le da della",
    "nl": "de van het een en in is dat op te zijn met voor niet aan er die",
    "pl": "w i na z się nie to że do jest a jak o są po",
    "pt": "de a o que e do da em um para é com não uma os no se na",
    "ru": "и в не на что я с он а это как по но они к у из за",
    "sv": "och i att det som en på är av för med den till inte om ett jag",
}


def normal_code(name: str) -> str:
    """Returns a language code in lower case with hyphens: pt_BR is pt-br."""
    return name.strip().casefold().replace("_", "-")


def best_match(code: str, langs: tuple[str, ...]) -> str | None:
    """Returns which of these languages a code stands for: itself, else the one that it is a variant of, else None.

    en-GB is en, but if en-GB itself is one of them, that one.
    """
    code, own = normal_code(code), {normal_code(lang): lang for lang in langs}
    variants = [lang for lang in own if code.startswith(f"{lang}-")]
    return own.get(code) or own.get(max(variants, key=len, default=""))


def header_columns(fields: list[str], src_lang: str, tgt_lang: str) -> tuple[int, int] | None:
    """Returns the columns of source and target, from 0, if these fields are names of columns; None for text.

    Case, quotation marks and blanks do not matter, and English, German, source and target are names, too. Raises
    ValueError for names that do not say which column is which.
    """
    names = [field.strip().strip("\"'").strip().casefold().replace("_", "-") for field in fields]
    langs = (src_lang, tgt_lang)
    sides: list[str | None] = []
    for name in names:
        code = next((code for code, spelled in NAMES.items() if name in spelled), name)
        side = dict(zip(langs, ("src", "tgt"), strict=True)).get(best_match(code, langs) or "")
        sides.append(side or next((side for side, words in SIDES.items() if name in words), None))
    if sides.count("src") == sides.count("tgt") == 1:
        return sides.index("src"), sides.index("tgt")
    known = {*NAMES, *OTHERS, *(word for words in (*NAMES.values(), *SIDES.values()) for word in words)}
    if any(name and name not in OTHERS for name in names) and all(
        name in known or name.split("-")[0] in NAMES or side for name, side in zip(names, sides, strict=True)
    ):
        raise ValueError(f"the first line seems to name columns, but not one {src_lang} and one {tgt_lang}")
    return None


def seem_swapped(pairs: Iterable[tuple[str, str]], src_lang: str, tgt_lang: str) -> bool:
    """Whether sources are clearly in the target's language and targets in the source's, by frequent words of both.

    False for languages without a list, and for text with few such words.
    """
    src, tgt = (frozenset(FREQUENT.get(normal_code(lang).split("-")[0], "").split()) for lang in (src_lang, tgt_lang))
    only_src, only_tgt = src - tgt, tgt - src
    own, other = [0, 0], [0, 0]
    for pair in pairs:
        for side, (mine, others) in enumerate(((only_src, only_tgt), (only_tgt, only_src))):
            words = re.findall(r"\w+", pair[side].casefold())
            own[side] += sum(word in mine for word in words)
            other[side] += sum(word in others for word in words)
    return all(other[side] >= 3 + 4 * own[side] for side in (0, 1))
