"""A translator with a tiny model, and servers of it in processes of their own."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch
from applications import small_model
from faults.harness import Child, End, wait_until

from aiayn.apps.server.options import ServeOptions
from aiayn.apps.server.serve import serve
from aiayn.apps.server.service import Served, Service
from aiayn.config.search import SearchConfig
from aiayn.data.tokenizer import Tokenizer
from aiayn.model.transformer import Transformer
from aiayn.search.translator import Translator

SEARCH = SearchConfig(
    beam_size=3, length_penalty=0.6, penalty="gnmt", max_extra_tokens=4, batch_tokens=200
)


@pytest.fixture(scope="session")
def translator() -> Translator:
    """Translates nonsense, but different nonsense for different lines."""
    tokenizer = Tokenizer.train(
        [["the old house of the man sees two cats", "das alte Haus des Mannes sieht"]], 280
    )
    torch.manual_seed(3)
    model = Transformer(small_model(), tokenizer.vocab_size).eval()
    with torch.no_grad():
        model.embedding.weight.mul_(3)
    return Translator(model, tokenizer, SEARCH, "cpu", languages=("en", "de"))


class Server:
    """A server in a forked process, and its address."""

    def __init__(self, load: Callable[[], Served], options: ServeOptions, log: Path):
        def work() -> None:
            sys.stdout = sys.stderr
            serve(Service(load), "tiny", options)

        self.child = Child(work, log)
        self.log = log
        wait_until(lambda: "serving" in log.read_text())
        self.address = re.search(r"http://\S+", log.read_text())[0]
        self.port = int(self.address.rpartition(":")[2])

    def end(self, number: int = signal.SIGTERM) -> End:
        self.child.send(number)
        return self.child.wait()


@contextmanager
def serving(
    served: Translator | Callable[[], Served], log: Path, keys: Sequence[str] = (), **options
) -> Iterator[Server]:
    """A server of a translator, or of what a function loads. Ends with the context, unless the test
    has ended it.
    """
    load = (lambda: Served(served, list(keys))) if isinstance(served, Translator) else served
    server = Server(load, ServeOptions(port=0, **options), log)
    try:
        yield server
    finally:
        with suppress(ChildProcessError):
            if os.waitpid(server.child.pid, os.WNOHANG)[0] == 0:
                server.end()


@pytest.fixture(scope="module")
def server(translator, tmp_path_factory) -> Iterator[Server]:
    """One for all tests of a module."""
    with serving(translator, tmp_path_factory.mktemp("server") / "log", access_log=True) as server:
        yield server


@pytest.fixture(scope="session")
def best(translator) -> Callable[[str], str]:
    """What `aiayn translate` answers for a line by itself."""
    return lambda line: translator.translate([line])[0]
