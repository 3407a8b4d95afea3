"""`aiayn serve`: translates over HTTP."""

import signal

from aiayn.apps.server.options import ServeOptions, read_keys
from aiayn.cli.arguments import ModelAndSearch, RunArgument
from aiayn.errors import ConfigError
from aiayn.runs.run_folder import find_checkpoint


def serve(run: RunArgument, options: ServeOptions, model: ModelAndSearch) -> None:
    """Serves a page for translating and LibreTranslate's API.

    Paths are /translate, /translate_file, /detect, /languages, /frontend/settings and /health;
    /metrics is for Prometheus. Waiting requests are translated together, as by `aiayn translate`.
    By default only this machine can connect. SIGTERM and Ctrl-C end the server
    once accepted requests are answered; SIGHUP reloads model and keys.

    Needs the extra `serve`.
    """
    if hasattr(signal, "SIGHUP"):  # not on Windows
        # A reload while the model is being loaded would end the command
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if options.api_key_file:
        read_keys(options.api_key_file)  # errors of options come before slow imports
    try:
        from aiayn.apps.server.serve import serve as serve_until_stopped
        from aiayn.apps.server.service import Served, Service
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'aiayn[serve]'") from error

    def load() -> Served:
        api_keys = read_keys(options.api_key_file) if options.api_key_file else []
        with model.open(run) as (translator, engine):
            return Served(translator, api_keys, str(find_checkpoint(run, model.checkpoint)), engine)

    service = Service(load)
    # Once all is answered: systemd takes no exit code for a clean end
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    serve_until_stopped(service, run.resolve().name, options)
