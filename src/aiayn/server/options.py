"""Options of `aiayn serve`: names, defaults, help and rules. Imports nothing slow."""

import math
from dataclasses import dataclass, field
from pathlib import Path

from aiayn.config.rules import require


@dataclass(kw_only=True, frozen=True)
class ServeOptions:
    """What `aiayn serve` takes besides the model."""

    port: int = field(default=8000, metadata={"help": "0: any free one."})
    host: str = field(default="127.0.0.1", metadata={"help": "Address to listen on."})
    allow_host: list[str] = field(
        default_factory=list,
        metadata={"help": "A name that clients call the server by; may be repeated.", "metavar": "NAME"},
    )
    allow_origin: list[str] = field(
        default_factory=list,
        metadata={"help": "A web page that may use the server; may be repeated.", "metavar": "URL"},
    )
    api_key_file: Path | None = field(
        default=None,
        metadata={"help": "Accepted API keys, one per line; lines with # are comments.", "metavar": "FILE"},
    )
    access_log: bool = field(
        default=False, metadata={"help": "Log a line per request to standard error, without text."}
    )
    max_body: int = field(default=1_000_000, metadata={"help": "Bytes of a request."})
    max_line: int = field(default=500, metadata={"help": "Subwords of a line."})
    max_waiting: int = field(default=1000, metadata={"help": "Lines of all requests that wait."})
    max_connections: int = field(default=500, metadata={"help": "Open connections; further ones are refused."})
    time_limit: float = field(default=60.0, metadata={"help": "Seconds that a request may take."})

    def __post_init__(self) -> None:
        require(0 <= self.port < 2**16, f"--port {self.port}: must be at least 0 and below 65536")
        for name in ("max_body", "max_line", "max_waiting", "max_connections"):
            value = getattr(self, name)
            require(value >= 1, f"--{name.replace('_', '-')} {value}: must be at least 1")
        require(0 < self.time_limit < math.inf, f"--time-limit {self.time_limit}: must be above 0 and finite")
        require(
            self.host not in ("0.0.0.0", "::", "") or bool(self.allow_host),
            f"--host {self.host} listens on every address: add --allow-host with each name or address that clients use",
        )
        for name in self.allow_host:
            rest = name[2:] if name.startswith("*.") else name
            require(
                name == "*" or (bool(rest) and "*" not in rest),
                f"--allow-host {name}: must be a name such as translate.example.org or *.example.org, or *",
            )
