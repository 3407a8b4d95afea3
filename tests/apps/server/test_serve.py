"""The running server: public clients, clients that misbehave, and signals."""

import http.client
import json
import logging
import os
import random
import re
import runpy
import signal
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from applications import ROOT, run_application, write_run
from apps.server.conftest import serving
from faults.harness import wait_until
from libretranslatepy import LibreTranslateAPI

from aiayn.apps.documents.texts import split_paragraph
from aiayn.apps.server import connection
from aiayn.apps.server import serve as module
from aiayn.apps.server.options import ServeOptions, read_keys
from aiayn.apps.server.serve import SeldomAndShort, listen
from aiayn.data.placeholders import has_letters
from aiayn.errors import ConfigError
from aiayn.search.translator import Translator

HEAD = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def ask(port: int, q: str) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=400)
    body = json.dumps({"q": q, "source": "en", "target": "de"})
    connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_libretranslates_own_python_client_works(server, best):
    api = LibreTranslateAPI(server.address)

    assert api.translate("the old house", "en", "de") == best("the old house")
    assert api.translate("é 猫\ntwo cats", "auto", "de") == f"{best('é 猫')}\n{best('two cats')}"
    assert [language["code"] for language in api.languages()] == ["en", "de"]


@pytest.mark.parametrize(
    ("proxied", "scheme", "address"),
    [
        ({}, "http", "127.0.0.1"),
        (
            {"X-Forwarded-Proto": "https", "X-Forwarded-For": "8.8.8.8, 9.9.9.9"},
            "https",
            "9.9.9.9",
        ),
    ],
)
def test_the_documented_proxy_passes_on_the_scheme_and_the_address_of_a_client(
    server, proxied, scheme, address
):
    fields = {"source": "en", "target": "de", 'file"; filename="a.txt': "the house"}
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'
        for name, text in fields.items()
    ]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=400)
    headers = {"Host": "localhost", "Content-Type": "multipart/form-data; boundary=x"} | proxied
    connection.request("POST", "/translate_file", f"{''.join(parts)}--x--\r\n", headers)
    file = json.loads(connection.getresponse().read())["translatedFileUrl"]
    assert file.startswith(f"{scheme}://localhost/download_file/")
    logged = f"client={address} method=POST path=/translate_file status=200"
    wait_until(lambda: logged in server.log.read_text())
    page = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    assert "proxy_set_header X-Forwarded-Proto $scheme;" in page
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in page


