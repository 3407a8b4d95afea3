"""API keys: read from a file, compared in constant time."""

import hmac
from pathlib import Path

from aiayn.errors import ConfigError


def read_keys(path: Path) -> list[str]:
    """Returns the keys in a file: one per line, without the blanks around it.

    Blank lines and lines that begin with # are no keys. Raises ConfigError for a file that cannot be read or has none.
    """
    try:
        text = path.read_text("utf-8-sig")  # some editors begin a file with a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key-file {path}: cannot be read ({error})") from error
    lines = [line.strip() for line in text.split("\n")]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ConfigError(f"--api-key-file {path}: there is no key in it; write one per line")
    return keys


def is_known(key: str, keys: list[str]) -> bool:
    """True if the key is one of these. Compares in constant time."""
    given = key.encode("utf-8", "surrogatepass")
    return sum(hmac.compare_digest(given, known.encode()) for known in keys) > 0
