"""`--help`: what a command does, the groups of files, and every option with its value and the comment of conf/."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import OmegaConf

from aiayn.config import program
from aiayn.config.compose import Sources, composition
from aiayn.config.messages import groups

LINE = re.compile(r"(?P<indent> *)(?P<key>\w+):(?P<value>[^#]*)(?:# (?P<comment>.*))?")
WIDTH = 40  # columns before a comment


def help_text(sources: Sources, overrides: Sequence[str], schema: type) -> str:
    """Returns the page for the options that these overrides compose to. Raises ConfigError if they do not."""
    with composition(sources, overrides, schema) as (composed, hydra):
        folders = [Path(source.path) for source in hydra.runtime.config_sources if source.schema == "file"]
        introduction, options = hydra.help.template.rstrip(), OmegaConf.to_yaml(composed)
    for command in ("train", "evaluate"):
        introduction = introduction.replace(f"python {command}.py", program.typed(command))
    lines = [introduction, ""]
    if groups(schema):
        lines += ["== Groups (group=name) ==", *_group_files(folders, groups(schema)), ""]
    lines.append("== Options (SECTION.OPTION=value), as they are composed ==")
    comments = comments_of(folders, sources.name, groups(schema))
    for line, key, _ in _options_in(options):
        lines.append(f"{line:<{WIDTH}}  # {comments[key]}" if key in comments else line)
    return "\n".join(lines)


def _group_files(folders: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Returns a line for each group, and for each folder within one: `model: auto, base, big`."""
    files: dict[str, set[str]] = {}
    for folder in folders:
        for path in folder.glob("*/**/*.yaml"):
            group = path.parent.relative_to(folder)
            if group.parts[0] in names:
                files.setdefault(str(group), set()).add(path.stem)
    return [f"{group}: {', '.join(sorted(files[group]))}" for group in sorted(files)]


def comments_of(folders: Sequence[Path], name: str, names: Sequence[str]) -> dict[str, str]:
    """Returns the comment of each option; if several files of a group comment it, that of the longest file."""
    found: dict[str, str] = {}
    for folder in folders:
        for package, files in [*((f"{group}.", f"{group}/*.yaml") for group in names), ("", f"{name}.yaml")]:
            texts = [path.read_text(encoding="utf-8") for path in folder.glob(files)]
            for text in sorted(texts, key=len, reverse=True):
                for _, key, comment in () if text.startswith("# @package") else _options_in(text):
                    if comment:
                        found.setdefault(package + key, comment)
    return found


def _options_in(text: str) -> Iterator[tuple[str, str, str]]:
    """Yields every line of YAML with the dotted name of the option that it gives a value, and its comment."""
    section = ""
    for line in text.rstrip().split("\n"):
        found = LINE.match(line)
        if found is None:
            yield line, "", ""
        elif not found["value"].strip():
            section = f"{found['key']}."
            yield line, "", ""
        else:
            section = section if found["indent"] else ""
            yield line, section + found["key"], found["comment"] or ""
