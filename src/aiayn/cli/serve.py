"""`aiayn serve`: translates over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from aiayn.cli import arguments
from aiayn.config.schema import ServeConfig
from aiayn.errors import ConfigError


def serve(
    run: arguments.RunArgument,
    port: Annotated[int, typer.Option(help="0: any free one.")] = ServeConfig.port,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = ServeConfig.host,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name that clients call the server by; may be repeated.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="A web page that may use the server; may be repeated.")
    ] = None,
    api_key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Accepted API keys, one per line.")] = None,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.")] = ServeConfig.max_body,
    max_line: Annotated[int, typer.Option(help="Subwords of a line.")] = ServeConfig.max_line,
    max_waiting: Annotated[int, typer.Option(help="Lines of all requests that wait.")] = ServeConfig.max_waiting,
    max_connections: Annotated[int, typer.Option(help="Open connections.")] = ServeConfig.max_connections,
    time_limit: Annotated[float, typer.Option(help="Seconds that a request may take.")] = ServeConfig.time_limit,
    beam_size: arguments.BeamSize = None,
    length_penalty: arguments.Alpha = None,
    ensemble: arguments.With = None,
    checkpoint: arguments.CheckpointName = None,
    accelerator: arguments.Accelerator = "auto",
    precision: arguments.Precision = "float32",
    debug: arguments.Debug = False,
) -> None:
    """Serves a page to translate on, and LibreTranslate's API: /translate, /languages, /frontend/settings, /health.

    Requests that wait are translated together; answers are those of `aiayn translate`. By default only this machine can
    connect. SIGTERM and Ctrl-C end the server once accepted requests are answered.

    Needs the extra `serve`.
    """
    options = ServeConfig(
        host=host,
        port=port,
        allow_host=allow_host or (),
        allow_origin=allow_origin or (),
        api_keys=_read_keys(api_key_file) if api_key_file else (),
        max_body=max_body,
        max_line=max_line,
        max_waiting=max_waiting,
        max_connections=max_connections,
        time_limit=time_limit,
    )
    try:
        from aiayn.server.serve import serve as serve_until_stopped
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'aiayn[serve]'") from error
    translator = arguments.load_translator(run, checkpoint, beam_size, length_penalty, accelerator, precision, ensemble)
    serve_until_stopped(translator, run.resolve().name, options)


def _read_keys(path: Path) -> list[str]:
    """Returns the keys in a file. Raises ConfigError if there is none."""
    try:
        keys = path.read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key-file {path}: cannot be read ({error})") from error
    if not keys:
        raise ConfigError(f"--api-key-file {path}: there is no key in it; write one per line")
    return keys
