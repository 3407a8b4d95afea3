"""The jobs of a sweep: their names, their checked configurations, and whether they are finished."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from omegaconf import DictConfig, OmegaConf

from aiayn import entry
from aiayn.config import NAME_CHARACTERS, Config, changed_options, is_from_source, to_plain, with_added
from aiayn.errors import ConfigError, DataError, UserError

OUTPUTS = Path("outputs")
LONGEST = 150  # characters of a folder's name


@dataclass(frozen=True)
class Row:
    """One job. `overrides` make `config`, and are what its process is started with; `chosen`: the options they set."""

    name: str
    overrides: list[str]
    config: Config
    chosen: frozenset[str]

    @property
    def folder(self) -> Path:
        return OUTPUTS / self.config.name


def make_rows(compose: Callable[[list[str]], DictConfig], batch: Sequence[Sequence[str]], conf: Path) -> list[Row]:
    """Checks the configurations of all jobs. Raises ConfigError with a line for each thing that is wrong.

    compose makes Hydra's configuration of a list of overrides; conf is the folder of the configuration files.
    """
    names = row_names(batch)
    configs, choices, wrong = [], [], {}
    for name, overrides in zip(names, batch, strict=True):
        try:
            composed = compose(list(overrides))
            choices.append(composed.hydra.runtime.choices)
            options = OmegaConf.masked_copy(composed, [key for key in composed if key != "hydra"])
            configs.append(entry.accepted(options, choices[-1], conf))
        except entry.COMPOSITION_ERRORS as error:
            text = str(error) if isinstance(error, UserError) else entry.one_line(error, Config)
            wrong.setdefault(text, []).append(name)
    _refuse(wrong, len(batch), ConfigError)
    sweep = configs[0].sweep or _sweep_name(choices)
    rows = []
    for name, overrides, config in zip(names, batch, configs, strict=True):
        config.name, config.sweep = f"sweeps/{sweep}/{name}", sweep
        settings = {"name": config.name, "sweep": sweep}
        if config.logger.group is None:
            config.logger.group = settings["logger.group"] = sweep
        # Quoted, since a name may look like a number.
        overrides = [*overrides, *(f"{key}='{value}'" for key, value in settings.items())]
        rows.append(Row(name, overrides, config, frozenset(entry.chosen_options(overrides, conf))))
    return rows


def row_names(batch: Sequence[Sequence[str]]) -> list[str]:
    """What each job changes, as the name of a folder: a_h1, n_heads-4_d_k-16. Raises ConfigError if two are alike."""
    jobs = [dict(override.lstrip("+~").partition("=")[::2] for override in job) for job in batch]
    swept = [key for key in jobs[0] if len({job.get(key) for job in jobs}) > 1 and key != "ablation"]
    names: list[str] = []
    for job in jobs:
        parts = [job["ablation"].rpartition("/")[2]] if "ablation" in job else []  # quarter/a_h1: a_h1
        for key in swept:
            short = key.rpartition(".")[2]
            alone = sum(other.rpartition(".")[2] == short for other in swept) == 1
            parts.append(f"{short if alone else key}-{job[key]}")
        name = "_".join(_as_name(part) for part in parts) or "base"
        if name in names or len(name) > LONGEST:
            raise ConfigError(f"{', '.join(swept)}: no distinct short folder names follow from these values ({name})")
        names.append(name)
    return names


def check_texts(rows: Sequence[Row]) -> None:
    """Raises DataError if the text of a job that is not finished is missing."""
    wrong: dict[str, list[str]] = {}
    checked = []
    for row in rows:
        if row.config.data in checked or row.config.init_from or is_finished(row):
            continue
        from aiayn.data.prepared import check_text

        checked.append(row.config.data)
        try:
            check_text(row.config.data)
        except DataError as error:
            wrong.setdefault(str(error), []).append(row.name)
    _refuse(wrong, len(checked), DataError)


def is_finished(row: Row) -> bool:
    """Whether the run was trained with these options to its last step, and then scored with this search."""
    try:
        scored = json.loads((row.folder / "evaluation/val/evaluation.json").read_text(encoding="utf-8"))
        stored = yaml.safe_load((row.folder / "config.yaml").read_text(encoding="utf-8"))
        changed = set(changed_options(with_added(Config, stored), row.config))
        if row.config.init_from is not None:
            changed -= {key for key in changed if is_from_source(key) and key not in row.chosen}
        return (
            scored["checkpoint"] == "last.ckpt"
            and scored["step"] >= row.config.trainer.max_steps
            and scored["search"] == to_plain(row.config.search)
            and (row.folder / "checkpoints/averaged.ckpt").exists()
            and not changed
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return False


def _refuse(wrong: Mapping[str, Sequence[str]], jobs: int, kind: type[UserError]) -> None:
    """Raises an error that says each message once, with the rows that it is about."""
    if wrong:
        lines = [text if len(rows) == jobs else f"{', '.join(rows)}: {text}" for text, rows in wrong.items()]
        raise kind("\nerror: ".join(lines))


def _sweep_name(choices: Sequence[Mapping[str, str]]) -> str:
    """Data and model, as far as all jobs have the same."""
    common = [choices[0][group] for group in ("data", "model") if len({choice[group] for choice in choices}) == 1]
    if not common:
        raise ConfigError("sweep is missing: the jobs share neither data nor model; set sweep=NAME")
    return "-".join(common)


def _as_name(text: str) -> str:
    """Fit for a folder and a command line: no quotes, no `=`, no `/`."""
    kept = "".join(letter if letter in NAME_CHARACTERS else "-" for letter in text.replace("'", "").replace('"', ""))
    return kept.strip("-._") or "empty"
