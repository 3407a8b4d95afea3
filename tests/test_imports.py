"""Who may import whom, where each library lives, what is never called, what is loaded when."""

import ast
import json
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest
from applications import ROOT, TEXT, TINY, write_text

SOURCE = ROOT / "src"
MODULES = {
    path.relative_to(SOURCE).with_suffix("").as_posix().removeprefix("aiayn/"): path
    for path in SOURCE.rglob("*.py")
}


def room(module: str) -> str:
    return module.split("/")[0]


def imported_room(name: str) -> str | None:
    """The room that `import aiayn.ROOM.MODULE` or `hydra_plugins.MODULE` reaches into."""
    package, _, inner = name.partition(".")
    return {"aiayn": inner.split(".")[0], "hydra_plugins": package}.get(package)


# Room: the rooms that it may import from, besides itself. `__init__` holds the version and the
# public functions.
GROUND = {"errors", "files", "hardware", "signals", "token_ids", "config", "runs"}
WALLS = {
    "__init__": {"config", "data", "errors", "signals", "search", "training", "evaluation", "runs"},
    "__main__": {"cli"},
    "errors": set(),
    "files": set(),
    "signals": {"errors"},
    "token_ids": set(),
    "hardware": {"config", "errors", "files"},
    "config": {"errors"},
    "phrasebook": set(),
    "runs": {"config", "errors", "files"},
    "doors": set(),  # the names of apps, which it imports when one is asked for
    "data": {"config", "doors", "errors", "files", "signals", "token_ids", "phrasebook"},
    "model": {"config"},
    "kernels": GROUND | {"model"},
    "search": GROUND | {"data", "model", "kernels"},
    "parsing": {"data", "errors", "files", "config", "runs"},
    "reports": {"config", "errors", "files", "runs", "model", "parsing"},
    "visualize": {
        "config",
        "errors",
        "files",
        "hardware",
        "token_ids",
        "reports",
        "data",
        "model",
        "search",
    },
    "apps": GROUND | {"data", "doors", "model", "search", "reports"},
    "evaluation": GROUND - {"hardware", "signals", "token_ids"}
    | {"data", "search", "reports", "parsing"},
    "training": GROUND
    | {"data", "model", "kernels", "search", "evaluation", "reports", "visualize", "parsing"},
    "sweep": GROUND | {"data", "reports"},
    "hydra_plugins": {"config", "errors", "runs", "sweep"},
    "cli": GROUND
    | {
        "data",
        "model",
        "kernels",
        "search",
        "evaluation",
        "reports",
        "visualize",
        "training",
    }
    | {"parsing", "phrasebook", "sweep", "doors", "apps"},
}
# These know nothing of files and scores
LEARNING = {
    "training/module",
    "training/loss",
}

