"""Entry points for commands and apps, of this package and of others: each by kind and name.

Any installed package opens one with an entry point, for example in its pyproject.toml:

    [project.entry-points."aiayn.readers"]
    ods = "my_package.sheets:read"

Nothing behind a door is imported before its name is asked for.
"""

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

# In the order of `aiayn --help`, after train and evaluate
COMMANDS = "translate score serve export attention table report trees split prepare"
APPS = {
    # Suffix of a file of pairs -> read(path, src_lang, tgt_lang), which yields `RawPair`s.
    "aiayn.readers": {
        "tsv": "aiayn.data.tables:read_table",
        "csv": "aiayn.data.tables:read_table",
        "jsonl": "aiayn.data.tables:read_json_lines",
        "tmx": "aiayn.apps.localisation.readers:read_memory_pairs",
        "po": "aiayn.apps.localisation.readers:read_catalogue_pairs",
        "xlf": "aiayn.apps.localisation.readers:read_xliff_pairs",
        "xliff": "aiayn.apps.localisation.readers:read_xliff_pairs",
    },
    # Suffix of a document -> read(source), which returns its `Pieces`.
    "aiayn.documents": {},
    # Name of a format -> export(checkpoint, folder).
    "aiayn.exporters": {
        "ctranslate2": "aiayn.apps.export.export:export_ctranslate2",
        "marian": "aiayn.apps.export.export:export_marian",
    },
    # Name of a command -> a function whose signature and docstring typer shows.
    "aiayn.commands": {name: f"aiayn.cli.{name}:{name}" for name in COMMANDS.split()},
}


def names_behind(door: str) -> list[str]:
    """Returns all names behind a door: the apps of this package first, then installed ones."""
    return list(dict.fromkeys([*APPS[door], *(entry.name for entry in entry_points(group=door))]))


def is_behind(door: str, name: str) -> bool:
    """Returns whether a name stands for something. Installed packages are asked only about names
    that are not built in.
    """
    return name in APPS[door] or (name != "" and bool(entry_points(group=door, name=name)))


def load_from(door: str, name: str) -> Any:
    """Returns what a name behind a door stands for.

    Raises KeyError if there is none, ImportError if a library is missing.
    """
    if reference := APPS[door].get(name):
        module, _, attribute = reference.partition(":")
        return getattr(import_module(module), attribute)
    for entry in entry_points(group=door, name=name):
        return entry.load()
    raise KeyError(name)
