"""`aiayn prepare`: the corpus of a training, before it is trained on."""

import logging
from typing import Annotated

import typer

from aiayn.cli.arguments import Debug


def prepare(
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP=NAME] [KEY=VALUE]", help="Options of `aiayn train`.")
    ] = None,
    slurm_jobs: Annotated[int, typer.Option(min=0, help="Encode in so many SLURM jobs; 0: here.")] = 0,
    partition: Annotated[str | None, typer.Option(help="Of the jobs; the cluster's default.")] = None,
    time: Annotated[int, typer.Option(min=1, metavar="MINUTES", help="Of a job.")] = 240,
    cpus: Annotated[int, typer.Option(min=1, help="Of a job, all of which it uses.")] = 4,
    memory: Annotated[float | None, typer.Option(metavar="GB", help="Of a job; the cluster's default.")] = None,
    debug: Debug = False,
) -> None:
    """Prepares the corpus that `aiayn train` with the same options trains on.

    Downloads, cleans, learns the vocabulary and encodes, by all cores of this machine or, on a login node with
    --slurm-jobs, by jobs that share its disk. A stopped preparation goes on from what is done.
    """
    from aiayn.config.compose import compose_training
    from aiayn.config.settle import settle_sizes
    from aiayn.data.encode_shards import encode_on_cores
    from aiayn.data.prepare import check_text, count_training_pairs
    from aiayn.data.prepare import prepare as prepare_corpus
    from aiayn.errors import ConfigError

    composed, _ = compose_training(options or [])
    if composed.init_from is not None:
        raise ConfigError(f"init_from={composed.init_from}: its vocabulary is taken over when the training starts")
    encode = encode_on_cores
    if slurm_jobs:
        from aiayn.sweep.preparation import encode_on_slurm
        from aiayn.sweep.slurm import require_slurm

        require_slurm("--slurm-jobs")
        asked = {"slurm_partition": partition, "timeout_min": time, "cpus_per_task": cpus, "mem_gb": memory}
        encode = encode_on_slurm(slurm_jobs, **{name: value for name, value in asked.items() if value is not None})
    logging.basicConfig(format="%(message)s")
    logging.getLogger("aiayn").setLevel(logging.INFO)
    check_text(composed.data)
    sized = settle_sizes(composed, lambda: count_training_pairs(composed.data))
    print(prepare_corpus(sized.data, encode=encode).folder)
