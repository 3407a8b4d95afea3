"""Options of `evaluate.py`."""

from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from aiayn.config.rules import Paths, are_paths, at_least, listed, one_of, outputs_folder, require
from aiayn.config.search import SearchOverrides


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """All options of `evaluate.py`."""

    run: str
    outputs: str | None = None  # the root of runs that are named alone; null: AIAYN_OUTPUTS, or else outputs
    split: str = "test"  # val | test
    checkpoint: str | None = None  # averaged | best | last | a file; null: averaged (best if that is better), else last
    test: str | None = None  # PREFIX of text files to translate and score instead of the split
    trusted: bool = False  # follow the path of the text that the run has stored, wherever it leads
    references: Paths = None  # a file or a list of files: further references, beside that of the split or of `test`
    ensemble: Paths = None  # a run's folder or a list of them: they translate together with `run`
    baseline: str | None = None  # another run's folder to compare with
    accelerator: str = "auto"  # auto | cpu | gpu
    devices: int = 1  # processes that share the translation
    extensions: list[str] = field(default_factory=list)  # Python files that bring model parts or metrics
    debug: bool = False
    search: SearchOverrides = field(default_factory=SearchOverrides)

    def __post_init__(self) -> None:
        at_least("devices", self.devices, 1, most=1000)
        require(bool(self.run), "run is empty: name a run's folder, such as run=outputs/NAME")
        one_of("split", self.split, ("val", "test"))
        if self.test is not None:
            name = PurePath(self.test).name
            require(
                name.isprintable() and not name.startswith(".") and name != "",
                f"test={self.test!r}: the results go to a folder named after the last part of the path; name the files "
                "FOLDER/NAME, where NAME does not begin with a dot",
            )
        for name, kind, example in (
            ("ensemble", "a run's folder", "[outputs/B,outputs/C]"),
            ("references", "a file", "[ref2.de,ref3.de]"),
        ):
            value = getattr(self, name)
            holds = value is None or value == [] or are_paths(value)
            require(holds, f"{name}={value}: must be {kind} or a list of them, {name}={example}")
        one_of("accelerator", self.accelerator, ("auto", "cpu", "gpu"))

    def found(self) -> "EvaluateConfig":
        """Returns the options with the runs' folders, those that are named alone below `outputs`."""

        def folder(run: str) -> str:
            below = outputs_folder(self.outputs) / run
            return str(below) if below.is_dir() and not Path(run).exists() else run

        ensemble = [folder(run) for run in listed(self.ensemble)] or None
        baseline = folder(self.baseline) if self.baseline else None
        return replace(self, run=folder(self.run), ensemble=ensemble, baseline=baseline)
