"""The folder of a model that was converted for CTranslate2: its name, and what it holds. Read
without torch.
"""

import json
from pathlib import Path
from typing import Any

from aiayn.files import sha256
from aiayn.runs.run_folder import read_checksum

FORMAT = 1  # version of the folder; a model in another one is converted anew
ABOUT = "aiayn.json"  # settings, tokenizer and the checksums of the other files


def fingerprint(checkpoint: Path) -> str:
    """Returns the SHA-256 that a checkpoint file ends with, or that of its bytes if it has none of
    its own.
    """
    return read_checksum(checkpoint) or sha256(checkpoint)


def converted_folder(checkpoint: Path) -> Path:
    """Returns where the converted model of a checkpoint file is."""
    return checkpoint.with_name(f"{checkpoint.stem}.ctranslate2-{fingerprint(checkpoint)[:16]}")


def read_converted(folder: Path, checkpoint: Path) -> dict[str, Any] | None:
    """Returns the settings of a whole converted model of this checkpoint file; None if there is
    none.
    """
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        if about["format"] != FORMAT or about["checkpoint"] != fingerprint(checkpoint):
            return None
        whole = all(sha256(folder / name) == digest for name, digest in about["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return about if whole else None
