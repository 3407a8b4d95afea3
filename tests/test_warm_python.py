"""The program that stands in for Python in tests."""

import gc
import os
import subprocess

from warm_python import warm_python


class KeepsItself:
    """Garbage that a fork must leave alone, as a translator that waits for its threads."""

    def __init__(self, note):
        self.owner, self.note, self.itself = os.getpid(), note, self

    def __del__(self):
        if os.getpid() != self.owner:
            self.note.write_text("collected in a fork")


def test_a_fork_collects_nothing_of_the_tests_before_it(tmp_path):
    note, script = tmp_path / "note", tmp_path / "script.py"
    script.write_text("import gc\ngc.collect()\n", encoding="utf-8")
    gc.disable()
    try:
        living = KeepsItself(note)
        KeepsItself(note)
        with warm_python(tmp_path) as program:
            living.itself = None
            del living
            subprocess.run([program, str(script)], check=True, timeout=300)
    finally:
        gc.enable()
    assert not note.exists()
