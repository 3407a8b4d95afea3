"""SIGHUP: another model and other keys, while requests in flight are answered."""

import http.client
import json
import os
import pty
import signal
import socket
import sys

import pytest
from apps.server.conftest import serving
from faults.harness import wait_until

from aiayn.apps.server.service import Served
from aiayn.errors import RefusedError
from aiayn.search.translations import Translation


class Says:
    """A translator that answers with a word; the first one waits for a byte before it does."""

    def __init__(self, translator, word: str, wait: int | None = None):
        self.word, self.wait = word, wait
        self.languages, self.search, self.longest_source = ("en", "de"), translator.search, None
        self.source_ids, self.tokenizer = translator.source_ids, translator.tokenizer

    def n_best(self, lines: list[str], n: int) -> list[list[Translation]]:
        if self.wait is not None:
            os.read(self.wait, 1)
        return [[Translation(f"{self.word} {line}")] * n for line in lines]


def ask(port: int, q: str, key: str = "") -> tuple[int, str | None]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=400)
    body = json.dumps({"q": q, "source": "en", "target": "de", "api_key": key})
    connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read()).get("translatedText")


def test_a_reload_changes_model_and_keys_and_requests_in_flight_are_answered_by_the_model_before(
    translator, tmp_path
):
    wait, release = os.pipe()
    loads = iter(
        [
            Served(Says(translator, "old", wait), ["one"], "A"),
            Served(Says(translator, "new"), ["two"], "B"),
        ]
    )
    log = tmp_path / "log"

    with (
        serving(lambda: next(loads), log) as server,
        socket.create_connection(("127.0.0.1", server.port)) as asked,
    ):
        body = json.dumps({"q": "a\nb", "source": "en", "target": "de", "api_key": "one"})
        head = (
            "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
            "application/json\r\nConnection: close\r\n"
        )
        asked.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        wait_until(
            lambda: (
                b'path="/health"'
                in page(server.port, "/health") + page(server.port, "/metrics", "one")
            )
        )
        server.child.send(signal.SIGHUP)
        wait_until(lambda: "reloaded: B" in log.read_text())
        assert ask(server.port, "the", "one")[0] == 403
        os.write(release, b"xx")
        answer = asked.makefile("rb").read()
        assert ask(server.port, "the", "two") == (200, "new the")

    assert answer.endswith(b'{"translatedText":"old a\\nold b"}')
    assert "serving A (en to de); API keys: 1" in log.read_text()


def page(port: int, path: str, key: str = "") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=400)
    connection.request("GET", path, headers={"Authorization": f"Bearer {key}"})
    return connection.getresponse().read()


def test_a_reload_of_other_languages_is_refused(translator, tmp_path):
    log, other = tmp_path / "log", Says(translator, "new")
    other.languages = ("en", "fr")
    loads = iter([Served(translator, source="A"), Served(other, source="B")])
    with serving(lambda: next(loads), log) as server:
        server.child.send(signal.SIGHUP)
        wait_until(
            lambda: "B translates en to fr, but this server translates en to de" in log.read_text()
        )
        assert ask(server.port, "the")[0] == 200


@pytest.mark.parametrize("error", [RefusedError("the run is gone"), ValueError("a bug")])
def test_a_reload_that_fails_says_so_and_leaves_what_is_served(translator, tmp_path, error):
    log, first = tmp_path / "log", [Served(translator)]

    def load() -> Served:
        if first:
            return first.pop()
        raise error

    with serving(load, log) as server:
        server.child.send(signal.SIGHUP)
        wait_until(lambda: "reload failed" in log.read_text() and str(error) in log.read_text())
        assert ask(server.port, "the")[0] == 200
        assert b"aiayn_failed_loads 1.0" in page(server.port, "/metrics")
    assert "Traceback" not in log.read_text()


def test_a_server_whose_terminal_is_closed_ends(translator, tmp_path):
    log = tmp_path / "log"
    terminal, inside = pty.openpty()

    def on_terminal() -> Served:
        """The server's own process becomes what a shell starts on this terminal."""
        if os.getsid(0) != os.getpid():
            os.setsid()
            os.dup2(os.open(os.ttyname(inside), os.O_RDWR), 0)
            os.close(terminal)
            sys.stdin = os.fdopen(0)
        return Served(translator)

    with serving(on_terminal, log) as server:
        server.child.send(signal.SIGHUP)
        wait_until(lambda: "reloaded" in log.read_text())  # as long as the terminal is there
        os.close(inside)
        os.close(terminal)
        end = server.child.wait()

    assert end.code == -signal.SIGTERM
