"""Arguments and options that several commands share, and the model that they load."""

import argparse
import inspect
import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, redirect_stderr
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from aiayn.config.rules import flag, is_section, one_of, require
from aiayn.config.search import ENGINES, PRECISIONS, SearchOverrides
from aiayn.runs.run_folder import find_checkpoints, with_stored

if TYPE_CHECKING:
    from aiayn.search.line_translator import LineTranslator


class Positional:
    """Declares an argument of a command without importing typer."""

    def __init__(self, help: str, *names: str, **settings: Any):
        self.names, self.settings = names, {"help": help, **settings}


class Option(Positional):
    """Declares an option of a command, which has the name of its parameter unless given others."""


RunArgument = Annotated[
    Path,
    Positional("A run's folder, such as outputs/quickstart, or a checkpoint file.", metavar="RUN"),
]
CheckpointName = Annotated[
    str | None,
    Option(
        "averaged, best, last or a file; default: last until training ends, then averaged, or best "
        "if that validated better."
    ),
]
Accelerator = Annotated[str, Option("auto, cpu or gpu.")]
Extensions = Annotated[
    list[str] | None,
    Option(
        "Python file that defines parts of the model, or `stored` for the run's own copy; may be "
        "repeated.",
        "--extension",
        metavar="FILE",
    ),
]
DEBUG = Annotated[bool, Option("Show the traceback of an error.", "--debug")]


@dataclass(kw_only=True, frozen=True)
class ModelChoice:
    """Which model a command loads, and how it scores. Raises ConfigError for impossible options."""

    length_penalty: float | None = flag(
        None, "Exponent alpha; 0, no length penalty, favours short translations."
    )
    ensemble: list[Path] | None = flag(
        None, "Another run for an ensemble; may be repeated.", "--with", metavar="RUN"
    )
    checkpoint: CheckpointName = None
    accelerator: Accelerator = "auto"
    precision: str = flag(
        "float32", "float32, or faster and less exact: int8 (CTranslate2 only), bfloat16."
    )
    extension: Extensions = None

    def __post_init__(self) -> None:
        one_of("--accelerator", self.accelerator, ("auto", "cpu", "gpu"))
        one_of("--precision", self.precision, PRECISIONS)

    def open(
        self, run: Path, devices: int = 1, only_torch: str | None = None
    ) -> "AbstractContextManager[tuple[LineTranslator, str]]":
        """Returns a context with the translator of a run and a line that says what its engine is.

        `only_torch` says why torch is needed, if it is. Checks options and files before anything
        slow is imported. Raises what `open_translator` raises.
        """
        engine = getattr(self, "engine", "auto")
        require(
            not only_torch or engine != "ctranslate2",
            f"--engine ctranslate2: {only_torch}; choose torch or auto",
        )
        names = ("beam_size", "length_penalty", "patience")
        search = SearchOverrides(**{name: getattr(self, name, None) for name in names})
        checkpoints = find_checkpoints(run, self.ensemble or (), self.checkpoint)
        from aiayn.search.engine import Choice, open_translator

        return open_translator(
            Choice(
                checkpoints=checkpoints,
                search=search,
                engine=engine,
                accelerator=self.accelerator,
                precision=self.precision,
                devices=devices,
                extensions=with_stored(self.extension, run),
                only_torch=only_torch,
            )
        )


