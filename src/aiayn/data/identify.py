"""Which language a line is in, by the library py3langid where it is installed."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from aiayn.data.languages import primary
from aiayn.errors import ConfigError

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier  # pyright: ignore[reportMissingImports]

# From which on a line's language is said: no error in 5,000 lines of five corpora
SURE, FEWEST_LETTERS = (
    0.9,
    20,
)
# What an identifier of languages takes for each other.
ALIKE = (("bs", "hr", "sh", "sr"), ("da", "nb", "nn", "no"), ("id", "ms"), ("wuu", "yue", "zh"))


@cache
def _identifier() -> "LanguageIdentifier":
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # pyright: ignore[reportMissingImports]

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def wrong_languages(langs: tuple[str, str]) -> Callable[[str, str], str]:
    """Returns a function that gives the languages of a pair, such as fr-es, if they are wrong; else
    "".

    A side that is short, or in a language that the library is not sure of, counts as right. Raises
    ConfigError if the library is not installed.
    """
    try:
        identifier = _identifier()
    except ImportError as error:
        raise ConfigError(
            "data.drop_wrong_language=true: pip install 'aiayn[text]' (py3langid) first"
        ) from error
    alike = [
        next((group for group in ALIKE if lang in group), (lang,)) for lang in map(primary, langs)
    ]
    known = [not set(group).isdisjoint(identifier.labels) for group in alike]

    def language(line: str) -> str:
        if sum(map(str.isalpha, line)) < FEWEST_LETTERS:
            return ""
        name, probability = identifier.classify(line)
        return name if probability > SURE else ""

    def languages(src: str, tgt: str) -> str:
        names = [
            language(line) if is_known else ""
            for line, is_known in zip((src, tgt), known, strict=True)
        ]
        is_wrong = any(name and name not in group for name, group in zip(names, alike, strict=True))
        return "-".join(name or "?" for name in names) if is_wrong else ""

    return languages
