"""Who trained a run: a signature over the paths of its text, by a key that only this user has on
this machine.

A run that somebody else made may name any file, and evaluation copies what it reads into the run's
folder. So stored paths that lead elsewhere are followed in one's own runs only.
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


def signature(data: "DataOptions") -> str:
    """Returns this user's signature over the paths of the text. Raises OSError where no key can be
    read or stored.
    """
    paths = json.dumps([data.source, data.hub_path, data.val, data.test])
    return hmac.new(_key(), paths.encode(errors="backslashreplace"), hashlib.sha256).hexdigest()


def is_own(signed: Path, data: "DataOptions") -> bool:
    """Returns whether the file holds this user's signature over the paths of the text."""
    try:
        return hmac.compare_digest(read_regular(signed, 1000), signature(data).encode())
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
