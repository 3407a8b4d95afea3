"""`python` at the cost of a fork: a process that has all libraries loaded runs each command line in
a fork of itself.

A new interpreter spends six seconds on torch and Lightning. Tests that start many processes put
this program in the place of `sys.executable`: command lines, environments, streams, exit codes and
the processes are those of users; only the first import is not shown. Other tests start interpreters
that are new.
"""

import gc
import json
import logging
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from applications import compose_once, spare_the_pictures
from hydra.core.global_hydra import GlobalHydra
from pytorch_lightning.utilities import rank_zero_only

import aiayn.evaluation.evaluate
import aiayn.training.run  # noqa: F401 (both before the forks, which would load them one by one)

# Starts in hundredths of a second. If the fork was killed, there is no exit code, and it kills
# itself, too.
CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
server.sendall(request)
code = server.recv(1)
if not code:
    os.kill(os.getpid(), 9)
sys.exit(code[0])
"""


@contextmanager
def warm_python(folder: Path) -> Iterator[str]:
    """Yields the path of the program; the server ends with the context, or with this process."""
    program, address = folder / "python", str(folder / "socket")
    program.write_text(CLIENT.format(python=sys.executable, address=address))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(20)
        lifeline, end = socket.socketpair()
        gc.collect()
        server = os.fork()
        if server == 0:
            # A translator of CTranslate2 waits for its threads when it is collected, and a fork has
            # none of them.
            gc.freeze()
            lifeline.close()
            sys.executable = str(program)
            _serve(listener, end)
    end.close()
    yield str(program)
    lifeline.close()
    os.waitpid(server, 0)


def _serve(listener: socket.socket, end: socket.socket) -> None:
    """Forks for every connection until the other end is closed. Never returns."""
    running: set[int] = set()
    while end not in select.select([listener, end], [], [])[0]:
        connection, _ = listener.accept()
        child = os.fork()
        if child == 0:
            end.close()
            listener.close()
            _answer(connection)
        connection.close()
        running = {pid for pid in running | {child} if os.waitpid(pid, os.WNOHANG) == (0, 0)}
    for pid in running:
        os.waitpid(pid, 0)
    os._exit(0)


def _answer(connection: socket.socket) -> None:
    """Becomes the process that was asked for, and sends its exit code. Never returns."""
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    request = b""
    while len(request) < int.from_bytes(size, "big"):
        request += connection.recv(1 << 16)
    arguments, folder, environment = json.loads(request)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    # After a fork tokenizers would wait for ever for its threads.
    os.environ.update(environment | {"TOKENIZERS_PARALLELISM": "false"})
    # The same holds for OpenMP's threads, should a test have started them in this process
    torch.set_num_threads(1)
    rank_zero_only.rank = int(environment.get("LOCAL_RANK", 0))  # as Lightning has it on import
    GlobalHydra.instance().clear()
    logging.getLogger("aiayn").handlers.clear()
    patch = pytest.MonkeyPatch()
    compose_once(patch)
    spare_the_pictures(patch)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        connection.send(bytes([code & 255]))
    # also where a launcher killed the program: this process would go on as the tests that it is a
    # fork of
    finally:
        os._exit(0)  # what the libraries of the tests left running may not hold it up


def _run(arguments: list[str]) -> int:
    """`python SCRIPT ARGUMENTS`, to the exit code."""
    sys.argv = arguments
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
