"""Arguments and options that several commands share, and the model that they load."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from aiayn.config.rules import one_of
from aiayn.config.search import ENGINES, PRECISIONS, SearchOverrides
from aiayn.errors import ConfigError
from aiayn.runs.run_folder import find_checkpoints

if TYPE_CHECKING:
    from aiayn.search.line_translator import LineTranslator
    from aiayn.search.translator import Translator

RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run's folder, such as outputs/quickstart, or a checkpoint file.")
]
CheckpointName = Annotated[
    str | None,
    typer.Option(help="averaged, best, last or a file; by default averaged (best if that is better), else last."),
]
Accelerator = Annotated[str, typer.Option(help="auto, cpu or gpu.")]
Extensions = Annotated[
    list[str] | None,
    typer.Option("--extension", metavar="FILE", help="A Python file that the model has parts of; may be repeated."),
]
DEBUG = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@dataclass(kw_only=True, frozen=True)
class ModelChoice:
    """Which model a command loads, and how it scores. Raises ConfigError for impossible options."""

    length_penalty: Annotated[
        float | None, typer.Option(help="alpha; 0: no correction, which favours short translations.")
    ] = None
    ensemble: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="RUN", help="A run that translates together with it; may be repeated."),
    ] = None
    checkpoint: CheckpointName = None
    accelerator: Accelerator = "auto"
    precision: Annotated[str, typer.Option(help="float32; faster, less exact: int8 (CTranslate2 only), bfloat16.")] = (
        "float32"
    )
    extension: Extensions = None

    def __post_init__(self) -> None:
        one_of("--accelerator", self.accelerator, ("auto", "cpu", "gpu"))
        one_of("--precision", self.precision, PRECISIONS)

    def load(self, run: Path) -> "Translator":
        """Loads the model of a run in torch. Checks options and files before that is imported.

        Raises what `Translator.from_run` raises.
        """
        search = SearchOverrides(length_penalty=self.length_penalty)
        ensemble = self.ensemble or ()
        find_checkpoints(run, ensemble, self.checkpoint)
        from aiayn.runs.extensions import name_extensions
        from aiayn.search.translator import Translator

        name_extensions(self.extension or [])
        return Translator.from_run(run, self.checkpoint, search, self.accelerator, self.precision, ensemble)


@dataclass(kw_only=True, frozen=True)
class ModelAndSearch(ModelChoice):
    """Which model a command loads, how it searches, and with which engine."""

    beam_size: Annotated[int | None, typer.Option(help="Hypotheses kept per sentence; 1 is greedy search.")] = None
    # The default has, on three test sets, the scores of the exact search, a third faster.
    patience: Annotated[
        float,
        typer.Option(
            help="A search ends once this many times --beam-size translations ended; 0: when none can be better."
        ),
    ] = 2.0
    engine: Annotated[
        str,
        typer.Option(help="ctranslate2, the faster one; torch; auto: ctranslate2 where it can do what is asked."),
    ] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("--engine", self.engine, ENGINES)

    def open(
        self, run: Path, devices: int = 1, only_torch: str | None = None
    ) -> "AbstractContextManager[tuple[LineTranslator, str]]":
        """Returns a context with the translator of a run and a line that says what its engine is.

        `only_torch` says why torch is needed, if it is. Checks options and files before anything slow is imported.
        Raises what `open_translator` raises.
        """
        if only_torch and self.engine == "ctranslate2":
            raise ConfigError(f"--engine ctranslate2: {only_torch}; choose torch or auto")
        checkpoints = find_checkpoints(run, self.ensemble or (), self.checkpoint)
        search = SearchOverrides(beam_size=self.beam_size, length_penalty=self.length_penalty, patience=self.patience)
        from aiayn.search.engine import Choice, open_translator

        return open_translator(
            Choice(
                checkpoints=checkpoints,
                search=search,
                engine=self.engine,
                accelerator=self.accelerator,
                precision=self.precision,
                devices=devices,
                extensions=self.extension or [],
                only_torch=only_torch,
            )
        )


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Returns a command for typer, which gets the fields of dataclasses among its parameters as options, and --debug.

    The help of a field is in its annotation, as of any option, or in its metadata: {"help": ..., "metavar": ...}.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _parameters(groups[parameter.name])
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name], kind=parameter.KEYWORD_ONLY))
    parameters.append(inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=DEBUG))

    def flat(debug: bool, **given: Any) -> None:  # what --debug does, `one_line_errors` does
        built = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **built)

    flat.__name__, flat.__doc__ = command.__name__, command.__doc__
    vars(flat)["__signature__"] = inspect.Signature(parameters)
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _parameters(group: type) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        hint = hints[field.name]
        if "help" in field.metadata:
            names = [f"--{field.name.replace('_', '-')}"] if hint is bool else []  # else there would be a --no-..., too
            hint = Annotated[hint, typer.Option(*names, **field.metadata)]
        default = field.default if field.default_factory is MISSING else field.default_factory()
        yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
