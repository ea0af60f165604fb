"""A policy's process: asked in time, and outlived. The process is real; the policies are written here."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import RequestError
from testbed.jobs import policy_process
from testbed.jobs.policy_process import OverrunError, PolicyError, PolicyProcess
from testbed.runtime import Caller
from testbed.scheduling.model import Fabric, Job, Plan, Progress, State

POLICIES = """
import os, sys, time
from testbed.scheduling.model import Plan

class Good:
    def __init__(self, seed):
        self.name, self.seed, self.asked = "good", seed, 0
    def plan(self, state):
        print("prints to its log")
        self.asked += 1
        return Plan({state.jobs[0].job.id: float(self.seed)}, {}, {(0, 1): self.asked})

class Moody:
    def plan(self, state):
        what = {0: "raise", 1: "slow", 2: "exit", 3: "nonsense", 4: "good", 5: "hang"}[state.slot]
        if what == "raise":
            raise ZeroDivisionError("by nought")
        if what == "slow":
            time.sleep(0.7)
        if what == "exit":
            os._exit(3)
        if what == "hang":
            time.sleep(600)
        return 7 if what == "nonsense" else Plan()

class Broken:
    def __init__(self):
        raise ValueError("no luck")

class NoPolicy:
    pass
"""


def spawn(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """As the fabric's, for one user."""
    for name in ("uid", "gid", "groups"):
        options.pop(name)
    return subprocess.Popen(argv, start_new_session=options.pop("new_session"), **options)


@pytest.fixture
def process(tmp_path: Path) -> Callable[[str], PolicyProcess]:
    (tmp_path / "mine.py").write_text(POLICIES)
    caller = Caller.of(os.getuid())
    environ = {"PATH": os.environ["PATH"]}
    return lambda name: PolicyProcess(spawn, name, 5, caller, str(tmp_path), environ, tmp_path / "policy.log")


def state(slot: int) -> State:
    return State(Fabric.uniform(2, 1, 1, 40.0), slot, (Progress(Job(9, ((0, 2),), 1, 8.0), 8.0),), {(0, 1): 1})


def ask(policy: PolicyProcess, slot: int, within_s: float = 20.0, slot_s: float = 1.0) -> Plan:
    return policy.ask(state(slot), slot_s, time.monotonic() + within_s)[0]


def test_a_policy_of_ones_own_by_file_or_module(process: Callable[[str], PolicyProcess], tmp_path: Path) -> None:
    for name in (f"{tmp_path / 'mine.py'}:Good", "mine.py:Good", "mine:Good"):
        with process(name) as policy:
            assert policy.policy == "good"
            assert ask(policy, 0) == Plan({9: 5.0}, {}, {(0, 1): 1})
            assert ask(policy, 1) == Plan({9: 5.0}, {}, {(0, 1): 2}), "it is the same object"
        assert (tmp_path / "policy.log").read_text().count("prints to its log") == 2


def test_one_of_the_catalogue(process: Callable[[str], PolicyProcess]) -> None:
    with process("inc-fcfs") as policy:
        assert ask(policy, 0).inc == {9: 0}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tw", "policy 'tw': there is no such policy; there are noinc-fcfs"),
        ("none.py:Good", "policy none.py:Good: FileNotFoundError"),
        ("mine.py:Better", "policy mine.py:Better: AttributeError"),
        ("mine.py:Broken", "policy mine.py:Broken: ValueError: no luck"),
        ("mine.py:NoPolicy", "policy mine.py:NoPolicy: TypeError: NoPolicy has no method plan"),
    ],
)
def test_one_that_is_not_there_or_cannot_be_made(process: Callable[[str], PolicyProcess], name: str, said: str) -> None:
    with pytest.raises(RequestError, match=said), process(name):
        pass


def test_one_that_raises_is_asked_again(process: Callable[[str], PolicyProcess]) -> None:
    with process("mine.py:Moody") as policy:
        with pytest.raises(PolicyError, match=r"policy mine.py:Moody raised ZeroDivisionError: by nought"):
            ask(policy, 0)
        with pytest.raises(PolicyError, match="raised AttributeError"):
            ask(policy, 3)
        assert ask(policy, 4) == Plan()
        assert policy.restarts == 0


def test_a_late_plan_is_given_up(process: Callable[[str], PolicyProcess]) -> None:
    with process("mine.py:Moody") as policy:
        with pytest.raises(OverrunError, match="had no plan when its time was over"):
            ask(policy, 1, within_s=0.2)
        with pytest.raises(OverrunError, match="had no plan"):
            ask(policy, 4, within_s=0.05)
        assert ask(policy, 4) == Plan(), "not the one of the slot before"
        assert policy.restarts == 0


def test_one_that_ends_is_started_again_so_many_times(process: Callable[[str], PolicyProcess]) -> None:
    with process("mine.py:Moody") as policy:
        with pytest.raises(PolicyError, match="exited with code 3"):
            ask(policy, 2)
        assert ask(policy, 4) == Plan()
        assert policy.restarts == 1
        policy.restarts = policy_process.RESTARTS
        with pytest.raises(PolicyError, match="exited with code 3"):
            ask(policy, 2)
        with pytest.raises(PolicyError, match="and is not started again"):
            ask(policy, 4)


def test_one_that_hangs_is_ended_and_started_again(
    process: Callable[[str], PolicyProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_process, "_STUCK_S", 0.2)
    with process("mine.py:Moody") as policy:
        with pytest.raises(OverrunError):
            ask(policy, 5, within_s=0.1, slot_s=0.01)
        deadline = time.monotonic() + 20.0
        while True:
            try:
                assert ask(policy, 4, within_s=0.1, slot_s=0.01) == Plan()
                break
            except OverrunError:
                assert time.monotonic() < deadline
        assert policy.restarts == 1
