"""Names of languages, as people write them over columns of text."""

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
# What else a first line of names may hold.
SIDES = {"src": ("source", "src"), "tgt": ("target", "tgt", "translation")}
OTHERS = {"", "id", "nr", "no.", "text", "score", "key", "comment", "note", "domain", "context", "date", "index"}


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
