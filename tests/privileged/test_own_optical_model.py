"""An optical model of one's own, live: the example of the documents is dark for as long as it says, and one
that raises, ends or hangs costs its change and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from testbed.client import rpc
from testbed.client.runtime import Runtime
from testbed.errors import TestbedError
from testbed.ocs.circuits import circuit
from testbed.optics.model import CircuitTurn, PastTurn
from testbed.plugins.optical import model_of
from testbed.topology.model import Topology
from tests.limits import CALL_S
from tests.privileged.commands import ROOT, Testbed, command, open_folder, pids_in_testbed, running, wait_for
from tests.privileged.owned import OWNER

pytestmark = [pytest.mark.needs("xdp", "ovs"), pytest.mark.timeout(600)]

RING = [["u1o1", "u2o1"], ["u2o2", "u3o1"], ["u3o2", "u4o1"], ["u4o2", "u1o2"]]
CROSSED = [["u1o1", "u4o1"], ["u2o2", "u3o1"], ["u1o2", "u3o2"]]
RAISES, ENDS, HANGS, OTHER = ([["u1o1", end]] for end in ("u3o1", "u3o2", "u4o2", "u2o2"))
# As the example of the documents, but for circuits that it has something against.
MOODY = """
import os, time
from mirror_drift import MirrorDrift
from testbed.optics.model import DarkTime, DarkTimes

