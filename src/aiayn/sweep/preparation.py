"""The text of a corpus encoded by SLURM jobs, each of which takes some of the shards."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiayn.config.data import DataConfig
from aiayn.errors import ResourceError
from aiayn.sweep.slurm import is_queued, submitting

if TYPE_CHECKING:
    from aiayn.data.encode_shards import Encoder, Shard

POLL = 5.0  # seconds


@dataclass(frozen=True)
class Share:
    """What a SLURM job encodes, with all cores that it got. Files that are complete are not written again."""

    config: DataConfig
    tokenizer: str  # its JSON
    settings: dict[str, Any]
    folder: Path  # holds the shards, on a disk that all machines share
    shards: "list[Shard]"

    def __call__(self) -> None:
        from aiayn.data.encode_shards import Encoder, cores, encode_on_cores
        from aiayn.data.filters import Filters
        from aiayn.data.sources import texts_of
        from aiayn.data.text_files import FileScans
        from aiayn.data.tokenizer import Tokenizer

        texts = texts_of(self.config, FileScans(Path(self.config.folder).expanduser()))
        filters, tokenizer = Filters(self.config, texts["train"]), Tokenizer.from_json(self.tokenizer)
        encoder = Encoder(self.config, texts, self.settings, self.folder, tokenizer, filters)
        missing = [shard for shard in self.shards if not shard.is_done(self.folder)]
        if missing:
            encode_on_cores(encoder, missing, self.config.prepare_processes or cores())


def encode_on_slurm(jobs: int, **parameters: Any) -> "Callable[[Encoder, list[Shard], int], None]":
    """Returns a replacement of `encode_on_cores` that submits so many jobs, with submitit's parameters.

    It waits for them, and cancels them if it is stopped. Raises ConfigError if SLURM refuses the jobs, and
    ResourceError if they end before all shards are encoded; complete shards are not encoded again.
    """

    def encode(encoder: "Encoder", shards: "list[Shard]", processes: int) -> None:
        import submitit

        from aiayn.data.encode_shards import Progress

        folder = encoder.folder.absolute()
        place = folder.parent / ".slurm"
        executor = submitit.AutoExecutor(place, cluster="slurm")
        executor.update_parameters(name="prepare", nodes=1, tasks_per_node=1, stderr_to_stdout=True, **parameters)
        made = encoder.config, encoder.tokenizer.to_json(), encoder.settings, folder
        with submitting("the preparation"):
            submitted = executor.map_array(Share.__call__, [Share(*made, shards[i::jobs]) for i in range(jobs)])
        progress, number = Progress(len(shards)), submitted[0].job_id.partition("_")[0]
        done, waiting = 0, True
        try:
            while waiting:
                waiting = is_queued(number)  # before the shards are counted: the last may be written in between
                done = sum(shard.is_done(encoder.folder) for shard in shards)
                progress.report(done)
                waiting = waiting and done < len(shards)
                if waiting:
                    time.sleep(POLL)
        finally:
            if is_queued(number):
                submitted[0].cancel(check=False)
        if done < len(shards):
            raise ResourceError(
                f"SLURM job {number} ended with {len(shards) - done} of {len(shards)} shards missing; {place} has what "
                "it said; run the same command to go on from what is done"
            )

    return encode
