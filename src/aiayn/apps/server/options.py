"""Options of `aiayn serve`: names, defaults, help and rules; the file of API keys. Imports nothing
slow.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from aiayn.config.rules import flag, require
from aiayn.errors import ConfigError


@dataclass(kw_only=True, frozen=True)
class ServeOptions:
    """What `aiayn serve` takes besides the model."""

    port: int = flag(8000, "Port to listen on; 0: any free port.", min=0, max=65_535)
    host: str = flag("127.0.0.1", "Address to listen on.")
    allow_host: list[str] = flag(
        list, "A host name that clients use; may be repeated.", metavar="NAME"
    )
    allow_origin: list[str] = flag(
        list, "Origin of web pages that may use the server; may be repeated.", metavar="URL"
    )
    api_key_file: Path | None = flag(
        None, "Accepted API keys, one per line; # begins a comment line.", metavar="FILE"
    )
    access_log: bool = flag(False, "Log a line per request to standard error, without text.")
    max_body: int = flag(1_000_000, "Largest request, in bytes.", min=1)
    max_line: int = flag(500, "Longest line, in subwords.", min=1)
    max_waiting: int = flag(1000, "Largest number of waiting lines, over all requests.", min=1)
    max_connections: int = flag(500, "Largest number of open connections; more are refused.", min=1)
    time_limit: float = flag(60.0, "Seconds that a request may take.")

    def __post_init__(self) -> None:
        require(
            0 < self.time_limit < math.inf,
            f"--time-limit {self.time_limit}: must be above 0 and finite",
        )
        require(
            self.host not in ("0.0.0.0", "::", "") or bool(self.allow_host),
            f"--host {self.host} listens on every address: add --allow-host with each name or "
            "address that clients use",
        )
        for name in self.allow_host:
            rest = name[2:] if name.startswith("*.") else name
            require(
                name == "*" or (bool(rest) and "*" not in rest),
                f"--allow-host {name}: must be a name such as translate.example.org or "
                "*.example.org, or *",
            )


def read_keys(path: Path) -> list[str]:
    """Returns the keys in a file: one per line, without the blanks around it.

    Blank lines and lines that begin with # are skipped. Raises ConfigError for a file that cannot
    be read or has none.
    """
    try:
        text = path.read_text("utf-8-sig")  # some editors begin a file with a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"--api-key-file {path}: cannot be read ({reason})") from error
    lines = [line.strip() for line in text.split("\n")]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ConfigError(f"--api-key-file {path}: contains no key; write one key per line")
    for number, line in enumerate(lines, 1):
        require(
            (line.isascii() and line.isprintable()) or line.startswith("#"),
            f"--api-key-file {path}: line {number}: a key must be printable ASCII; choose another",
        )
    return keys
