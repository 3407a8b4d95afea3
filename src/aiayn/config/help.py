"""`--help`: what a command does, the groups of files, and every option with its value and the comment of conf/."""

import re
from collections.abc import Sequence
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
    comments = comments_of(folders, sources.name, groups(schema))
    lines.append("== Options (SECTION.OPTION=value), as they are composed ==")
    section = ""
    for line in options.rstrip().split("\n"):
        found = LINE.match(line)
        key = f"{section}{found['key']}" if found and found["indent"] else found["key"] if found else ""
        lines.append(f"{line:<{WIDTH}}  # {comments[key]}" if key in comments else line)
        if found and not found["indent"]:
            section = f"{key}." if not found["value"].strip() else ""
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
        for group in names:
            texts = [path.read_text(encoding="utf-8") for path in (folder / group).glob("*.yaml")]
            for text in sorted(texts, key=len, reverse=True):
                if not text.startswith("# @package"):
                    found = _comments_in(text, f"{group}.") | found
        if (folder / f"{name}.yaml").is_file():
            found = _comments_in((folder / f"{name}.yaml").read_text(encoding="utf-8"), "") | found
    return found


def _comments_in(text: str, package: str) -> dict[str, str]:
    found, section = {}, ""
    for line in text.split("\n"):
        match = LINE.match(line)
        if match is None:
            continue
        if not match["indent"]:
            section = f"{match['key']}." if not match["value"].strip() else ""
        if match["comment"] and match["value"].strip():
            found[f"{package}{section if match['indent'] else ''}{match['key']}"] = match["comment"]
    return found
