"""Options of `evaluate.py`."""

from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath

from aiayn.config.rules import (
    Options,
    Paths,
    listed,
    option,
    option_group,
    outputs_folder,
    path_or_paths,
    require,
    section,
)
from aiayn.config.search import SearchOverrides


@option_group("evaluate")
class EvaluateConfig(Options):
    """All options of `evaluate.py`."""

    run: str = option("a run's folder, or its name below outputs")
    outputs: str | None = option(
        "root folder of all runs; null: $AIAYN_OUTPUTS if set, else outputs"
    )
    split: str = option("", choices=("val", "test"))
    checkpoint: str | None = option(
        "averaged | best | last | a file; null: last until training ends, then averaged, or best "
        "if that validated better"
    )
    test: str | None = option(
        "PREFIX of text files, PREFIX.SRC and PREFIX.TGT, to score instead of the split"
    )
    trusted: bool = option(
        "true: read the run's own text from any path; false: only from the current folder and the "
        "run folder"
    )
    references: Paths = option(
        "a file or [FILE,...]: additional references for the split or test=",
        partial(path_or_paths, "a file", may_be_empty=True),
    )
    ensemble: Paths = option(
        "a run or [RUN,...] that translates together with run as one model",
        partial(path_or_paths, "a run's folder", may_be_empty=True),
    )
    hypotheses: str | None = option(
        "a file of translations by another decoder, scored instead of a search"
    )
    baseline: str | None = option("another run's folder to compare with")
    out: str | None = option("folder for the results; null: evaluation/SPLIT in the run's folder")
    accelerator: str = option("", choices=("auto", "cpu", "gpu"))
    devices: int = option("processes that share the work", least=1, most=1000)
    extensions: list[str] = option(
        "[FILE,...]: Python files that define parts of the model, metrics or a constraint"
    )
    debug: bool = option("true: show tracebacks")
    search: SearchOverrides = section(SearchOverrides)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.run), "run is empty: name a run's folder, such as run=outputs/NAME")
        for key, value in {"hypotheses": self.hypotheses, "out": self.out}.items():
            require(value != "", f"{key} is empty: name a path, or leave it out")
        if self.hypotheses is not None:
            given = {f"search.{key}": value for key, value in vars(self.search).items()}
            for key, value in {**given, "ensemble": self.ensemble}.items():
                require(
                    value is None,
                    f"{key}={value}: has no effect on translations from a file; leave out this "
                    "option or hypotheses=",
                )
        name = PurePath(self.test or "").name
        is_hidden = name[:1] in ("", ".")
        is_name = name.isprintable() and not is_hidden
        require(
            self.test is None or is_name,
            f"test={self.test!r}: the results go to a folder named after the last part of the "
            "path; name the files FOLDER/NAME, where NAME does not begin with a dot",
        )

    def with_run_folders(self) -> "EvaluateConfig":
        """Returns the options with the runs' folders, those that are named alone below
        `outputs`.
        """

        def folder(run: str) -> str:
            below = outputs_folder(self.outputs) / run
            return run if Path(run).exists() or not below.parent.is_dir() else str(below)

        ensemble = [folder(run) for run in listed(self.ensemble)] or None
        baseline = folder(self.baseline) if self.baseline else None
        return replace(self, run=folder(self.run), ensemble=ensemble, baseline=baseline)
