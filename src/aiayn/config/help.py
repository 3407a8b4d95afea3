"""`--help`: what a command does, the groups of files, and every option with its value."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from aiayn.config import program
from aiayn.config.compose import Sources, composition
from aiayn.config.messages import groups
from aiayn.config.rules import as_option, flatten, options_of

WIDTH = 40  # columns before an option's help


def help_text(sources: Sources, overrides: Sequence[str], schema: type) -> str:
    """Returns the page for the options that these overrides compose to. Raises ConfigError if they
    do not.
    """
    with composition(sources, overrides, schema) as (composed, hydra):
        folders = [
            Path(source.path) for source in hydra.runtime.config_sources if source.schema == "file"
        ]
        introduction, options = hydra.help.template.rstrip(), list(_option_lines(composed, schema))
    for command in ("train", "evaluate"):
        introduction = introduction.replace(f"python {command}.py", program.typed(command))
    lines = [introduction, ""]
    if groups(schema):
        lines += ["== Groups (group=name) ==", *_group_files(folders, groups(schema)), ""]
    return "\n".join(
        [
            *lines,
            "== Options (SECTION.OPTION=value), with their values in this command ==",
            *options,
        ]
    )


def _option_lines(composed: DictConfig, schema: type) -> Iterator[str]:
    """Yields each option as YAML has it, `  d_k: null  # null: d_model / n_heads`, and before it
    its section.
    """
    section, values = "", flatten(cast(dict[str, Any], OmegaConf.to_container(composed)))
    for key, option in options_of(schema).items():
        home, _, name = key.rpartition(".")
        if home != section:
            section = home
            yield f"{home}:"
        indent = "  " if home else ""
        line = f"{indent}{name}: {as_option(values.get(key, {}))}"
        yield f"{line:<{WIDTH}}  # {option.metadata['help']}"


def _group_files(folders: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Returns a line for each group, and for each folder within one: `model: auto, base, big`."""
    files: dict[str, set[str]] = {}
    for folder in folders:
        for path in folder.glob("*/**/*.yaml"):
            group = path.parent.relative_to(folder)
            if group.parts[0] in names:
                files.setdefault(str(group), set()).add(path.stem)
    return [f"{group}: {', '.join(sorted(files[group]))}" for group in sorted(files)]
