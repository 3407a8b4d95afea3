"""A translation server under load: many clients at once beside one, and a soak with clients that
misbehave.

    python benchmarks/serve.py RUN FILE [--clients 64] [--requests 512] [--threads 1] [--rounds 6]
                               [--soak 60]

Starts `aiayn serve RUN` in a process of its own and sends it the lines of FILE, one per request:
first from one client, which waits for every answer, then from --clients at once, each of which does
the same. Every answer is compared with what Translator gives for the line by itself. Latencies
include the clients' own waiting for a processor: clients and server share the machine. Processor
seconds are the server's.

With --rounds N one client sends the same requests N times, and the server's memory is read after
each round: what the server keeps for a shape of a batch is there after the first round, and what it
kept for every request would go on to grow. A text with mark-up follows, for which the server loads
torch. Then the benchmark ends.

With --soak SECONDS there follow that many seconds of honest clients beside others that disconnect,
send or read slowly, send malformed JSON, other encodings, or 10 MB; then SIGTERM. Lost is an honest
request without an answer.
"""

import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from measure import parse_options, report

from aiayn.apps.documents.texts import translate_texts
from aiayn.cli.arguments import ModelAndSearch
from aiayn.data.text_files import read_lines

PROGRAM = [sys.executable, "-c", "from aiayn.cli import main; main()", "serve"]
HEADERS = {"Content-Type": "application/json"}
HONEST = 8  # clients of a soak, beside one of every other kind


def start(command: list[str], threads: int) -> tuple[subprocess.Popen[str], int]:
    """Starts a server whose first line of output ends with its port; returns both."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    return process, int(process.stdout.readline().rpartition(":")[2])


class Server:
    """`aiayn serve` in a process, and the languages it translates."""

    def __init__(self, run: str, threads: int):
        command = [*PROGRAM, run, "--port", "0", "--accelerator", "cpu"]
        self.process, self.port = start(command, threads)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/frontend/settings") as answer:
            language = json.load(answer)["language"]
        self.pair = {"source": language["source"]["code"], "target": language["target"]["code"]}

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def body(self, line: str, **fields: str) -> bytes:
        return json.dumps(self.pair | {"q": line} | fields).encode()

    def cpu(self) -> float:
        """Returns the processor seconds that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Tally:
    """What honest clients were answered."""

    server: Server
    expected: dict[str, str]
    latencies: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    refused: int = 0  # answers that said to come later
    late: bool = False  # a server that was told to end takes no new requests

    def ask(self, connection: http.client.HTTPConnection, line: str) -> None:
        """Sends a line, again where the server asks for that, and looks at the answer."""
        start = time.perf_counter()
        while True:
            try:
                connection.request("POST", "/translate", self.server.body(line), HEADERS)
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if not self.late:
                    self.lost.append(f"{line}: {error!r}")
                return
            if answer.status != 503:
                break
            self.refused += 1
            time.sleep(float(answer.headers.get("Retry-After", 1)))
        self.latencies.append(time.perf_counter() - start)
        if answer.status != 200 or json.loads(text)["translatedText"] != self.expected[line]:
            self.wrong.append(f"{line}: {answer.status} {text!r}")


def load(
    server: Server, expected: dict[str, str], lines: list[str], clients: int
) -> dict[str, object]:
    """Returns a row of figures for the lines sent by so many clients."""
    tally, client = Tally(server, expected), threading.local()

    def connect() -> None:
        client.connection = server.connect()

    cpu, start = server.cpu(), time.perf_counter()
    with ThreadPoolExecutor(clients, initializer=connect) as clients_at_once:
        list(clients_at_once.map(lambda line: tally.ask(client.connection, line), lines))
    seconds, cpu = time.perf_counter() - start, server.cpu() - cpu
    return {
        "clients": clients,
        "requests": len(lines),
        "requests/s": len(lines) / seconds,
        "requests/processor second": len(lines) / cpu,
        "median ms": 1000 * statistics.median(tally.latencies),
        "99th percentile ms": 1000 * statistics.quantiles(tally.latencies, n=100)[98],
        "wrong": len(tally.wrong),
        "lost": len(tally.lost),
    }


def memory_of_rounds(
    server: Server, expected: dict[str, str], lines: list[str], rounds: int
) -> list[dict[str, object]]:
    """Returns the server's memory before and after each of several rounds of the same requests,
    and after a text with mark-up.
    """
    rows: list[dict[str, object]] = [{"sent": "", "requests": 0, "MB": server.memory_mb()}]
    for number in range(1, rounds + 1):
        load(server, expected, lines, 1)
        row = {"sent": "lines", "requests": number * len(lines), "MB": server.memory_mb()}
        rows.append(row)
    with contextlib.closing(server.connect()) as connection:
        first, _, rest = lines[0].partition(" ")
        with_markup = server.body(f"<b>{first}</b> {rest}", format="html")
        connection.request("POST", "/translate", with_markup, HEADERS)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()
    count = rounds * len(lines) + 1
    return [*rows, {"sent": "mark-up", "requests": count, "MB": server.memory_mb()}]