@dataclass(kw_only=True, frozen=True)
class ModelAndSearch(ModelChoice):
    """Which model a command loads, how it searches, and with which engine."""

    beam_size: int | None = flag(None, "Hypotheses kept per sentence; 1 is greedy search.")
    # The default has, on three test sets, the scores of the exact search, a third faster.
    patience: float = flag(
        2.0, "Finished translations that end a search, as a multiple of --beam-size; 0: exact."
    )
    engine: str = flag(
        "auto", "ctranslate2 (faster), torch, or auto: ctranslate2 if it supports what you ask for."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("--engine", self.engine, ENGINES)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Returns a command for typer, which gets the fields of dataclasses among its parameters as
    options, and --debug.

    The help of a field is in its annotation, as of any option, or it is a `flag`.
    """
    parameters = [
        parameter.replace(annotation=_for_typer(parameter.annotation), kind=parameter.KEYWORD_ONLY)
        for parameter in _parameters(command)
    ]

    def flat(**values: Any) -> None:
        _call(command, values)

    flat.__name__, flat.__doc__ = command.__name__, command.__doc__
    vars(flat)["__signature__"] = inspect.Signature(parameters)
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _for_typer(hint: Any) -> Any:
    """Returns the annotation of a parameter as typer reads it."""
    import typer

    [declared] = getattr(hint, "__metadata__", [None])
    if not isinstance(declared, Positional):
        return hint
    declare = typer.Option if isinstance(declared, Option) else typer.Argument
    return Annotated[hint.__origin__, declare(*declared.names, **declared.settings)]


def run_without_typer(command: Callable[..., None], arguments: list[str]) -> bool:
    """Runs a command with these arguments; False, and nothing has been done, if only typer can
    answer them.

    typer and pydantic take 0.3 s to import, several times as long as the translation of a line.
    Help texts and messages about mistakes are theirs.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parameters = _parameters(command)
    for parameter in parameters:
        of_type, declared = get_args(parameter.annotation)
        [value_type] = [
            choice for choice in get_args(of_type) or [of_type] if choice is not type(None)
        ]
        settings: dict[str, Any] = {"type": value_type}
        if get_origin(value_type) is list:
            settings = {"type": get_args(value_type)[0], "action": "append"}
        elif value_type is bool:
            settings = {"action": "store_true"}
        if parameter.default is not parameter.empty:
            settings["default"] = parameter.default
        if isinstance(declared, Option):
            names = declared.names or [f"--{parameter.name.replace('_', '-')}"]
            parser.add_argument(*names, dest=parameter.name, **settings)
        else:
            parser.add_argument(parameter.name, nargs="?", **settings)
    try:
        with redirect_stderr(io.StringIO()):
            values = vars(parser.parse_intermixed_args(arguments))
    except SystemExit:
        return False
    for parameter in parameters:
        value, limits = values[parameter.name], get_args(parameter.annotation)[1].settings
        if value is None and parameter.default is parameter.empty:
            return False
        if value is not None and not limits.get("min", value) <= value <= limits.get("max", value):
            return False
    _call(command, values)
    return True


def _call(command: Callable[..., None], values: dict[str, Any]) -> None:
    """Calls a command with the values of its parameters, and of the fields of its groups."""
    values.pop("debug")  # `one_line_errors` has read it
    for name, group in _hints(command).items():
        if is_section(group):
            options = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**options)
    command(**values)


def _parameters(command: Callable[..., None]) -> list[inspect.Parameter]:
    """Returns the parameters of a command, with the fields of its groups, which are dataclasses, in
    their place and --debug at the end.
    """
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        hint = _hints(command)[name]
        if is_section(hint):
            parameters += _fields_as_parameters(hint)
        else:
            parameters.append(parameter.replace(annotation=hint))
    kind = inspect.Parameter.KEYWORD_ONLY
    return [*parameters, inspect.Parameter("debug", kind, default=False, annotation=DEBUG)]


def _fields_as_parameters(group: Any) -> Iterator[inspect.Parameter]:
    hints = _hints(group)
    for field in fields(group):
        hint = hints[field.name]
        if settings := dict(field.metadata):
            names = settings.pop("names")
            if hint is bool and not names:  # otherwise typer adds a --no-... option
                names = [f"--{field.name.replace('_', '-')}"]
            hint = Annotated[hint, Option(settings.pop("help"), *names, **settings)]
        default = field.default if field.default_factory is MISSING else field.default_factory()
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
        )


def _hints(annotated: Any) -> dict[str, Any]:
    return get_type_hints(annotated, include_extras=True)
