"""What one line costs: `aiayn translate` from its start to its end, and a request to `aiayn serve`.

    python benchmarks/one_line.py MODEL FILE [--lines 100] [--rounds 9] [--threads 1]

`aiayn translate MODEL` is started with the first line of FILE, after a start that converts the
model: its processor seconds, median and quartiles, and its peak memory. Then a server is sent the
first --lines lines of FILE by one client, with four beams, round by round, and so is
`bare_server.py`, in turn. Their rows have the processor seconds and memory at the time when they
are ready, and the fewest processor milliseconds of a request over the rounds, each the mean of its
lines, without the client's.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import parse_options, report, spread
from serve import HEADERS, Server, start

from aiayn.apps.export.export import export_ctranslate2
from aiayn.data.text_files import read_lines
from aiayn.runs.checkpoints import load
from aiayn.runs.run_folder import find_checkpoint

# At its end the command prints its peak of memory. That of `wait4` would begin with the peak of the
# process that started it.
TRANSLATE = """
import atexit, sys
from pathlib import Path

def print_peak():
    lines = Path("/proc/self/status").read_text(encoding="utf-8").split("\\n")
    print(next(line.split()[1] for line in lines if line.startswith("VmHWM")), file=sys.stderr)

atexit.register(print_peak)
from aiayn.cli import main
main()
"""
BARE_SERVER = Path(__file__).with_name("bare_server.py")


class BareServer(Server):
    """`bare_server.py` in a process of its own."""

    def __init__(self, folder: str, threads: int, pair: dict[str, str]):
        self.process, self.port = start([sys.executable, str(BARE_SERVER), folder], threads)
        self.pair = pair


def translate_once(model: str, line: str) -> tuple[float, float]:
    """Returns the processor seconds and the peak MB of a command that translates one line."""
    command = [sys.executable, "-c", TRANSLATE, "translate", model, "--accelerator", "cpu"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        process.stdin.write(f"{line}\n")
        process.stdin.close()
        translated, messages = process.stdout.read(), process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, messages
    assert translated.strip(), messages
    return usage.ru_utime + usage.ru_stime, int(messages.split()[-1]) / 1024


def request_all(server: Server, lines: list[str]) -> float:
    """Returns the server's processor milliseconds for a request of one line, the mean of all."""
    cpu_at_start = server.cpu()
    with contextlib.closing(server.connect()) as connection:
        for line in lines:
            connection.request("POST", "/translate", server.body(line), HEADERS)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text
    return 1000 * (server.cpu() - cpu_at_start) / len(lines)


def ready(build: Callable[[], Server]) -> tuple[Server, dict[str, float]]:
    """Returns a server and its memory when it is ready; and the fewest processor seconds of five
    such starts.
    """
    seconds = []
    for _ in range(4):
        with contextlib.closing(build()) as server:
            seconds.append(server.cpu())
    server = build()
    return server, {"processor seconds": min(*seconds, server.cpu()), "MB": server.memory_mb()}


def server_rows(model: str, lines: list[str], rounds: int, threads: int) -> list[dict[str, Any]]:
    """Returns the rows of both servers."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as closing:
        folder = f"{scratch}/model"
        export_ctranslate2(load(find_checkpoint(Path(model), None)), Path(folder))
        ours, our_start = ready(lambda: Server(model, threads))
        closing.callback(ours.close)
        bare, bare_start = ready(lambda: BareServer(folder, threads, ours.pair))
        closing.callback(bare.close)
        servers = {"aiayn serve": ours, "bare server": bare}
        milliseconds: dict[str, list[float]] = {name: [] for name in servers}
        for number in range(1 + rounds):
            for name, server in list(servers.items())[:: (-1) ** number]:
                milliseconds[name].append(request_all(server, lines))
    starts = {"aiayn serve": our_start, "bare server": bare_start}
    return [
        {"server": name, **starts[name], "ms a request": min(of_rounds[1:]), "rounds": rounds}
        for name, of_rounds in milliseconds.items()
    ]


def main(arguments: list[str] | None = None) -> None:
    files = {"model": None, "file": None}
    options = parse_options(__doc__, arguments, files, lines=100, rounds=9, threads=1)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    lines = [line for line in read_lines(Path(options.file)) if line.strip()][: options.lines]
    starts = [translate_once(options.model, lines[0]) for _ in range(1 + options.rounds)][1:]
    seconds = spread([cpu for cpu, _ in starts])
    command = {"processor seconds": seconds.pop("median"), **seconds}
    memory = {"MB": max(peak for _, peak in starts), "rounds": options.rounds}
    report("one_line_translate", [command | memory], options.out)
    servers = server_rows(options.model, lines, options.rounds, options.threads)
    report("one_line_serve", servers, options.out)


if __name__ == "__main__":
    main()