def rude_clients(server: Server, line: str) -> dict[str, Callable[[], None]]:
    """Returns what each kind of misbehaving client does once. What is refused must be refused by
    the right status.
    """
    body = server.body(line)
    head = ["POST /translate HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    request = "\r\n".join([*head, f"Content-Length: {len(body)}", "", ""]).encode() + body

    def refused(status: int, bad: bytes) -> None:
        connection = server.connect()
        connection.request("POST", "/translate", bad, HEADERS)
        answer = connection.getresponse()
        assert answer.status == status, (answer.status, answer.read())
        assert "error" in json.loads(answer.read())

    def speak(*parts: bytes, pause: float, read: int) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            for _ in range(read):
                connection.recv(1)
                time.sleep(pause)

    return {
        "gone at once": lambda: speak(request, pause=0, read=0),
        "gone in the middle": lambda: speak(request[: len(request) // 2], pause=0, read=0),
        "sends slowly": lambda: speak(*(bytes([byte]) for byte in request), pause=0.01, read=20),
        "reads slowly": lambda: speak(request, pause=0.02, read=100),
        "malformed JSON": lambda: refused(400, body[:-1]),
        "another encoding": lambda: refused(400, body[:-1] + b', "\xfc": 1}'),
        "10 MB": lambda: refused(413, b" " * 10_000_000 + body),
    }


def soak(server: Server, expected: dict[str, str], seconds: float) -> dict[str, object]:
    """Returns figures of honest clients beside others, and ends the server by SIGTERM."""
    tally, lines = Tally(server, expected), itertools.cycle(expected)
    visits, surprises = dict.fromkeys(rude := rude_clients(server, next(lines)), 0), []

    def honest() -> None:
        connection = server.connect()
        while not tally.late:
            tally.ask(connection, next(lines))

    def visit(misbehaviour: str) -> None:
        while not tally.late:
            try:
                rude[misbehaviour]()
                visits[misbehaviour] += 1
                time.sleep(0.01)
            except Exception as error:
                if not tally.late:
                    surprises.append(f"{misbehaviour}: {error!r}")

    mb_at_start = server.memory_mb()
    with ThreadPoolExecutor(HONEST + len(rude)) as clients:
        working = [clients.submit(honest) for _ in range(HONEST)] + [
            clients.submit(visit, misbehaviour) for misbehaviour in rude
        ]
        time.sleep(seconds)
        memory = server.memory_mb()
        tally.late = True
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(600)
    for client in working:
        client.result()
    print("visits:", ", ".join(f"{count} {misbehaviour}" for misbehaviour, count in visits.items()))
    for problem in [*tally.wrong, *tally.lost, *surprises][:20]:
        print("problem:", problem)
    return {
        "honest requests": len(tally.latencies),
        "other requests": sum(visits.values()),
        "wrong": len(tally.wrong),
        "lost": len(tally.lost),
        "surprises": len(surprises),
        "MB before": mb_at_start,
        "MB after": memory,
        "exit": code,
    }


def main(arguments: list[str] | None = None) -> None:
    files = {"run": None, "file": None}
    options = parse_options(
        __doc__, arguments, files, clients=64, requests=512, threads=1, rounds=0, soak=0.0
    )
    lines = [line for line in dict.fromkeys(read_lines(options.file)) if line.strip()]
    with ModelAndSearch(accelerator="cpu").open(Path(options.run)) as (translator, _):
        pass
    distinct = lines[: options.requests]
    expected = {
        line: translate_texts(translator, [line], markup=False, paragraphs=True)[0][0]
        for line in distinct
    }
    requests = list(itertools.islice(itertools.cycle(distinct), options.requests))
    with contextlib.closing(Server(options.run, options.threads)) as server:
        if options.rounds:
            report(
                "serve_memory",
                memory_of_rounds(server, expected, requests, options.rounds),
                options.out,
            )
            return
        load(server, expected, requests[:8], 1)  # warm-up
        rows = [load(server, expected, requests, clients) for clients in (1, options.clients)]
        report("serve", rows, options.out)
        if options.soak:
            report("serve_soak", [soak(server, expected, options.soak)], options.out)


if __name__ == "__main__":
    main()
