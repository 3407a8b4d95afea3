"""Weights & Biases: the run's page there, what is sent to it, and the upload of the finished
model.
"""

import logging
import os
import secrets
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from pytorch_lightning.loggers import WandbLogger

from aiayn.config.schema import Config
from aiayn.config.stored import to_dict
from aiayn.config.tasks import METRICS
from aiayn.errors import ConfigError, one_line
from aiayn.files import atomic_write, read_regular
from aiayn.runs import checkpoints
from aiayn.runs.continuation import read_options
from aiayn.runs.results import Evaluation
from aiayn.runs.run_folder import RunFolder

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5


def wandb_logger(config: Config, folder: Path) -> WandbLogger:
    """Starts the run there, and logs what leaves this machine, and where it goes. Raises
    ConfigError if the client does not start.
    """
    experiment, logger = _start_client(config, folder), config.logger
    if wandb_mode(logger.mode) == "disabled":
        log.info("wandb    nothing is sent (disabled)")
        return WandbLogger(experiment=experiment)
    sent = ["curves", "options", "machine"]
    no_text = "; no text (logger.samples=true sends validation sentences)"
    if logger.samples:
        sent.append("validation sentences with translations and attention")
        no_text = ""
    if logger.upload:
        sent.append("the final checkpoint")
    destination = (
        f"stored offline in {folder}/wandb; upload with `wandb sync {folder}/wandb/offline-*`"
    )
    if not experiment.offline:
        destination = f"sent to {experiment.url}"
    log.info("wandb    %s are %s%s", ", ".join(sent), destination, no_text)
    return WandbLogger(experiment=experiment)


def upload(config: Config, folder: RunFolder) -> None:
    """Sends the averaged checkpoint and its tokenizer to W&B, as an artifact of the run."""
    import wandb

    run = _start_client(config, folder.path)
    artifact = wandb.Artifact(f"model-{run.id}", type="model", metadata=to_dict(config))
    artifact.add_file(str(folder.averaged), policy="immutable")  # without a second copy
    with artifact.new_file("tokenizer.json", encoding="utf-8") as file:
        file.write(checkpoints.load(folder.averaged).tokenizer)
    artifact.add_file(str(folder.config))
    run.log_artifact(artifact)
    run.finish()


def send_scores(folder: RunFolder, scores: Evaluation) -> None:
    """Adds the scores of a text, their signature and length ratio to the summary of the run that
    was trained.

    Keys are `test/sacrebleu` and so on, after the split or the text. A failure costs one line: the
    scores are stored.
    """
    text = scores.split or Path(scores.text.partition("=")[2]).name or "text"
    values = dict(scores.metrics) | {
        "length_ratio": scores.length_ratio("sacrebleu"),
        "signature": scores.signature,
        "step": scores.step,
    }
    try:
        run = _start_client(read_options(folder), folder.path)
        run.summary.update(
            {f"{text}/{name}": value for name, value in values.items() if value is not None}
        )
        run.finish()
    except Exception as error:
        log.warning(
            "warning  the scores were not sent to W&B (%s); they are in the run's evaluation/",
            one_line(error),
        )


def _start_client(config: Config, folder: Path) -> Any:
    """Starts a run of Weights & Biases: online if there is a key, else offline; never prompts.

    Its id is drawn once and stored in the run's folder, so that every later start adds to the same
    curves.
    """
    import wandb
    from wandb.errors import Error

    mode = wandb_mode(config.logger.mode)
    if mode == "online" and not _is_reachable():
        log.warning(
            "warning  W&B cannot be reached from here: the run is stored offline in %s/wandb; "
            "upload it later with `wandb sync %s/wandb/offline-*`",
            *(folder, folder),
        )
        mode = "offline"
    row = config.run_name.rsplit("/", 1)[-1]
    run_id = RunFolder(folder).wandb_id
    if not run_id.exists():
        atomic_write(run_id, f"{secrets.token_hex(4)}\n")
    try:
        # The logger's own start passes options that this client warns about.
        run = wandb.init(
            project=config.logger.project,
            entity=config.logger.entity,
            group=config.logger.group,
            job_type="train",
            tags=[row[:64]] if config.logger.group else None,  # longer tags are refused
            name=config.name,
            id=read_regular(run_id, 1000).decode().strip(),
            dir=folder,
            mode=mode,
            resume="allow" if mode == "online" else None,
            config=to_dict(config) | {"row": row, "d_k": config.model.d_k, "d_v": config.model.d_v},
            # What is printed holds validation sentences.
            settings=wandb.Settings(
                silent=True, console="auto" if config.logger.samples else "off"
            ),
        )
    except Error as error:
        raise ConfigError(
            f"logger=wandb: the client did not start ({one_line(error)}); run `wandb login`, or "
            "set logger.mode=offline"
        ) from error
    # As the logger does for a run that it starts itself: all curves over optimizer steps.
    axis: dict[str, Any] = {"step_metric": "trainer/global_step", "step_sync": True}
    run.define_metric("trainer/global_step")
    run.define_metric("*", **axis)
    # A table of runs shows the best value and the last.
    for name, metric in METRICS.items():
        if name.startswith("val/") and name != "val/length_ratio":
            best = "min" if metric.lower_is_better else "max"
            run.define_metric(name, **axis, summary=f"{best},last")
    return run


def wandb_mode(chosen: str) -> Any:
    """Returns online, offline or disabled: WANDB_MODE if it is set, else what was chosen; auto is
    online if there is a key. The client refuses any other mode.
    """
    mode = os.environ.get("WANDB_MODE") or chosen
    if mode == "auto":
        return "online" if _has_wandb_key() else "offline"
    return mode


@cache
def _is_reachable() -> bool:
    """Returns whether the server answers, through a proxy where one is set; the client would try
    for two minutes in silence.
    """
    import wandb

    try:
        urlopen(wandb.Settings().base_url, timeout=CONNECT_SECONDS).close()
    except (HTTPError, HTTPException):
        return True  # an answer, too
    except OSError as error:
        # The client may know certificates that Python does not.
        return "CERTIFICATE" in str(error)
    return True


@cache
def _has_wandb_key() -> bool:
    """Returns whether the client finds a key that the server accepts; asked once, without a
    prompt.
    """
    import wandb
    from wandb.errors import Error

    try:
        return wandb.login(prompt=False)
    except Error as error:
        log.warning("wandb: %s", one_line(error))
        return False
