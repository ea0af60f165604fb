"""A daemon on a machine in memory, which has all that the interface says and nothing else."""

from __future__ import annotations

import inspect
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.client import rpc
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.daemon import network as network_module
from testbed.daemon.network import Network
from testbed.daemon.process import Daemon, Main
from testbed.dataplanes.tors import AllTors
from testbed.emulation.capture import Tap
from testbed.emulation.faults import LinkFaults
from testbed.emulation.manual_links import LinksByHand
from testbed.emulation.net import FabricNet
from testbed.local.counters import KernelCounters
from testbed.local.local import Local
from testbed.local.programs import LocalPrograms
from testbed.machine import interface
from testbed.topology import catalogue
from tests import machine as memory
from tests.machine import HEADER, InMemory

TOPOLOGY = catalogue.ready("default")
RATE_MBPS = TOPOLOGY.host_link.rate_mbps
ANSWERS: dict[str, Any] = {
    "ready": True,
    "library": "none",
    "lacks": [],
    "circuits": {"circuits": [["u1o1", "u2o1"]], "dark": [], "failed_locks": {}, "down": []},
}


PARTS: list[tuple[type, type]] = [
    (interface.Links, FabricNet),
    (interface.Hosts, FabricNet),
    (interface.ByHand, LinksByHand),
    (interface.Faults, LinkFaults),
    (interface.ProgramsAtDevices, LocalPrograms),
    (interface.UnitSwitches, AllTors),
    (interface.Counters, KernelCounters),
    (interface.LinkTap, Tap),
    (interface.Links, memory.MemoryLinks),
    (interface.Hosts, memory.MemoryHosts),
    (interface.ByHand, memory.MemoryLinks),
    (interface.Faults, memory.MemoryFaults),
    (interface.ProgramsAtDevices, memory.MemoryPrograms),
    (interface.UnitSwitches, memory.MemorySwitches),
    (interface.Counters, memory.MemoryCounters),
    (interface.LinkTap, memory.MemoryTap),
]


class StandIn:
    """A controller in the place of the process that would be one, at its socket."""

    pid, returncode = 1, None

    def __init__(self, argv: list[str], **_: Any) -> None:
        self.stdin, _other = socket.socketpair()
        path = Path(argv[argv.index("--socket") + 1])
        self._serving = rpc.serve(path, lambda request, *_: ANSWERS[request["op"]])
        self._serving.__enter__()

    def poll(self) -> None:
        return None

    def terminate(self) -> None:
        self._serving.__exit__(None, None, None)

    def wait(self, _timeout: float) -> int:
        return 0


class World:
    """A daemon, whose network is up on a machine in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "jobs").mkdir()
        ours, self._theirs = socket.socketpair()
        me = Caller.of(os.getuid())
        self.daemon = Daemon(Runtime("t", folder), TOPOLOGY, me, Main(ours.detach()), os.getpid(), Any)  # type: ignore[arg-type]
        self.network = Network(TOPOLOGY, folder, machine_of=InMemory)
        self.machine: Any = self.network.machine
        self.said: list[Any] = []
        self.is_gone = threading.Event()  # the client

    def ask(self, op: str, **request: Any) -> Any:
        """Return the answer to a request of this user's, and keep what was said meanwhile."""
        peer, self.said = rpc.Peer(os.getuid(), os.getgid(), ()), []

        def emit(event: Any, *_fds: int) -> None:
            self.said.append(event)

        answer = self.daemon._handle({"op": op, **request}, peer, emit, self.is_gone)
        return json.loads(answer) if isinstance(answer, bytes) else answer


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(network_module.subprocess, "Popen", StandIn)
    made = World(tmp_path)
    with made.network:
        monkeypatch.undo()
        made.daemon._open(made.network)
        yield made


def test_the_machine_comes_before_its_programs_and_goes_with_the_network(
    tmp_path: Path, world: World
) -> None:
    assert world.machine.steps == ["made", "loaded"]
    world.network.__exit__(None, None, None)
    assert world.machine.steps == ["made", "loaded", "gone"]


