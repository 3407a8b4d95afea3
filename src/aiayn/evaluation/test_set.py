"""The text that is translated and scored: untouched sources and references."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiayn.config.data import DataOptions
from aiayn.config.evaluate import EvaluateConfig
from aiayn.config.rules import Paths, listed, require, tagged
from aiayn.config.tasks import TASKS
from aiayn.data.languages import target_language
from aiayn.data.sources import FileText, text_of
from aiayn.data.text_files import read_parallel
from aiayn.errors import DataError, RefusedError
from aiayn.files import lines_sha256
from aiayn.reports.published import known_test_set
from aiayn.runs.owner import is_own
from aiayn.runs.results import read_evaluation
from aiayn.runs.run_folder import EvaluationFolder, RunFolder, folder_of


@dataclass(frozen=True)
class TestSet:
    """Untouched text; `name` is the folder of its results, `option` the command line's option for
    it.
    """

    name: str
    option: str
    sources: list[str]
    references: list[list[str]]  # one text or several, line for line
    prefix: Paths  # what data.SPLIT names for the run's own split, else what test= names
    of_paper: str | None  # the paper's name for it, as `known_test_set` finds it
    tgt_lang: str  # of the references, as `target_language` finds it
    split: str | None  # the run's own split, if it is that text with no further references

    @property
    def fingerprint(self) -> str:
        """Returns the SHA-256 of sources and references."""
        return lines_sha256(self.sources, *self.references)


def read_test_set(config: EvaluateConfig, data: DataOptions) -> TestSet:
    """Returns the text of test=PREFIX, or of the run's own split, with the further references.

    Raises ConfigError for options that do not apply to a parser, DataError for missing or
    misaligned text, RefusedError for other text under the name of a split of the run.
    """
    for option in TASKS[data.task].unsupported:
        require(
            not getattr(config, option),
            f"{option} does not apply to data.task={data.task}, the task of {config.run}; leave "
            "it out",
        )
    split: str | None = config.split
    if config.test is None:
        _refuse_elsewhere(config, data)
        try:
            sources, references = text_of(data, config.split).read()
        except DataError as error:
            raise DataError(f"{error}; or name other text: test=PREFIX") from error
        name, option, prefix = config.split, f"split={config.split}", getattr(data, config.split)
    else:
        sources, references = FileText("test", [config.test], (data.src_lang, data.tgt_lang)).read()
        option, prefix = f"test={config.test}", config.test
        # No `=` in any path that is written: Hydra could not read it back.
        name = Path(tagged(config.test)[1]).name.replace("=", "-")
        split = _split_named(name, config, data, (sources, references))
    further = listed(config.references)
    texts = [references, *(read_parallel("references", file, len(sources)) for file in further)]
    if len(texts) > 1:
        option += f" references=[{','.join(further)}]"
        name += f"-{len(texts)}-references"  # scores against several references differ
    is_wmt14 = data.source == "hub" and Path(data.hub_path or "").name == "wmt14"
    from_wmt14 = is_wmt14 and config.test is None
    file = Path(prefix).name if isinstance(prefix, str) else ""
    of_paper = known_test_set(lines_sha256(sources, references), len(sources), file, from_wmt14)
    prefix = getattr(data, split) if split else prefix
    tgt_lang = target_language(sources, data.tgt_lang)
    return TestSet(
        name, option, sources, texts, prefix, of_paper, tgt_lang, split if len(texts) == 1 else None
    )


def _refuse_elsewhere(config: EvaluateConfig, data: DataOptions) -> None:
    """Raises RefusedError for a stored path that leads out of the working directory and out of the
    run's folder.

    A run may come from somebody else, and what is evaluated is copied into its folder. A run that
    this user trained is trusted.
    """
    signed = RunFolder(folder_of(Path(config.run))).owner
    if config.trusted or data.source == "phrasebook" or is_own(signed, data):
        return
    name = config.split if data.source == "files" else "hub_path"
    roots = (Path.cwd(), folder_of(Path(config.run)))
    for path in listed(getattr(data, name)):
        location = Path(tagged(path)[1]).expanduser().resolve()
        is_within = any(location.is_relative_to(root.resolve()) for root in roots)
        is_file = data.source == "files" or location.exists()  # else the name of a data set
        if is_file and not is_within:
            raise RefusedError(
                f"run={config.run}: data.{name}={path} is outside its folder and this one, and a "
                f"run from somebody else may name any file; add test={path}, or trusted=true if "
                "the run is your own"
            )


def results_folder(run: RunFolder, test: TestSet, ensemble: Sequence[str] = ()) -> EvaluationFolder:
    """Returns where the results of a text go, translated by the run and an ensemble's other runs.

    It is named after them; where that name is taken by other text, or by runs of the same names in
    other folders, a part of their SHA-256 follows.
    """
    other_runs = [Path(other).resolve() for other in ensemble]
    folder = run.evaluation("-with-".join([test.name, *(other.name for other in other_runs)]))
    stored = read_evaluation(folder.scores)
    if stored is None or (test.split and not other_runs):
        return folder
    members = [Path(member["run"]).resolve() for member in stored.ensemble]
    if members == other_runs and stored.text_sha256 == test.fingerprint:
        return folder
    return run.evaluation(
        f"{folder.folder.name}-{lines_sha256([test.fingerprint, *map(str, other_runs)])[:8]}"
    )


def _split_named(
    name: str, config: EvaluateConfig, data: DataOptions, text: tuple[list[str], list[str]]
) -> str | None:
    """Returns the split whose folder this text's results go to if it is the split's own text, else
    None.

    Raises RefusedError if the split is another text: its scores must not be overwritten.
    """
    if name not in ("val", "test") or getattr(data, name) is None:
        return None
    stored = read_evaluation(RunFolder(folder_of(Path(config.run))).evaluation(name).scores)
    try:
        split_sha256 = lines_sha256(*text_of(data, name).read())
    except DataError:  # the text was moved; what was scored is known
        split_sha256 = stored.text_sha256 if stored and stored.is_of_split(name) else None
    if split_sha256 not in (None, lines_sha256(*text)):
        raise RefusedError(
            f"test={config.test}: evaluation/{name} belongs to the run's own split, "
            f"data.{name}={getattr(data, name)}; rename the files of this text"
        )
    return name if split_sha256 else None
