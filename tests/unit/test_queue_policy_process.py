"""A policy's process: asked in time, and outlived. The process is real; the policies are written here."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.client.caller import Caller
from testbed.errors import RequestError
from testbed.queue import policy_process
from testbed.queue.policy_messages import PolicyMessage
from testbed.queue.policy_process import GoneError, Options, OverrunError, PolicyError, PolicyProcess
from testbed.scheduling.model import Decision, Job, Limits, Progress, State
from tests.processes import alive, spawn

POLICIES = """
import os, subprocess, sys, time
from testbed.scheduling.model import Decision

class Good:
    def __init__(self, seed):
        self.name, self.seed, self.asked = "good", seed, 0
    def decide(self, state):
        print("prints to its log")
        self.asked += 1
        return Decision({state.jobs[0].job.id: float(self.seed)}, {}, {(0, 1): self.asked})

class Moody:
    def decide(self, state):
        what = {0: "raise", 1: "slow", 2: "exit", 3: "nonsense", 4: "good", 5: "hang"}[state.slot]
        if what == "raise":
            raise ZeroDivisionError("by nought")
        if what == "slow":
            while not os.path.exists("go on"):
                time.sleep(0.01)
            return Decision({}, {}, {(0, 1): 1})
        if what == "exit":
            os._exit(3)
        if what == "hang":
            time.sleep(600)
        return 7 if what == "nonsense" else Decision()

class Helped:
    def __init__(self):
        import helper
        self.name = helper.NAME
    def decide(self, state):
        raise ValueError("one line\\nand another")

class Leaves:
    def decide(self, state):
        sys.exit(4)

class Parent:
    def __init__(self):
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.name = str(child.pid)
    def decide(self, state):
        return Decision()

class Fractions:
    def decide(self, state):
        return Decision({9: 1.0}, {}, {(0, 1): 1.5})

class Slow:
    "Takes its time to be made, but for the first time."
    def __init__(self):
        if os.path.exists("made"):
            time.sleep(600)
        open("made", "w").close()
    def decide(self, state):
        os._exit(3)

class Broken:
    def __init__(self):
        raise ValueError("no luck")

class NoPolicy:
    pass
