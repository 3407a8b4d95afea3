"""Who trained a run: signatures over its place and the files of its text, by a key that only this
user has on this machine.

A run that somebody else made may name any file, and evaluation copies what it reads into the run's
folder. So stored paths that lead elsewhere are followed in one's own runs only. A run is known by
the path or by the inode of its folder: renaming or remounting it changes one of them. A copy, or
what an archive held, has neither.
"""

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from aiayn.files import read_regular

if TYPE_CHECKING:
    from aiayn.config.data import DataOptions


def signatures(folder: Path, data: "DataOptions") -> list[str]:
    """Returns this user's signatures over the text of a run in this folder, by its path and by its
    inode. Raises OSError where no key can be read or stored.
    """
    # All that decides which files evaluation reads
    text = [data.source, data.hub_path, data.hub_name, data.hub_revision, data.val, data.test]
    text += [data.src_lang, data.tgt_lang]
    key, marks = _key(), (os.path.realpath(folder), folder.stat().st_ino)
    messages = (json.dumps([*text, mark]).encode(errors="backslashreplace") for mark in marks)
    return [hmac.new(key, message, hashlib.sha256).hexdigest() for message in messages]


def is_own(signed: Path, data: "DataOptions") -> bool:
    """Returns whether the file holds this user's signature over the text of the run that it is
    in.
    """
    try:
        stored = read_regular(signed, 1000).split()
        return any(
            hmac.compare_digest(signature.encode(), candidate)
            for signature in signatures(signed.parent, data)
            for candidate in stored
        )
    except OSError:
        return False


def _key() -> bytes:
    """Returns the user's key, 32 random bytes, made when it is first needed."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    path = Path(state, "aiayn", "key")
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f".key.{os.getpid()}")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(secrets.token_bytes(32))
        try:
            # Unlike a rename, keeps the key of another process that was faster
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    key = path.read_bytes()
    if len(key) != 32:
        raise OSError(f"{path} is damaged")
    return key
