"""Clients that say nothing, or do not listen: they keep nobody out, and are not kept for ever."""

import http.client
import json
import os
import re
import socket
from contextlib import ExitStack

import pytest
from faults.harness import wait_until
from server.conftest import Server, serving

from aiayn.server import serve as module

CONNECTIONS = 5


@pytest.fixture(scope="module")
def small(translator, tmp_path_factory):
    """A server with few connections, and a time limit that no test waits for."""
    with serving(translator, tmp_path_factory.mktemp("small") / "log", max_connections=CONNECTIONS) as server:
        yield server


def silent(server: Server, sends: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.settimeout(400)
    connection.sendall(sends)
    return connection


def translated(server: Server, q: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=400)
    body = json.dumps({"q": q, "source": "en", "target": "de"})
    connection.request("POST", "/translate", body, {"Content-Type": "application/json", "Connection": "close"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())["translatedText"]


def metrics(server: Server) -> dict[str, float]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=400)
    connection.request("GET", "/metrics", headers={"Connection": "close"})
    text = connection.getresponse().read().decode()
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", text, re.MULTILINE)}


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        connection.settimeout(400)


@pytest.mark.parametrize(
    "sends",
    [b"", b"GET / HT", b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nq="],
    ids=["nothing", "half a head", "half a body"],
)
def test_more_silent_connections_than_are_allowed_keep_nobody_out(small, best, sends):
    with ExitStack() as stack:
        held = [stack.enter_context(silent(small, sends)) for _ in range(4 * CONNECTIONS)]

        assert translated(small, "two cats") == (200, best("two cats"))
        wait_until(lambda: sum(map(is_closed, held)) >= 3 * CONNECTIONS)
        assert [is_closed(one) for one in held[-2:]] == [False, False]  # the newest stay


@pytest.mark.parametrize(
    "sends", [b"", b"GET / HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"]
)
def test_a_silent_connection_is_closed_when_its_time_is_over(translator, tmp_path, sends):
    with serving(translator, tmp_path / "log", time_limit=0.2) as server, silent(server, sends) as connection:
        answer = b"".join(iter(lambda: connection.recv(1000), b""))  # until it is closed

    assert answer.startswith(b"HTTP/1.1 200") == sends.startswith(b"GET /health")


@pytest.mark.parametrize("requests", [1, 30])
def test_a_client_that_does_not_read_is_dropped_when_its_time_is_over(translator, tmp_path, monkeypatch, requests):
    plain = module.listen

    def with_small_buffers(*address):
        listener = plain(*address)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
        return listener

    monkeypatch.setattr(module, "listen", with_small_buffers)
    with serving(translator, tmp_path / "log", time_limit=0.2) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * requests)
        wait_until(lambda: metrics(server)["aiayn_closed_connections_total"] == 1)


BODY = json.dumps({"q": "the man", "source": "en", "target": "de"})
HEAD = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}"


def waiting(translator, monkeypatch) -> tuple[int, int]:
    """Lets every search write a byte to the first pipe as it starts, and wait for one in the second."""
    (started, start), (wait, release), n_best = os.pipe(), os.pipe(), translator.n_best

    def slow(lines, n):
        os.write(start, b"x")
        os.read(wait, 1)
        return n_best(lines, n)

    monkeypatch.setattr(translator, "n_best", slow)
    return started, release


def test_where_as_many_requests_are_at_work_as_are_allowed_a_further_one_is_refused_in_words(
    translator, tmp_path, monkeypatch
):
    started, release = waiting(translator, monkeypatch)
    with (
        serving(translator, tmp_path / "log", max_connections=1) as server,
        silent(server, f"{HEAD}\r\n\r\n{BODY}".encode()) as working,
    ):
        os.read(started, 1)
        with silent(server, f"{HEAD}\r\nConnection: close\r\n\r\n{BODY}".encode()) as refused:
            answer = refused.makefile("rb").read()
        os.write(release, b"x")
        assert working.recv(12) == b"HTTP/1.1 200"

    assert answer.startswith(b"HTTP/1.1 503")
    assert answer.endswith(b'{"error":"too many requests are at work; send this again later"}')


def test_a_request_at_work_is_not_closed_to_make_room(translator, tmp_path, monkeypatch):
    started, release = waiting(translator, monkeypatch)
    with ExitStack() as stack:
        server = stack.enter_context(serving(translator, tmp_path / "log", max_connections=3))
        working = stack.enter_context(silent(server, f"{HEAD}\r\n\r\n{BODY}".encode()))
        os.read(started, 1)
        held = [stack.enter_context(silent(server)) for _ in range(9)]
        wait_until(lambda: sum(map(is_closed, held)) >= 6)
        os.write(release, b"x")
        assert working.recv(12) == b"HTTP/1.1 200"


def test_a_body_longer_than_any_is_refused_before_it_is_sent(server):
    for length in (1_000_001, 10**19, 10**20, 10**400):
        head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
        with silent(server, head.encode()) as connection:
            assert connection.recv(12) in (b"HTTP/1.1 413", b"HTTP/1.1 400")


def test_closed_connections_are_counted(small):
    with ExitStack() as stack:
        for _ in range(3 * CONNECTIONS):
            stack.enter_context(silent(small))
        wait_until(lambda: 1 <= metrics(small)["aiayn_connections"] <= CONNECTIONS + 1)
        assert metrics(small)["aiayn_closed_connections_total"] >= 2 * CONNECTIONS