def test_a_request_with_two_lengths_is_refused_and_what_follows_it_is_not_answered(server):
    lengths = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=400) as client:
        client.sendall(
            f"{HEAD}{lengths}GET /languages HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        answer = client.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.endswith(b'"send Content-Length or Transfer-Encoding, not both"}')


def test_every_answer_forbids_scripts_of_other_places(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=400)
    for path in ("/", "/page.js", "/nothing"):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy


def test_clients_that_misbehave_do_not_disturb_others(server, best):
    body = json.dumps({"q": "the old house", "source": "en", "target": "de"})
    rude = [
        (HEAD + "Content-Length: 10000000\r\n\r\n" + "x" * 2_000_000),  # more than is accepted
        (HEAD + f"Content-Length: {len(body)}\r\n\r\n" + body),  # gone before the answer
        (HEAD + "Content-Length: 99999\r\n\r\n" + body[:7]),  # gone in the middle
        "\0\r\n" * 9,
    ]
    for text in rude:
        with (
            socket.create_connection(("127.0.0.1", server.port)) as connection,
            suppress(ConnectionError),
        ):
            connection.sendall(text.encode())
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall((HEAD + f"Content-Length: {len(body)}\r\n\r\n" + body[:7]).encode())
        assert ask(server.port, "two cats") == (200, {"translatedText": best("two cats")})
        slow.sendall(body[7:].encode())
        answer = http.client.HTTPResponse(slow)
        answer.begin()
        assert json.loads(answer.read()) == {"translatedText": best("the old house")}


def test_a_body_of_10_mb_is_refused_in_words(server):
    status, answer = ask(server.port, "x" * 10_000_000)

    assert status == 413
    assert "longer than 1,000,000 bytes" in answer["error"]


# The first must not end a server, and an exit code not stand for the second
ENDS = (
    signal.SIGPIPE,
    signal.SIGTERM,
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_accepted_requests_finish_and_no_new_ones_begin(
    translator, best, tmp_path, monkeypatch, number
):
    expected = json.dumps(best("the old house"), ensure_ascii=False).encode()
    (wait, release), n_best = os.pipe(), translator.n_best
    monkeypatch.setattr(
        translator, "n_best", lambda lines, n: os.read(wait, 1) and n_best(lines, n)
    )

    with (
        serving(translator, tmp_path / "log") as server,
        socket.create_connection(("127.0.0.1", server.port)) as asked,
    ):
        body = json.dumps({"q": "the old house", "source": "en", "target": "de"})
        asked.sendall((HEAD + f"Content-Length: {len(body)}\r\n\r\n{body}").encode())
        assert ask_health(server.port)  # by then the request before it has been accepted
        server.child.send(number)
        wait_until(lambda: not ask_health(server.port))
        os.write(release, b"x")
        answer = asked.makefile("rb").read()
        end = server.child.wait()

    assert answer.startswith(b"HTTP/1.1 200")
    assert expected in answer
    # without our main, which turns SIGTERM into 143
    assert end.code == (-signal.SIGTERM if number == signal.SIGTERM else 130), end.said


def ask_health(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=400)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def test_an_answer_does_not_wait_for_its_header_to_be_acknowledged():
    """Header and body are sent one after the other; without TCP_NODELAY 40 ms lie between them."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()[:2]):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_without_file_descriptors_one_line_a_minute_says_so_and_has_no_traceback():
    def record(created: float, message: str) -> logging.LogRecord:
        error = OSError(24, "Too many open files")
        made = logging.LogRecord(
            "asyncio", 40, "", 0, message, None, (OSError, error, error.__traceback__)
        )
        made.created = created
        return made

    log_filter = SeldomAndShort()
    full = "socket.accept() out of system resource"
    records = [record(1000 + second, full) for second in range(0, 130, 10)]
    passed = [one for one in records if log_filter.filter(one)]
    assert [one.created - 1000 for one in passed] == [0, 60, 120]
    assert {one.getMessage() for one in passed} == {
        "no file descriptor is left: new connections wait; raise ulimit -n"
    }
    assert not any(one.exc_info for one in passed)
    other = record(1001, "another error")
    assert log_filter.filter(other)
    assert other.exc_info


def test_an_address_that_is_taken_is_refused_in_one_line(server):
    with pytest.raises(
        ConfigError, match=f"--port {server.port}: cannot listen there .*; choose another --port"
    ):
        listen("127.0.0.1", server.port)


@pytest.mark.parametrize(
    ("says", "options"),
    [
        ("'--port': Input should be less than or equal to 65535", ["--port", "70000"]),
        ("'--max-waiting': Input should be greater than or equal to 1", ["--max-waiting", "0"]),
        ("--time-limit 0.0: must be above 0", ["--time-limit", "0"]),
        ("--host 0.0.0.0 listens on every address: add --allow-host", ["--host", "0.0.0.0"]),
        ("--allow-host a*b: must be a name", ["--allow-host", "a*b"]),
        ("--api-key-file missing: cannot be read", ["--api-key-file", "missing"]),
    ],
)
def test_wrong_options_are_refused_before_the_run_is_looked_at(
    tmp_path, monkeypatch, says, options
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text(" \n")

    outcome = run_application("aiayn", "serve", "nowhere", *options)

    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert says in outcome.err


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (b"# of the team\n\n  a pass phrase \r\n\t# old\none#two\n", ["a pass phrase", "one#two"]),
        (b"\xef\xbb\xbfone\r\ntwo\r\n", ["one", "two"]),
        ("# zwölf\none\n".encode(), ["one"]),
    ],
)
def test_a_file_has_a_key_per_line_beside_blank_lines_and_comments(tmp_path, text, keys):
    (tmp_path / "keys").write_bytes(text)
    assert read_keys(tmp_path / "keys") == keys


@pytest.mark.parametrize(
    "text", [b"", b" \n# none\n", b"\xef\xbb\xbf", b"stra\xdfe", "one\nzwölf\n".encode()]
)
def test_a_file_without_a_key_or_in_another_encoding_is_refused(tmp_path, text):
    (tmp_path / "keys").write_bytes(text)
    with pytest.raises(
        ConfigError,
        match=r"--api-key-file .*keys: (contains no key|cannot be read|line 2: a key must be printable ASCII)",
    ):
        read_keys(tmp_path / "keys")


def test_the_command_loads_model_and_keys_and_outlives_clients_that_close_their_connection_too_early(
    tmp_path, monkeypatch
):
    seen = []
    monkeypatch.setattr(
        module, "serve", lambda *given: seen.append(([*map(signal.getsignal, ENDS)], *given))
    )
    run = write_run(tmp_path / "run")
    (tmp_path / "keys").write_text("one\ntwo\n")

    outcome = run_application(
        "aiayn", "serve", f"{run}", "--api-key-file", f"{tmp_path}/keys", "--beam-size", "2"
    )

    assert outcome.code == 0, outcome.err
    [(handlers, service, name, options)] = seen
    assert (handlers, name, options) == (
        [signal.SIG_IGN, signal.SIG_DFL],
        "run",
        ServeOptions(api_key_file=tmp_path / "keys"),
    )
    assert service.served.api_keys == ["one", "two"]
    assert service.served.translator.search.beam_size == 2
    assert service.served.source.endswith(".ckpt")


def test_the_systemd_unit_of_the_docs_is_a_command_that_runs_and_waits_long_enough_for_its_end(
    tmp_path,
):
    unit = re.search(r"```ini\n(.*?)```", (ROOT / "docs/serve.md").read_text(), re.DOTALL)[1]
    fields = dict(
        line.split("=", 1) for line in unit.split("\n") if "=" in line and not line.startswith("#")
    )
    program, *arguments = fields["ExecStart"].split()
    (tmp_path / "keys").write_text("one")
    arguments = [
        f"{tmp_path}/keys" if argument.endswith("keys.txt") else argument for argument in arguments
    ]

    outcome = run_application(Path(program).name, *arguments)

    # All but the run is there
    assert (outcome.code, "/srv/aiayn/outputs/mine: neither a run" in outcome.err) == (
        2,
        True,
    )
    assert int(fields["TimeoutStopSec"]) > ServeOptions.time_limit + module.SHUTDOWN_GRACE


def test_the_servers_command_in_the_dockerfile_has_all_options_that_it_needs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n#", "")
    words = re.search(r"(aiayn serve .*)", lines)[1].split()

    outcome = run_application(*words)

    assert (outcome.code, "outputs/quickstart: neither a run" in outcome.err) == (2, True)


ODD_PARTS = [
    "",
    " ",
    "\t",
    "\r",
    "\x00",
    "\x0b",
    "\x85",
    "\u2028",
    "\u2029",
    "\u200b",
    "\ufeff",
    "\u202e",
    "é",
    "e\u0301",
    "猫",
    "🙂",
    "Ａ",
]


def copied_without_letters(lines: list[str], translator: Translator) -> list[str]:
    found = translator.translate(lines)
    return [text if has_letters(line) else line for line, text in zip(lines, found, strict=True)]


@pytest.mark.slow
def test_the_server_and_the_command_give_the_same_for_odd_lines(server, translator):
    draw = random.Random(5)
    words = [
        *ODD_PARTS,
        "the",
        "old",
        "house",
        "<b>two</b>",
        "&amp;",
        "{name}",
        "%s",
        "...",
        "!!",
        "▁",
        "1,000.5",
        "x" * 60,
    ]
    lines = [" ".join(draw.choices(words, k=draw.randint(1, 3))) for _ in range(201)]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=400)
    body = json.dumps({"q": lines, "source": "en", "target": "de"})
    connection.request("POST", "/translate", body, {"Content-Type": "application/json"})

    found = json.loads(connection.getresponse().read())["translatedText"]
    cut = [split_paragraph(line, "en") for line in lines]
    expected = copied_without_letters(lines, translator)
    single = [number for number, one in enumerate(cut) if len(one) == 3]
    assert [found[number].strip() for number in single] == [
        expected[number].strip() for number in single
    ]
    sentences = iter(
        copied_without_letters([sentence for one in cut for sentence in one[1::2]], translator)
    )
    assert found == [
        "".join(next(sentences) if number % 2 else part for number, part in enumerate(one))
        for one in cut
    ]
    assert 120 < len(single) < 201


def test_a_process_for_documents_that_reads_the_program_does_not_run_it():
    assert "main" in runpy.run_module("aiayn.__main__", run_name="__mp_main__")


HOSTILE = {
    "images.md": "![",
    "fields.md": "${",
    "links.md": "[a](",
    "notes.md": "[^",
    "tags.html": "<b><i>",
    "comments.html": "<!--",
    "units.xliff": "<g>",
    "forms.po": 'msgid "a"\nmsgid_plural "b"\nmsgstr[1] ""\n\n',
    "film.srt": "1\n00:00:01,000 --> 00:00:02,000\na\n\n",
    "cells.csv": '"en","',
}
HOSTILE_BODIES = [
    ("application/x-www-form-urlencoded", b"q=" + b"%41" * 300_000),
    ("application/json", b'{"q": [' + b"[]," * 49_000 + b"0]}"),
]


def statuses_beside_health(port: int, work: Callable[..., int], items: Iterable) -> set[int]:
    """Returns the results of work(port, *item), all computed at once, while /health answers below a
    second.
    """
    with ThreadPoolExecutor(10) as pool:
        sent = [pool.submit(work, port, *item) for item in items]
        seconds = []
        while not all(one.done() for one in sent):
            start = time.perf_counter()
            assert ask_health(port)
            seconds.append(time.perf_counter() - start)
    assert max(seconds) < 1
    return {one.result() for one in sent}


@pytest.mark.slow
@pytest.mark.parametrize(("content_type", "body"), HOSTILE_BODIES)
def test_health_answers_below_a_second_beside_ten_bodies_of_many_parts(server, content_type, body):
    def send(port: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/translate", body, {"Content-Type": content_type})
        return connection.getresponse().status

    assert statuses_beside_health(server.port, send, [()] * 10) == {400}


@pytest.mark.slow
def test_health_answers_below_a_second_beside_ten_hostile_uploads(translator, tmp_path):
    def upload(port: int, name: str, content: str) -> int:
        parts = [
            f'Content-Disposition: form-data; name="{field}"\r\n\r\n{text}'
            for field, text in (("source", "en"), ("target", "de"))
        ]
        parts.append(
            f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n{content}'
        )
        body = "".join(f"--limit\r\n{part}\r\n" for part in parts) + "--limit--\r\n"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Content-Type": "multipart/form-data; boundary=limit"}
        connection.request("POST", "/translate_file", body.encode(), headers)
        return connection.getresponse().status

    with serving(translator, tmp_path / "log", time_limit=4) as server:
        uploads = [(name, unit * (900_000 // len(unit))) for name, unit in HOSTILE.items()]
        statuses = statuses_beside_health(server.port, upload, uploads)
        assert statuses <= {200, 400, 413, 503}
        assert upload(server.port, "a.txt", "12:30") == 200


def test_a_connection_whose_request_does_not_come_makes_room_for_others(
    translator, tmp_path, monkeypatch
):
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    with serving(translator, tmp_path / "log", max_connections=9) as server:

        def connected(start: bytes) -> socket.socket:
            client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            client.sendall(start)
            return client

        post = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 37\r\n\r\n"
        with connected(post) as slow_body:
            starts = (b"", b"GET /health HTTP/1.1\r\n", b"POST /health HTTP/1.1\r\nHost: a\r\n")
            idle = [connected(start) for start in 2 * starts]
            # The rest of a body that is answered already is no request either.
            idle.append(connected(post.replace(b"translate", b"health") + b"a"))
            assert [client.recv(1) for client in idle[:6]] == [b""] * 6
            idle[6].sendall(b"a")
            assert idle[6].makefile("rb").read().endswith(b'{"status":"ok"}')
            slow_body.sendall(b"q=the+old+house&source=en&target=de&a")
            assert slow_body.recv(15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("path", [b"/translate", b"/health"])
def test_a_body_in_many_small_pieces_is_not_read_to_its_end(server, path):
    head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(head + b"1\r\na\r\n" * connection.MANY)
        assert ask_health(server.port)
        with suppress(ConnectionError):
            client.sendall(b"1\r\na\r\n")
            while client.recv(1 << 16):
                pass
    assert "Traceback" not in server.log.read_text()