# Library: the modules, or rooms, that may import it.
HYDRA = {
    *(f"config/{name}" for name in ("compose", "rules", "messages", "help")),
    *("cli/hydra_commands", "sweep", "hydra_plugins"),
}
HOMES = {
    "hydra": HYDRA,
    "omegaconf": HYDRA,
    "torch": {
        *("model", "kernels", "data/batch", "data/datamodule"),
        "runs/checkpoints",
        *("hardware", "search", "apps/export", "visualize", "training"),
    },
    "pytorch_lightning": {"data/datamodule", "training", "__init__"},
    "triton": {"kernels/triton_attention", "kernels/triton_loss"},
    "lightning_fabric": {"training/distributed/ranks"},
    "lightning_utilities": {"training/checkpoint_io"},
    "numpy": {
        *("data", "evaluation/scoring", "evaluation/significance", "reports/differences", "search"),
        "apps/documents/placement",
        "training/module",  # whose generator it seeds
    },
    "scipy": {"reports/differences"},
    "pandas": {"reports"},
    "tabulate": {"reports/tables"},
    "tokenizers": {"data/tokenizer"},
    "datasets": {"data/sources"},
    "huggingface_hub": {"data/sources", "apps/export/model_card"},
    "pyarrow": {"data/sources"},
    "lxml": {"apps/localisation/exchange"},
    "markdown_it": {"apps/documents/markdown", "apps/documents/dialect_blocks"},
    "sacrebleu": {"evaluation/scoring"},
    "sacremoses": {"evaluation/scoring"},
    "sentencex": {"apps/documents/texts"},
    "py3langid": {"data/languages"},
    "jinja2": {"reports/report", "visualize/explorer"},
    "markupsafe": {"reports/report"},
    "matplotlib": {"reports/drawing", "reports/plots", "visualize/figures"},
    "wandb": {"training/wandb_run"},
    "rich": {"training/callbacks", "evaluation/progress"},
    "yaml": {"runs/run_folder"},
    "filelock": {"files", "runs/continuation", "training/resume", "data/preparation"},
    "psutil": {"hardware"},
    "typer": {"cli"},
    "submitit": {"sweep"},
    "ctranslate2": {"search/convert", "search/engine", "search/fast_translator"},
    "transformers": {"apps/export/export"},
    "anyio": {"apps/server"},
    "starlette": {"apps/server"},
    "h11": {"apps/server"},
    "uvicorn": {"apps/server"},
    "prometheus_client": {"apps/server/app", "apps/server/metrics"},
}
# Slow or optional: never imported before they are needed.
LAZY = {
    *(
        "datasets",
        "huggingface_hub",
        "pyarrow",
        "wandb",
        "matplotlib",
        "sacremoses",
    ),
    *("submitit", "sentencex", "ctranslate2"),
}
# These run before it is known that an option is right, and must stay fast.
LIGHT = {
    *(
        "__init__",
        "doors",
        "errors",
        "files",
        "signals",
        "runs/__init__",
        "runs/run_folder",
        "runs/results",
    ),
    *(
        "runs/continuation",
        "apps/server/__init__",
        "apps/server/options",
    ),
    # Hydra loads plugins
    *(name for name in MODULES if room(name) in ("config", "cli", "sweep", "hydra_plugins")),
}
INSTALLED_WITH = {
    "lightning_fabric": "pytorch_lightning",
    "triton": "torch",
    "yaml": "pyyaml",
    "markdown_it": "markdown-it-py",
}

# Lines of text end at LF only, so these are the places where text is no corpus: messages, and line
# breaks of every kind that a model wrote and that must become spaces.
MAY_SPLIT_LINES = {"config/messages", "search/line_translator"}


class Import(NamedTuple):
    name: str  # dotted
    line: int
    lazy: bool  # inside a function, or for type checkers only
    typing: bool  # for type checkers only


