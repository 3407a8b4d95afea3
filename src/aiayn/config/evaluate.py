"""Options of `evaluate.py`."""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath

from aiayn.config.rules import Paths, check_rules, listed, option, outputs_folder, path_or_paths, require
from aiayn.config.search import SearchOverrides


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """All options of `evaluate.py`. What each one does stands beside its value in `conf/evaluate.yaml`."""

    run: str
    outputs: str | None = None
    split: str = option("test", choices=("val", "test"))
    checkpoint: str | None = None
    test: str | None = None
    trusted: bool = False
    references: Paths = option(None, partial(path_or_paths, "a file", may_be_empty=True))
    ensemble: Paths = option(None, partial(path_or_paths, "a run's folder", may_be_empty=True))
    baseline: str | None = None
    accelerator: str = option("auto", choices=("auto", "cpu", "gpu"))
    devices: int = option(1, least=1, most=1000)
    extensions: list[str] = field(default_factory=list)
    debug: bool = False
    search: SearchOverrides = field(default_factory=SearchOverrides)

    def __post_init__(self) -> None:
        check_rules("", self)
        require(bool(self.run), "run is empty: name a run's folder, such as run=outputs/NAME")
        name = PurePath(self.test or "").name
        require(
            self.test is None or (name.isprintable() and not name.startswith(".") and name != ""),
            f"test={self.test!r}: the results go to a folder named after the last part of the path; name the files "
            "FOLDER/NAME, where NAME does not begin with a dot",
        )

    def found(self) -> "EvaluateConfig":
        """Returns the options with the runs' folders, those that are named alone below `outputs`."""

        def folder(run: str) -> str:
            below = outputs_folder(self.outputs) / run
            return str(below) if below.is_dir() and not Path(run).exists() else run

        ensemble = [folder(run) for run in listed(self.ensemble)] or None
        baseline = folder(self.baseline) if self.baseline else None
        return replace(self, run=folder(self.run), ensemble=ensemble, baseline=baseline)
