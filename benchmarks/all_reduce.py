"""Seconds that two processes of one machine take to add up one flat tensor over gloo, as the ranks
of a graphed training do with all gradients.

    python benchmarks/all_reduce.py [--megabytes 252 857] [--rounds 3] [--out DIR]

252 MB are the gradients of base, 857 MB those of big, in float32.
"""

import time
from tempfile import TemporaryDirectory

import torch
from measure import parse_options, report
from torch import distributed, multiprocessing


def add_up(rank: int, folder: str, sizes: list[int], rounds: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2
    )
    seconds: dict[int, list[float]] = {megabytes: [] for megabytes in sizes}
    for megabytes in sizes * rounds:
        gradients = torch.ones(megabytes * 250_000)
        distributed.barrier()
        start = time.perf_counter()
        distributed.all_reduce(gradients)
        seconds[megabytes].append(time.perf_counter() - start)
        assert float(gradients[-1]) == 2
    torch.save(seconds, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def main(arguments: list[str] | None = None) -> None:
    options = parse_options(__doc__, arguments, megabytes=[252, 857], rounds=3)
    with TemporaryDirectory() as folder:
        multiprocessing.spawn(add_up, (folder, options.megabytes, options.rounds), nprocs=2)
        seconds = torch.load(f"{folder}/0.pt")
    rows = [
        {"MB": megabytes, "fewest seconds": min(of_rounds), "most": max(of_rounds)}
        for megabytes, of_rounds in seconds.items()
    ]
    report("all_reduce", rows, options.out)


if __name__ == "__main__":
    main()
