"""Runs the entry points inside the test process, as a command line would: a fresh interpreter costs seconds each time."""

import contextlib
import io
import logging
import runpy
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton

from aiayn.config import Config
from aiayn.entry import register

ROOT = Path(__file__).parent.parent


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


def run_application(script: str, *arguments: str) -> Outcome:
    """`python SCRIPT ARGUMENTS` or, for `aiayn`, the console command, in the working directory."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    pipe_handler = signal.getsignal(signal.SIGPIPE)
    state = Singleton.get_state()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", [script, *arguments])
        patch.setenv("HYDRA_FULL_ERROR", "1")
        GlobalHydra.instance().clear()
        try:
            if script == "aiayn":
                from aiayn.cli import main

                main()
            else:
                runpy.run_path(str(ROOT / script), run_name="__main__")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            # What an application leaves behind for the whole process: Hydra's state, handlers, this stderr.
            signal.signal(signal.SIGPIPE, pipe_handler)
            Singleton.set_state(state)
            register(Config)
            logging.getLogger("aiayn").handlers.clear()
    return Outcome(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))