def imports(tree: ast.Module) -> Iterator[Import]:
    def inside(is_wanted: Callable[[ast.AST], bool]) -> set[ast.AST]:
        return {inner for node in ast.walk(tree) if is_wanted(node) for inner in ast.walk(node)}

    typing = inside(
        lambda node: isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    )
    lazy = typing | inside(lambda node: isinstance(node, (ast.FunctionDef, ast.Lambda)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                Import(alias.name, node.lineno, node in lazy, node in typing)
                for alias in node.names
            )
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            # `from aiayn.cli import texts` imports aiayn.cli.texts.
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = {name if name in OWN else node.module for name in inner}
            yield from (Import(name, node.lineno, node in lazy, node in typing) for name in names)


def dotted(module: str) -> str:
    package = "" if room(module) == "hydra_plugins" else "aiayn."
    return (package + module.removesuffix("__init__").rstrip("/").replace("/", ".")).rstrip(".")


OWN = {dotted(module): module for module in MODULES}
OURS = {"aiayn", "hydra_plugins", "_typeshed"}  # the last exists for type checkers only


@cache
def trees() -> dict[str, ast.Module]:
    return {
        name: ast.parse(path.read_text(encoding="utf-8")) for name, path in sorted(MODULES.items())
    }


@cache
def all_imports() -> dict[str, list[Import]]:
    return {name: list(imports(tree)) for name, tree in trees().items()}


def lives_in(module: str, homes: set[str]) -> bool:
    return any(module == home or module.startswith(f"{home}/") for home in homes)


def test_every_module_stands_in_a_known_room():
    assert {room(module) for module in MODULES} == set(WALLS)
    assert not (SOURCE / "hydra_plugins/__init__.py").exists(), (
        "other packages' plugins live there too"
    )


def test_imports_only_point_back():
    wrong = []
    for module, imported in all_imports().items():
        allowed = WALLS[room(module)] | {room(module)}
        if module in LEARNING:
            allowed = allowed - {"evaluation", "reports", "visualize"}
        seen = [(module, imported_room(found.name), found.line) for found in imported]
        wrong += [
            (module, name, line) for module, name, line in seen if name and name not in allowed
        ]

    assert wrong == []


def test_no_modules_import_each_other_in_a_circle_not_even_inside_functions():
    found = {
        module: {one.name for one in imported if not one.typing}
        for module, imported in all_imports().items()
    }

    order = TopologicalSorter(
        {module: {OWN[name] for name in names & OWN.keys()} for module, names in found.items()}
    )

    assert set(order.static_order()) == set(MODULES)  # raises CycleError, which names the modules


def test_the_model_knows_no_options_but_its_own():
    seen = {
        found.name
        for module, imported in all_imports().items()
        if room(module) == "model"
        for found in imported
    }

    assert {name for name in seen if name.startswith("aiayn.config")} == {"aiayn.config.model"}


def test_every_library_is_imported_in_its_home_only():
    wrong = []
    for module, imported in all_imports().items():
        libraries = (
            {found.name.split(".")[0] for found in imported} - sys.stdlib_module_names - OURS
        )
        wrong += [
            (module, library)
            for library in libraries
            if not lives_in(module, HOMES.get(library, set()))
        ]

    assert wrong == []


def test_only_sources_of_text_import_the_phrasebook():
    seen = [
        (module, imported_room(found.name))
        for module, imported in all_imports().items()
        for found in imported
    ]
    importers = {module for module, name in seen if name == "phrasebook"}

    assert {module for module in importers if room(module) != "phrasebook"} == {"data/sources"}


def test_heavy_and_optional_libraries_are_imported_when_they_are_needed():
    eager = [
        (module, found.name.split(".")[0])
        for module in MODULES
        for found in all_imports()[module]
        if not found.lazy
    ]

    assert [(module, name) for module, name in eager if name in LAZY - {room(module)}] == []


def test_what_runs_before_the_configuration_holds_imports_nothing_slow():
    light = {"hydra", "omegaconf", "typer", "yaml", "filelock", *sys.stdlib_module_names, *OURS}
    eager = [
        (module, found.name)
        for module in LIGHT
        for found in all_imports()[module]
        if not found.lazy
    ]

    assert [(module, name) for module, name in eager if name.split(".")[0] not in light] == []
    ours = {dotted(module) for module in LIGHT}
    assert [
        (module, name) for module, name in eager if imported_room(name) and name not in ours
    ] == []


def test_every_imported_library_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [
        requirement for extra in project["optional-dependencies"].values() for requirement in extra
    ]
    declared = {requirement.split(">")[0] for requirement in [*project["dependencies"], *extras]}
    needed = {INSTALLED_WITH.get(library, library).replace("_", "-") for library in HOMES}

    assert needed - declared == {"hydra"}  # hydra-core
    assert "hydra-core" in declared


def test_everything_declared_is_pinned_in_constraints_by_an_exact_version_without_local_label():
    pins = [
        line
        for line in (ROOT / "constraints.txt").read_text().split("\n")
        if line and not line.startswith("#")
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [
        requirement for extra in project["optional-dependencies"].values() for requirement in extra
    ]
    wanted = {
        requirement
        for requirement in [*project["dependencies"], *extras]
        if not requirement.startswith("aiayn[")
    }

    pinned = dict(pin.split("==") for pin in pins)

    assert {requirement.split(">")[0] for requirement in wanted} <= {
        name.lower() for name in pinned
    }
    assert pinned["torch"] == "2.13.0"
    assert not any("+" in version for version in pinned.values())


@pytest.mark.parametrize("script", ["train.py", "evaluate.py"])
def test_entry_points_are_short_and_nothing_imports_them(script):
    assert (ROOT / script).read_text().count("\n") < 60

    name = script.removesuffix(".py")
    assert not [
        found
        for imported in all_imports().values()
        for found in imported
        if found.name.split(".")[0] == name
    ]


def test_no_module_has_a_name_that_says_nothing():
    parts = {part for module in MODULES for part in module.split("/")}

    assert parts & {"utils", "util", "helpers", "helper", "common", "core", "misc"} == set()


def banned(module: str, tree: ast.Module) -> Iterator[str]:
    """Ways to run code out of data, or to lose track of lines."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        options = {option.arg: ast.unparse(option.value) for option in node.keywords}
        last = called.split(".")[-1]
        if called in (
            "eval",
            "exec",
            "os.system",
            "pickle.load",
            "pickle.loads",
            "yaml.load",
            "hydra.utils.instantiate",
        ):
            yield f"{called}() in line {node.lineno}"
        if called == "torch.load" and options.get("weights_only") != "True":
            yield f"torch.load without weights_only=True in line {node.lineno}"
        if (
            options.get("weights_only") == "False"
            or options.get("shell") == "True"
            or "trust_remote_code" in options
        ):
            yield f"{called}({options}) in line {node.lineno}"
        if last in ("extractall", "allow_pickle") or options.get("allow_pickle") == "True":
            yield f"{called}() in line {node.lineno}"
        if last == "splitlines" and module not in MAY_SPLIT_LINES:
            yield f"splitlines() in line {node.lineno}"


def test_loading_never_runs_code_and_only_lf_ends_a_line():
    found = [
        (module, call.split()[0])
        for module, tree in trees().items()
        for call in banned(module, tree)
    ]
    assert found == [("config/extensions", "exec()")]  # of files that the user names


# What is loaded when, in fresh interpreters.

DRIVER = """
import json, runpy, sys
for name in {absent}:
    sys.modules[name] = None  # as if it were not installed
for sys.argv in {commands}:
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    else:
        code = 0
    print(json.dumps({{"code": code, "loaded": sorted(n for n in sys.modules if sys.modules[n] and "." not in n)}}))
"""


def in_a_fresh_interpreter(folder: Path, *commands: list[str], absent: list[str]) -> list[dict]:
    """Runs commands one after the other where some libraries do not exist. Returns exit codes and
    what was loaded.
    """
    code = DRIVER.format(
        absent=absent, commands=[[str(ROOT / script), *rest] for script, *rest in commands]
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.split("\n") if line.startswith('{"code"')]


def test_help_and_configuration_errors_load_neither_torch_nor_any_other_heavy_library(tmp_path):
    outcomes = in_a_fresh_interpreter(
        tmp_path,
        ["train.py", "--help"],
        ["train.py", "model=big", "--cfg", "job"],
        ["train.py", "model.n_heads=7"],
        ["evaluate.py", "run=x", "split=dev"],
        absent=[],
    )

    assert [outcome["code"] for outcome in outcomes] == [0, 0, 2, 2]
    heavy = {
        "torch",
        "pytorch_lightning",
        "datasets",
        "wandb",
        "matplotlib",
        "numpy",
        "tokenizers",
        "sacrebleu",
    }
    assert heavy & set(outcomes[-1]["loaded"]) == set()


def test_pages_and_tables_load_no_torch(tmp_path):
    modules = "sys, aiayn.reports.report, aiayn.reports.paper_tables, aiayn.reports.comparison"
    code = f"import {modules}; sys.exit(bool({{'torch', 'pandas', 'scipy'}} & {{*sys.modules}}))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, timeout=600, check=False
        ).returncode
        == 0
    )


@pytest.mark.slow
def test_a_translation_in_torch_loads_no_compiler(tmp_path):
    """torch._dynamo takes a second, and torch.nn.attention.varlen imports it."""
    code = "import sys, aiayn.search.translator; sys.exit('torch._dynamo' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, timeout=600, check=False
        ).returncode
        == 0
    )


@pytest.mark.slow
def test_training_on_files_without_a_logger_runs_where_datasets_and_wandb_are_not_installed(
    tmp_path,
):
    write_text(tmp_path)

    trained, evaluated = in_a_fresh_interpreter(
        tmp_path,
        ["train.py", *TEXT, *TINY, "name=small"],
        ["evaluate.py", "run=outputs/small", "accelerator=cpu"],
        absent=["datasets", "wandb", "pyarrow", "tensorboard"],
    )

    assert (trained["code"], evaluated["code"]) == (0, 0)
    assert {"torch", "pytorch_lightning", "sacrebleu"} <= set(evaluated["loaded"])
    assert (tmp_path / "outputs/small/evaluation/test/hypotheses.txt").read_text().count("\n") == 5


def test_every_library_has_been_seen_somewhere():
    """Otherwise the table of homes describes another program."""
    seen = defaultdict(set)
    for module, found in all_imports().items():
        for name in found:
            seen[name.name.split(".")[0]].add(module)

    assert set(HOMES) - set(seen) == set()