class Moody(MirrorDrift):
    def dark_times(self, turn):
        if ("u1o1", "u3o1") in turn.added:
            caps = [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapPrm")]
            raise ValueError(f"{os.getresuid()} {int(caps[0], 16)} {[v for v in os.environ if 'SUDO' in v]}")
        if ("u1o1", "u3o2") in turn.added:
            os._exit(3)
        if ("u1o1", "u4o2") in turn.added:
            time.sleep(600)
        if ("u1o1", "u2o2") in turn.added:
            return DarkTimes(circuits={("u3o1", "u4o1"): DarkTime(1, 1)})
        return super().dark_times(turn)
"""
UNITS = [{"kind": "gpu", "hosts": 1}] * 4
SETTINGS = {"step_ms": 8, "tune_ms": 3, "drift_ms": 600, "ports": {"u1o1": {"step_ms": 9}}}


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with open_folder() as folder:
        shutil.copy(ROOT / "docs" / "examples" / "mirror_drift.py", folder)
        (folder / "moody.py").write_text(MOODY)
        config = folder / "drifting.yaml"
        ocs = {"model": "moody.py:Moody", **SETTINGS, "circuits": RING}
        config.write_text(json.dumps({"units": UNITS, "scale": 400, "ocs": ocs}))
        with running(str(config), env={"SUDO_UID": str(OWNER), "SUDO_GID": str(OWNER)}) as made:
            yield made


def ask(testbed: Testbed, op: str, **arguments: Any) -> Any:
    return rpc.call(Runtime.of(testbed.name).controller_socket, op, timeout_s=CALL_S, **arguments)


def refusal(testbed: Testbed, circuits: list[list[str]]) -> str:
    with pytest.raises(TestbedError) as caught:
        ask(testbed, "apply", circuits=circuits)
    return str(caught.value)


def as_said(testbed: Testbed, event: dict[str, Any]) -> bool:
    """Return whether a change was dark as the example says on pure data, asked between the request and the
    change.
    """
    topology = Topology.from_json(Runtime.of(testbed.name).topology.read_text())
    model = model_of(topology)
    history = [each for each in ask(testbed, "history") if each["id"] < event["id"]]
    was = {circuit(*pair) for pair in topology.ocs.circuits}
    for each in history:
        was = was - {circuit(*pair) for pair in each["removed"]} | {circuit(*pair) for pair in each["added"]}
    will_be = was - {circuit(*p) for p in event["removed"]} | {circuit(*p) for p in event["added"]}
    if not event["removed"] and not event["added"]:  # the end of a timetable: each is lit anew
        was = set()
    past = tuple(
        PastTurn(
            each["id"],
            each["time"],
            tuple(circuit(*pair).ports for pair in each["removed"]),
            tuple(circuit(*pair).ports for pair in each["added"] or each.get("relit", [])),
        )
        for each in history
    )

    def said(at_s: float) -> dict[str, float]:
        before, after = (frozenset(c.ports for c in circuits) for circuits in (was, will_be))
        times = model.dark_times(CircuitTurn(event["id"], at_s, before, after, past))
        return {"-".join(ends): time.total_ns / 1e6 for ends, time in times.circuits.items()}

    least = said(event["time"] - event["since_asked_ms"].get("planned", 0.0) / 1e3 - 0.05)
    most = said(event["time"] + 0.05)
    dark = event["circuits_ms"]
    return dark.keys() == most.keys() and all(least[each] <= dark[each] <= most[each] for each in dark)


def test_circuits_are_dark_as_long_as_the_example_says(testbed: Testbed) -> None:
    """Probes cross the circuit that is lit last, around both ends of its darkness."""
    for circuits in (CROSSED, RING, CROSSED, RING):
        event = ask(testbed, "apply", circuits=circuits)
        assert as_said(testbed, event), event
        assert len(set(event["circuits_ms"].values())) > 1, "by the way of each mirror"
        assert event["asked_ms"] == max(event["circuits_ms"].values())
        # whole nanoseconds each, of which the sum as fractions of a millisecond may be off by a rounding
        asked_ns, switch_ns, lock_ns = (
            round(1e6 * event[key]) for key in ("asked_ms", "switch_ms", "lock_ms")
        )
        assert asked_ns == switch_ns + lock_ns
        assert event["measured_ms"] >= event["asked_ms"] > 8
        assert event["measured_ms"] - event["resolution_ms"] <= event["asked_ms"]


@pytest.mark.parametrize(
    ("circuits", "says"),
    [
        (RAISES, f"dark_times raised ValueError: ({OWNER}, {OWNER}, {OWNER}) 0 [] (line 10)"),
        (ENDS, "its process ended without an answer"),
        (HANGS, "no dark times within 5 s"),
        (OTHER, "its dark time has u3o1-u4o1, which the change does not make; it makes u1o1-u2o2"),
    ],
)
def test_a_model_that_fails_fails_its_change_alone(
    testbed: Testbed, circuits: list[list[str]], says: str
) -> None:
    before = ask(testbed, "circuits"), ask(testbed, "history")
    line = refusal(testbed, circuits)
    assert line.startswith("ocs.model: ")
    assert "/moody.py:Moody: " in line
    assert line.endswith(says), line
    assert (ask(testbed, "circuits"), ask(testbed, "history")) == before
    assert ask(testbed, "ready"), "no switch was told anything"
    target = CROSSED if sorted(before[0]["circuits"]) != sorted(CROSSED) else RING
    assert as_said(testbed, ask(testbed, "apply", circuits=target)), "and the next change is made"


def test_a_controller_that_is_started_again_loads_it_again_and_goes_on(testbed: Testbed) -> None:
    ask(testbed, "apply", circuits=RING)
    status = json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout)
    restarts, history = status["controller"]["restarts"], ask(testbed, "history")
    controllers = pids_of(testbed, "controller")
    (controller,) = (pid for pid in controllers if psutil.Process(pid).ppid() not in controllers)
    (model,) = pids_of(testbed, "testbed.emulation.model_host")
    os.kill(controller, signal.SIGKILL)

    def is_back() -> bool:
        said = json.loads(command("testbed.status", "--name", testbed.name, "--json").stdout)
        return bool(said["controller"]["restarts"] > restarts and said["controller"]["ready"])

    wait_for(is_back, "the controller is started again")
    assert pids_of(testbed, "testbed.emulation.model_host") != [model]
    event = ask(testbed, "apply", circuits=CROSSED)
    assert event["id"] == history[-1]["id"] + 1
    assert as_said(testbed, event), "with the history of the controller before it"


def pids_of(testbed: Testbed, module: str) -> list[int]:
    """Return the processes of a testbed that run this module."""
    numbers = []
    for pid in pids_in_testbed(testbed.pid):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if module.encode() in words and b"-m" in words:
            numbers.append(pid)
    return numbers


def test_the_end_of_a_timetable_is_as_dark_as_the_model_says(testbed: Testbed) -> None:
    matchings = [{"start_ms": 0, "circuits": RING[:2]}, {"start_ms": 5, "circuits": CROSSED}]
    ask(testbed, "schedule", schedule={"period_ms": 10, "guard_ms": 1, "matchings": matchings})
    ask(testbed, "unschedule")
    event = ask(testbed, "history")[-1]
    assert (event["removed"], event["added"]) == ([], [])
    lit = ["-".join(pair) for pair in ask(testbed, "circuits")["circuits"]]
    assert sorted(event["circuits_ms"]) == sorted(lit), "each circuit is lit anew"
    assert sorted("-".join(pair) for pair in event["relit"]) == sorted(lit)
    assert event["asked_ms"] == max(event["circuits_ms"].values())
    assert as_said(testbed, event)
    target = CROSSED if len(lit) == len(RING) else RING
    assert as_said(testbed, ask(testbed, "apply", circuits=target)), "with that end in its history"


def test_one_that_was_killed_while_nobody_asked_costs_no_change(testbed: Testbed) -> None:
    lit = ask(testbed, "circuits")["circuits"]
    (model,) = pids_of(testbed, "testbed.emulation.model_host")
    os.kill(model, signal.SIGKILL)
    target = CROSSED if len(lit) == len(RING) else RING
    assert as_said(testbed, ask(testbed, "apply", circuits=target))
    assert pids_of(testbed, "testbed.emulation.model_host") != [model]
