"""The model and the API keys that requests use, and how both are replaced while the server runs."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from aiayn.errors import RefusedError, UserError
from aiayn.search.line_translator import LineTranslator

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Served:
    """A model and API keys, one of which a request must have. Without keys, the server is open to
    everybody.
    """

    translator: LineTranslator
    api_keys: list[str] = field(default_factory=list)
    source: str = ""  # the checkpoint's file
    engine: str = ""  # which it is, and why

    def describe(self) -> str:
        keys = (
            f"API keys: {len(self.api_keys)}"
            if self.api_keys
            else "no API keys: open to whoever reaches this address"
        )
        engine = f"; {' '.join(self.engine.split())}" if self.engine else ""
        return f"{self.source} ({' to '.join(self.translator.languages)}); {keys}{engine}"


class Service:
    """Holds the current model and keys. A request takes them at its beginning and keeps them to its
    end.
    """

    def __init__(self, load: Callable[[], Served]):
        """Loads at once, and again for each `reload`. Raises what `load` raises."""
        self._load = load
        self._loading = threading.Lock()
        self.served = load()
        self.loads, self.failures = 1, 0

    def reload(self) -> None:
        """Loads model and keys again, and keeps the old ones if that fails. Meanwhile both models
        are in memory.
        """
        with self._loading:
            try:
                loaded, languages = self._load(), self.served.translator.languages
                if loaded.translator.languages != languages:
                    raise RefusedError(
                        f"{loaded.source} translates {' to '.join(loaded.translator.languages)}, "
                        f"but this server translates {' to '.join(languages)}: start another "
                        "server for it"
                    )
                self.served = loaded
            except Exception as error:
                self.failures += 1
                name = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
                log.error("reload failed, still serving the previous model: %s%s", name, error)
            else:
                self.loads += 1
                log.info("reloaded: %s", self.served.describe())
