"""Two machines that train together, with disks of their own or a shared one: two networks on one,
or two names.
"""

import ctypes
import os
import platform
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import filelock
import pytest
from applications import slow_but
from faults.harness import (
    Child,
    configured,
    content_of_corpus,
    differences,
    start,
    start_ranks,
    within,
)

from aiayn.config.schema import Config
from aiayn.data import preparation as preparation

NODES = ("a1", "b2")
CLONE_NEWNET = 0x40000000
NETWORK = "10.213.47"


class Names:
    """Two machines that differ in their names only."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address, self.port = free.getsockname()

    def enter(self, node: int) -> None:
        """This process is on that machine from now on."""
        platform.node = lambda: NODES[node]


class Networks(Names):
    """Two network namespaces with a cable between them, which both call eth0."""

    def __init__(self) -> None:
        self.address, self.port = f"{NETWORK}.1", 29400
        self.names = [f"aiayn-{os.getpid()}-{node}" for node in NODES]

    def build(self) -> None:
        """Raises CalledProcessError or OSError where that is not allowed."""
        first, second = self.names
        for name in self.names:
            ip("netns", "add", name)
        ip(
            "-n",
            first,
            "link",
            "add",
            "eth0",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            second,
        )
        for number, name in enumerate(self.names, 1):
            ip("-n", name, "address", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip("-n", name, "link", "set", link, "up")

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    def enter(self, node: int) -> None:
        super().enter(node)
        with open(f"/run/netns/{self.names[node]}") as network:
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.setns(network.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"  # as docs/multi-gpu.md has it


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module", params=["networks", "names"])
def machines(request) -> Iterator[Names]:
    if request.param == "names":
        yield Names()
        return
    networks = Networks()
    try:
        networks.build()
        yield networks
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", b"").decode().strip() or error
        pytest.skip(f"networks of their own need root and iproute2: {reason}")
    finally:
        networks.remove()


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory) -> Path:
    """Two processes of one machine, undisturbed."""
    outputs = tmp_path_factory.mktemp("whole")
    with within():
        ended = [
            child.wait() for child in start_ranks(configured(text, "trainer.devices=2"), outputs)
        ]
    assert [end.code for end in ended] == [0, 0], ended
    return outputs / "run"


def start_node(machines: Names, config: Config, outputs: Path, node: int) -> Child:
    """The one rank of a machine, whose locks no other machine sees.

    Where machines share a disk it is started by hand, and otherwise as torchrun would start it.
    """

    def prelude() -> None:
        machines.enter(node)
        lock = SimpleNamespace(acquire=lambda timeout=-1: None, release=lambda: None)
        preparation.filelock = SimpleNamespace(FileLock=lambda path: lock, Timeout=filelock.Timeout)
        preparation.POLL = 0.05
        if node and not config.data.prepare_per_node:
            preparation._build = None  # is not called
        place = {"MASTER_ADDR": machines.address, "MASTER_PORT": machines.port}
        if config.data.prepare_per_node:
            place |= {
                "RANK": node,
                "WORLD_SIZE": len(NODES),
                "LOCAL_RANK": 0,
                "LOCAL_WORLD_SIZE": 1,
            }
            place |= {"GROUP_RANK": node, "TORCHELASTIC_RUN_ID": "none"}
        else:
            place["NODE_RANK"] = node
        os.environ.update({name: str(value) for name, value in place.items()})

    return start(config, outputs, prelude, f"log.{node}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "shared", slow_but([False], [False, True]), ids=["own-disks", "shared-disk"]
)
def test_two_machines_train_to_the_bit_what_two_processes_of_one_machine_train(
    machines, shared, text, whole, tmp_path
):
    options = (
        "trainer.num_nodes=2",
        "trainer.timeout=120",
        f"data.prepare_per_node={str(not shared).lower()}",
    )
    config = configured(text, *options)
    places = [tmp_path / ("data" if shared else f"data-{name}") for name in NODES]
    with within():
        children = [
            start_node(
                machines,
                replace(config, data=replace(config.data, folder=str(place))),
                tmp_path,
                node,
            )
            for node, place in enumerate(places)
        ]
        ended = [child.wait() for child in children]

    assert [end.code for end in ended] == [0, 0], ended
    assert differences(tmp_path / "run", whole) == []
    first, second = map(content_of_corpus, places)
    assert first == second
    assert not [path for place in places for path in place.glob(".*.tmp")]
