"""Policies of a job's circuits: what they answer to a worker's calls, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import RequestError
from testbed.jobs.options import CommonOptions
from testbed.queue.submission import parse
from workloads.call_circuits import _made, _name
from workloads.circuit_policy import Ahead, Call, Expected, OnDemand, ring
from workloads.circuits import CircuitsRefusedError

PIPELINE, DATA = (("u1", "u2"),), (("u1", "u3"),)


def call(kind: str, *units: str, number: int = 1, size_bytes: int = 1000) -> Call:
    return Call(kind, size_bytes, tuple(range(len(units))), units, number)


def test_a_ring_joins_each_unit_to_the_next_once() -> None:
    assert ring(call("all_reduce", "u1", "u1", "u3", "u3")) == DATA
    assert ring(call("send", "u2", "u1")) == PIPELINE
    assert ring(call("recv", "u2", "u1")) == PIPELINE, "both ends ask"
    assert ring(call("barrier", "u1", "u1")) == ()
    three = (("u1", "u2"), ("u2", "u4"), ("u4", "u1"))
    assert ring(call("all_reduce", "u1", "u2", "u4")) == three


def iterations(policy: OnDemand | Ahead, count: int) -> list[tuple[object, object]]:
    """Have a first stage's worker send, receive and sum; return what was asked before and after each call."""
    answers, number = [], 0
    for _ in range(count):
        for kind, units in (("send", ("u1", "u2")), ("recv", ("u1", "u2")), ("all_reduce", ("u1", "u3"))):
            number += 1
            made = call(kind, *units, number=number)
            answers.append((policy.before(made), policy.after(made)))
    return answers


def test_on_demand_asks_when_a_call_starts() -> None:
    assert iterations(OnDemand(), 2) == [(PIPELINE, None), (PIPELINE, None), (DATA, None)] * 2


def test_ahead_asks_for_what_followed_the_last_time_when_the_call_before_it_ends() -> None:
    answers = iterations(Ahead(), 4)
    assert answers[:3] == [(PIPELINE, None), (PIPELINE, None), (DATA, None)], "it knows nothing yet"
    data, pipeline = Expected(DATA, (0, 1)), Expected(PIPELINE, (0, 1))
    assert answers[9:] == [(PIPELINE, pipeline), (PIPELINE, data), (DATA, pipeline)]
    policy = Ahead()
    iterations(policy, 3)
    assert policy.after(call("recv", "u1", "u2", number=2)) is None, "other calls have started since"


def test_the_kinds_of_calls_have_torchs_names() -> None:
    assert [_name(kind) for kind in (1, 2, 9, 254, 255)] == [
        "all_reduce",
        "broadcast",
        "barrier",
        "send",
        "recv",
    ]


def test_a_policy_is_built_in_or_a_users_and_queued_jobs_have_none() -> None:
    assert CommonOptions.parse({"circuits": "ahead"}).for_worker().circuits == "ahead"
    assert CommonOptions.parse({"circuits": "mine.py:Mine"}).circuits == "mine.py:Mine"
    with pytest.raises(RequestError, match=r"static, on-demand, ahead, FILE\.py:CLASS and MODULE:CLASS"):
        CommonOptions.parse({"circuits": "greedy"})
    job = {"script": "a.py", "iterations": 1, "megabytes": 1, "workers": 2, "circuits": "ahead"}
    with pytest.raises(RequestError, match="static is accepted: the queue's policy decides on circuits"):
        parse({"jobs": [job]})


def test_a_users_policy_has_both_methods_and_its_errors_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Half:\n    def before(self, call): ...\nclass Bad:\n    1 / 0\n")
    with pytest.raises(CircuitsRefusedError, match=r"circuits mine.py:Bad.*: ZeroDivisionError"):
        _made("mine.py:Bad", str(tmp_path))
    (tmp_path / "half.py").write_text("class Half:\n    def before(self, call): ...\n")
    with pytest.raises(CircuitsRefusedError, match=r"circuits half.py:Half: it has no method after\(call\)"):
        _made("half.py:Half", str(tmp_path))