def test_the_status_is_of_the_machine(world: World) -> None:
    world.ask("link", action="set", links=["u1h1"], rate_mbps=7)
    world.ask("link", action="set", links=["u1h2"], up=False)
    world.ask("fault", action="set", links=["u2h1"], fault={"loss": 0.5}, direction="up")
    world.machine.switches.restarts[1] = 3
    status = world.ask("status")
    assert status["datapath"] == "memory"
    links = {link["name"]: (link["rate_mbps"], link["up"]) for link in status["links"]}
    assert (links["u1h1"], links["u1h2"], links["u1h3"]) == ((7, True), (RATE_MBPS, False), (RATE_MBPS, True))
    assert [(fault["link"], fault["direction"], fault["loss"]) for fault in status["faults"]] == [
        ("u2h1", "up", 0.5)
    ]
    assert [unit["restarts"] for unit in status["units"]][:2] == [3, 0]
    assert (status["circuits"], status["controller"]["state"]) == ([["u1o1", "u2o1"]], "running")


def test_links_are_set_and_are_again_as_they_were(world: World) -> None:
    (set_,) = world.ask("link", action="set", links=["u1h1"], rate_mbps=7, delay="5ms", jitter="1ms")
    assert set_ == {
        "link": "u1h1",
        "rate_mbps": 7.0,
        "configured_mbps": RATE_MBPS,
        "by_hand_mbps": 7.0,
        "up": True,
        "delay_ms": 5.0,
        "jitter_ms": 1.0,
    }
    (reset,) = world.ask("link", action="reset", links=["u1h1"])
    assert (reset["rate_mbps"], reset["by_hand_mbps"], reset["delay_ms"]) == (RATE_MBPS, None, 0.0)


def test_a_command_is_started_in_a_host_of_the_machine_and_ends_with_its_client(
    world: World, tmp_path: Path
) -> None:
    world.is_gone.set()
    request = {"host": "u1h1", "argv": ["sleep", "999"], "cwd": str(tmp_path), "environ": {}}
    assert world.ask("exec", **request)["exit_code"] != 0
    assert world.said == [{"host": "u1h1"}]
    ((host, *argv),) = world.machine.hosts.started
    assert (host, argv[-2:]) == ("u1h1", request["argv"])


def test_the_frames_of_a_link_are_the_machines(world: World, tmp_path: Path) -> None:
    file = tmp_path / "x.pcap"
    answer = world.ask("capture", link="u1h1", output=str(file), count=5, seconds=1.0)
    assert (answer["forward"], answer["from"], file.read_bytes()) == (0, "from u1h1", HEADER)
    assert world.said == [{"capturing": "u1h1"}]


def test_a_switch_that_ended_is_started_again(world: World) -> None:
    world.machine.switches.ended = {2}
    (restart,) = world.network.watch()
    assert (restart.dpid, f"{restart}", restart.count, restart.jobs) == (2, "switch 2 ended", 1, {})
    assert not world.machine.switches.has_ended(2)


@pytest.mark.parametrize("machine", [InMemory, Local])
def test_both_machines_have_all_parts(machine: type, tmp_path: Path) -> None:
    """The local one gets those of its fabric when it is entered, and those of its programs when they load."""
    made = machine(TOPOLOGY, tmp_path)
    parts = {name for name in vars(interface.Machine) if not name.startswith("_")}
    assert {"links", "hosts", "switches", "tap"} <= parts
    later = {"links", "hosts", "programs", "rings"} if machine is Local else set()
    assert {name for name in parts if not hasattr(type(made), name) and name not in vars(made)} == later


@pytest.mark.parametrize(("part", "implementation"), PARTS)
def test_a_part_of_a_machine_takes_what_the_interface_says(part: type, implementation: type) -> None:
    """The type checker takes a fabric for anything: its base, Mininet's class, has no types."""
    begins = vars(implementation).get("__init__")
    made_at_start = {*begins.__code__.co_names} if begins else set()  # attributes of each object
    for name, asked in vars(part).items():
        if name.startswith("_"):
            continue
        has = getattr(implementation, name, None)
        assert has is not None or name in made_at_start, f"{implementation.__name__} has no {name}"
        if inspect.isfunction(asked) and has is not None:
            taken = [*inspect.signature(has).parameters]
            assert taken == [*inspect.signature(asked).parameters], f"{implementation.__name__}.{name}"