"""


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PolicyProcess]:
    monkeypatch.setattr(
        policy_process, "_END_S", 60.0
    )  # the exit code of one that takes its time to end is awaited
    (tmp_path / "mine.py").write_text(POLICIES)
    caller = Caller.of(os.getuid())
    environ = {"PATH": os.environ["PATH"]}

    def make(name: str, wanted: Callable[[], bool] = lambda: True) -> PolicyProcess:
        options = Options(name, 5, caller, str(tmp_path), environ, tmp_path / "policy.log")
        return PolicyProcess(spawn, options, wanted)

    return make


def state(slot: int) -> State:
    return State(
        Limits.uniform(2, 1, 1, 40.0), slot, (Progress(Job(9, ((0, 2),), 1, 8.0), 8.0),), {(0, 1): 1}
    )


def ask(policy: PolicyProcess, slot: int, within_s: float = 120.0, slot_s: float = 1.0) -> Decision:
    return policy.ask(state(slot), slot_s, time.monotonic() + within_s)[0]


def test_a_policy_of_ones_own_by_file_or_module(
    process: Callable[[str], PolicyProcess], tmp_path: Path
) -> None:
    for name in (f"{tmp_path / 'mine.py'}:Good", "mine.py:Good", "mine:Good"):
        with process(name) as policy:
            assert policy.policy == "good"
            assert ask(policy, 0) == Decision({9: 5.0}, {}, {(0, 1): 1})
            assert ask(policy, 1) == Decision({9: 5.0}, {}, {(0, 1): 2}), "it is the same object"
        assert (tmp_path / "policy.log").read_text().count("prints to its log") == 2


def test_one_of_the_catalogue(process: Callable[[str], PolicyProcess]) -> None:
    with process("inc-fcfs") as policy:
        assert ask(policy, 0).inc == {9: 0}


def test_the_callers_folder_stands_in_for_no_module_and_has_a_policys_own(
    process: Callable[[str], PolicyProcess], tmp_path: Path
) -> None:
    for name in ("json", "random", "testbed"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "helper.py").write_text("NAME = 'two\\nlines'")
    (tmp_path / "elsewhere" / "json.py").write_text(POLICIES)
    with process("elsewhere/json.py:Helped") as policy:
        assert policy.policy == "two lines"
        with pytest.raises(PolicyError, match=r"raised ValueError: one line \.\.\. \(log"):
            ask(policy, 0)


def test_one_that_exits_or_answers_in_fractions_is_no_decision(
    process: Callable[[str], PolicyProcess],
) -> None:
    with process("mine.py:Leaves") as policy, pytest.raises(PolicyError, match="exited with code 4"):
        ask(policy, 0)
    with (
        process("mine.py:Fractions") as policy,
        pytest.raises(PolicyError, match="raised TypeError: 'float'"),
    ):
        ask(policy, 0)


def test_what_it_started_ends_with_it(process: Callable[[str], PolicyProcess]) -> None:
    with process("mine.py:Parent") as policy:
        child = int(policy.policy)
        assert alive(child)
    deadline = time.monotonic() + 60.0
    while alive(child):
        assert time.monotonic() < deadline, "what the policy started lives on"
        time.sleep(0.01)


def test_one_that_hangs_as_it_is_started_again_is_ended(
    process: Callable[[str], PolicyProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    with process("mine.py:Slow") as policy:
        with pytest.raises(PolicyError, match="exited with code 3"):
            ask(policy, 0)
        monkeypatch.setattr(policy_process, "READY_S", 0.0)
        for restarts in (1, 2):
            with pytest.raises(OverrunError, match="was not ready when its time was over"):
                ask(policy, 0, within_s=0.2)
            assert policy.restarts == restarts


def test_one_that_nobody_waits_for_is_given_up(process: Callable[..., PolicyProcess], tmp_path: Path) -> None:
    with process("mine.py:Moody") as policy, pytest.raises(OverrunError, match="is not needed any longer"):
        policy.ask(state(5), 1.0, time.monotonic() + 600.0, lambda: False)
    (tmp_path / "made").touch()
    with (
        pytest.raises(RequestError, match="is not needed any longer"),
        process("mine.py:Slow", lambda: False),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tw", "policy 'tw': there is no such policy; there are noinc-fcfs"),
        ("none.py:Good", "policy none.py:Good: FileNotFoundError"),
        ("mine.py:Better", "policy mine.py:Better: AttributeError"),
        ("mine.py:Broken", "policy mine.py:Broken: ValueError: no luck"),
        ("mine.py:NoPolicy", "policy mine.py:NoPolicy: TypeError: NoPolicy has no method decide"),
    ],
)
def test_one_that_is_not_there_or_cannot_be_made(
    process: Callable[[str], PolicyProcess], name: str, said: str
) -> None:
    with pytest.raises(RequestError, match=said), process(name):
        pass


def test_one_that_raises_is_asked_again(process: Callable[[str], PolicyProcess]) -> None:
    with process("mine.py:Moody") as policy:
        with pytest.raises(PolicyError, match=r"policy mine.py:Moody raised ZeroDivisionError: by nought"):
            ask(policy, 0)
        with pytest.raises(PolicyError, match="raised TypeError: decide returned int, which is no Decision"):
            ask(policy, 3)
        assert ask(policy, 4) == Decision()
        assert policy.restarts == 0


def test_a_late_decision_is_given_up(process: Callable[[str], PolicyProcess], tmp_path: Path) -> None:
    with process("mine.py:Moody") as policy:
        with pytest.raises(OverrunError, match="had no decision when its time was over"):
            ask(policy, 1, within_s=0.2)
        with pytest.raises(OverrunError, match="had no decision"):
            ask(policy, 4, within_s=0.05)
        (tmp_path / "go on").touch()
        assert ask(policy, 4) == Decision(), "not the one of the slot before"
        assert policy.restarts == 0


def test_one_that_ends_is_started_again_so_many_times(process: Callable[[str], PolicyProcess]) -> None:
    with process("mine.py:Moody") as policy:
        with pytest.raises(PolicyError, match="exited with code 3"):
            ask(policy, 2)
        assert ask(policy, 4) == Decision()
        assert policy.restarts == 1
        policy.restarts = policy_process.RESTARTS
        with pytest.raises(PolicyError, match="exited with code 3"):
            ask(policy, 2)
        with pytest.raises(GoneError, match="and is not started again"):
            ask(policy, 4)


def test_one_that_hangs_is_ended_and_started_again(
    process: Callable[[str], PolicyProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    with process("mine.py:Moody") as policy:
        with pytest.raises(OverrunError):
            ask(policy, 5, within_s=0.1)
        with pytest.raises(OverrunError):
            ask(policy, 4, within_s=0.1)
        assert policy.restarts == 0, "it may have an answer yet"
        monkeypatch.setattr(policy_process, "_STUCK_S", 0.0)
        assert ask(policy, 4, slot_s=0.0) == Decision()
        assert policy.restarts == 1


def heard(pieces: Sequence[bytes]) -> tuple[list[Any], float]:
    """Return the messages that are heard of a policy's process that writes these pieces, and the processor
    time that hearing takes.
    """
    policy: Any = PolicyProcess(spawn, Options("x", 1, Caller.of(os.getuid()), "/", {}, Path("/log")))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    policy._socket = ours

    def write() -> None:
        with theirs, contextlib.suppress(ConnectionError):  # who gives a line up closes the socket
            for piece in pieces:
                theirs.sendall(piece)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    count = b"".join(pieces).count(b"\n")
    began = time.thread_time()
    with ours:
        said = [policy._next(time.monotonic() + 60.0, lambda: True) for _ in range(count)]
    spent = time.thread_time() - began
    writer.join()
    return said, spent


def test_lines_are_heard_whole_however_they_come() -> None:
    wanted = [{"number": number, "decision": "x" * (number % 7 * 50_000)} for number in range(40)]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in wanted)
    messages = [PolicyMessage(**line) for line in wanted]
    for step in (1_000, 65_536, len(text)):
        assert heard([text[at : at + step] for at in range(0, len(text), step)])[0] == messages


def test_an_answer_costs_what_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not that times itself: 16 times as much takes 16 times as long, or 256 times."""
    monkeypatch.setattr(policy_process, "_LONGEST_LINE_BYTES", 1 << 30)

    def cost(pieces: int) -> float:
        return heard([b'{"decision": "', *([b"x" * 64_000] * pieces), b'"}\n'])[1]

    assert cost(1000) < 64 * max(cost(62), 0.02)


def test_a_line_without_end_is_given_up() -> None:
    with pytest.raises(PolicyError, match=r"^policy x wrote more than 8388608 bytes for an answer$"):
        heard([*([b"x" * 65_536] * 129), b"\n"])
