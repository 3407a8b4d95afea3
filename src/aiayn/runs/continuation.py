"""Checks whether a command continues a run: compares its options with those of the run. Imports no
torch.
"""

from dataclasses import replace

from filelock import lock_descriptor

from aiayn.config.schema import Config
from aiayn.config.stored import changed_options, filled, from_dict, to_dict
from aiayn.errors import ConfigError, RefusedError
from aiayn.runs.run_folder import RunFolder


def read_options(folder: RunFolder) -> Config:
    """Returns the options in a run's config.yaml. Raises RefusedError if they cannot be read."""
    try:
        return from_dict(Config, folder.read_config())
    except (ConfigError, RefusedError, ValueError, TypeError, AttributeError) as error:
        raise RefusedError(
            f"{folder.config}: cannot be read as the run's options; remove it (its checkpoints "
            "hold them too), or choose another name="
        ) from error


def is_in_use(folder: RunFolder) -> bool:
    """Returns whether a process trains in this folder: it holds a lock for as long as it lives."""
    try:
        with open(folder.lock, "r+", encoding="utf-8") as lock:
            return not lock_descriptor(lock.fileno(), blocking=False)
    except OSError:
        return False


def check_unchanged(folder: RunFolder, options: Config, stored: Config | None = None) -> None:
    """Raises RefusedError if an option that defines the training differs from the run's first
    start.

    stored: the options of that start; None: those of config.yaml, if there is one.
    """
    if stored is None and not folder.config.exists():
        return
    changed = changed_options(to_dict(stored or read_options(folder)), options)
    if changed:
        diff = "; ".join(f"{key}: {values}" for key, values in changed.items())
        raise RefusedError(
            f"{folder.path} was started with other options ({diff}); give a new run another name="
        )


def check_typed_options(options: Config) -> None:
    """Raises RefusedError as `check_unchanged`, before anything slow is imported, for what is known
    by then.

    What the text, the files of extensions and another run's model decide is compared later.
    """
    folder = RunFolder(options.outputs_folder / options.run_name)
    if options.init_from is not None or options.trainer.fast_dev_run or not folder.config.exists():
        return
    stored = read_options(folder)
    model = replace(options.model, parts=stored.model.parts)
    known = replace(
        options, extensions_sha256=stored.extensions_sha256, given=stored.given, model=model
    )
    check_unchanged(folder, filled(known, to_dict(stored)), stored)
