"""Extend `mkdocs build` by pages of other folders, an API page for every room, and links out of
docs/.

https://www.mkdocs.org/dev-guide/plugins/#events explains the functions' names.
"""

import re
import subprocess
from html import escape
from os.path import relpath
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from aiayn.config.evaluate import EvaluateConfig
from aiayn.config.rules import as_option, default_values, options_of
from aiayn.config.schema import Config

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md")  # of the folder above, shown beside those of docs/
FORMULA = re.compile(r"(?<![\w$`])\$([^$`\n]*\\[^$`\n]*|[a-zA-Z]\w?)\$(?!\w)")  # as GitHub sets it
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def rooms() -> dict[str, list[str]]:
    """Returns the modules of every room, by their dotted names."""
    found: dict[str, list[str]] = {}
    for path in sorted(SOURCE.glob("aiayn/**/*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if path.read_text(encoding="utf-8").strip():
            found.setdefault(parts[1] if len(parts) > 2 else "aiayn", []).append(name)
    return found


def options_page() -> str:
    """Returns every option of `train` and `evaluate` with its type, default and help."""
    lines = [
        "# Options",
        "",
        "`group=file` selects values, `key=value` changes one. `--help` also prints this list.",
    ]
    for command, schema in (("train", Config), ("evaluate", EvaluateConfig)):
        values = default_values(command)
        lines += [
            "",
            f"## aiayn {command}",
            "",
            "| option | meaning, type and default |",
            "|---|---|",
        ]
        for key, option in options_of(schema).items():
            kind: Any = option.type
            default = escape(str(as_option(values[key])))
            # Two columns fit a phone; a long hash breaks in the middle.
            default = re.sub(r"([0-9a-f]{20})(?=[0-9a-f]{20})", r"\1<wbr>", default)
            type_name = getattr(kind, "__name__", str(kind)).replace("None", "null")
            cell = f"{option.metadata['help']}<br>{type_name}, default <code>{default}</code>"
            cell = cell.replace("|", "\\|")
            lines.append(f'| [`{key}`](#{key}){{ id="{key}" }} | {cell} |')
    return "\n".join(lines) + "\n"


def repository_address(remote: str) -> str | None:
    """Returns the page of a repository from git's address of it, without names and passwords; None
    for a folder.
    """
    match = re.fullmatch(
        r"(?:(?:https|ssh)://)?(?:[^/@]*@)?([\w.-]+\.\w+)(?::\d+)?[:/](.+?)(?:\.git)?/?", remote
    )
    return f"https://{match[1]}/{match[2]}" if match else None


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists the generated API pages after the others, and links the repository that was cloned."""
    remote = subprocess.run(
        ["git", "-C", str(ROOT), "remote", "get-url", "origin"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    if address := repository_address(remote):
        config.repo_url = address
    config.nav = [
        *(config.nav or []),
        {"API": ["reference/index.md", *(f"reference/{room}.md" for room in rooms())]},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds pages that are not in docs/."""
    for name in PAGES:
        content = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=content))
    files.append(File.generated(config, "options.md", content=options_page()))
    listed = []
    for room, modules in rooms().items():
        text = "\n\n".join(f"::: {module}" for module in modules)
        files.append(
            File.generated(config, f"reference/{room}.md", content=f"# {room}\n\n{text}\n")
        )
        listed.append(f"- [{room}]({room}.md): {', '.join(f'`{module}`' for module in modules)}")
    content = (
        "# API reference\n\nMade from the docstrings, a page for each room.\n\n"
        + "\n".join(listed)
        + "\n"
    )
    files.append(File.generated(config, "reference/index.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Sets formulas as MathML, and links pages of the site and classes of the API; other links out
    of docs/ become their text.
    """
    above = page.file.src_uri in PAGES  # these are written for the folder above

    def rewritten(match: re.Match[str]) -> str:
        text, target = match.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or not path or page.file.src_uri.startswith("reference/"):
            return match[0]
        folder = Path(page.file.src_uri).parent
        place = (
            ((ROOT if above else ROOT / "docs" / folder) / path)
            .resolve()
            .relative_to(ROOT.resolve())
            .as_posix()
        )
        anchor = f"#{anchor}" if anchor and not re.match(r"L\d", anchor) else ""
        if place in PAGES:
            return f"[{text}]({relpath(place, folder)}{anchor})"
        if place.startswith("docs/") and place.endswith(".md"):
            return f"[{text}]({relpath(place.removeprefix('docs/'), folder)}{anchor})"
        if place.startswith("src/aiayn/") and place.endswith(".py"):
            module = (
                place.removeprefix("src/")
                .removesuffix(".py")
                .removesuffix("/__init__")
                .replace("/", ".")
            )
            room = place.split("/")[2] if place.count("/") > 2 else "aiayn"
            # A class or function of the module, with its file or alone
            name = re.search(r"\.py: ([\w.]+)`", text) or re.fullmatch(r"`(\w+)`", text)
            anchor = f"{module}.{name[1]}" if name else module
            return f"[{text}]({relpath(f'reference/{room}.md', folder)}#{anchor})"
        return text

    return FORMULA.sub(lambda match: convert(match[1]), LINK.sub(rewritten, markdown))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Says of table heads, which are all above columns, what they head."""
    return html.replace("<th>", '<th scope="col">').replace("<th style", '<th scope="col" style')
