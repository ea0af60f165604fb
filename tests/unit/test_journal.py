"""The journal: what is kept of what happened, and of the jobs that ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from testbed.aggregation.system import Layout
from testbed.client.caller import Caller
from testbed.client.requests import FaultRequest, LinkRequest
from testbed.client.runtime import Runtime
from testbed.errors import TestbedError
from testbed.jobs.journal import Journal, fault_in_words, link_in_words
from testbed.jobs.life import Job, Terms
from testbed.jobs.manager import Jobs, means_of
from testbed.jobs.request import JobRequest
from testbed.jobs.user_files import UserFiles
from testbed.messages.coding import as_json
from testbed.messages.events import JobNote, OutputLine
from testbed.messages.verdict import JobVerdict
from testbed.systems.job_options import JobOptions
from testbed.topology import catalogue
from testbed.wire.transports import GLOO
from tests.machine import InMemory
from tests.processes import spawn
from tests.unit import results

MTU = 1500


def test_entries_are_numbered_and_the_newest_are_kept() -> None:
    journal = Journal(lambda: 5.0, most=3)
    for number in range(1, 6):
        journal.add("note", f"line {number}")
    assert [entry.number for entry in journal.after(0)] == [3, 4, 5]
    (last,) = journal.after(4)
    assert as_json(last) == {"number": 5, "time": 5.0, "kind": "note", "text": "line 5"}
    assert journal.after(5) == ()


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (LinkRequest(action="set", links=["u1h1"], rate_mbps=20), "link set: u1h1, 20 Mb/s"),
        (LinkRequest(action="set", links=["u1", "u2o1"], up=False), "link set: u1 u2o1, down"),
        (
            LinkRequest(action="set", links=["u1h1"], delay="5ms", jitter="1ms"),
            "link set: u1h1, delay 5ms, jitter 1ms",
        ),
        (LinkRequest(action="reset", links=["all"]), "link reset: all"),
        (FaultRequest(action="clear"), "fault clear: all"),
        (
            FaultRequest(action="set", links=["u1h1"], direction="up", fault={"loss": 0.01, "corrupt": 0}),
            "fault set: u1h1 up, loss 1%",
        ),
    ],
)
def test_what_is_done_by_hand_is_a_line(wanted: LinkRequest | FaultRequest, says: str) -> None:
    words = fault_in_words(wanted) if isinstance(wanted, FaultRequest) else link_in_words(wanted)
    assert words == says


# ---- jobs ----


@pytest.fixture
def journal() -> Journal:
    return Journal(lambda: 9.0)


def living(tmp_path: Path, journal: Journal, number: int | None = None) -> tuple[Jobs, Job]:
    """Jobs with a job that holds two hosts, and what is heard of it."""
    places: Any = object()
    runtime, topology = Runtime("t", tmp_path), catalogue.ready("default")
    means = means_of(runtime, topology, InMemory(topology), lambda op: None, places, UserFiles(spawn))
    jobs = Jobs(means, journal.add)
    caller = Caller.of(os.getuid())
    request = JobRequest("x.py", (), "ring", None, caller, "/", {}, None, None, JobOptions(restarts=1))
    layout = Layout("ring", ((1, 1), (2, 1)), GLOO)  # type: ignore[arg-type]
    job = jobs.hold(request, lambda busy: layout, lambda _: Terms(None), number)
    assert job is not None
    return jobs, job


def test_a_job_that_is_over_is_kept_with_its_verdict(
    tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, job = living(tmp_path, journal)
    verdict = {"trustworthy": True, "line": "verdict: trustworthy", "reasons": [], "notes": []}
    monkeypatch.setattr(Job, "live", lambda self: results.read(verdict=verdict))
    jobs.live(job)
    (entry,) = journal.after(0)
    assert (entry.kind, entry.text) == ("ended", "job 1 is done")
    kept = entry.ended
    assert kept is not None
    assert (kept.hosts, kept.sync, kept.script) == (("u1h1", "u2h1"), "ring", "x.py")
    assert (kept.failure, kept.verdict) == (None, JobVerdict(True, "verdict: trustworthy", (), ()))
    assert kept.began == pytest.approx(job.began_unix, abs=0.001)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (TestbedError("no room"), "no room"),
        (KeyError("u1"), "it raised an error, which the daemon's log has"),
    ],
)
def test_a_job_that_came_to_nothing_is_kept_too(
    error: Exception, says: str, tmp_path: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, job = living(tmp_path, journal)

    def fails(self: Job) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(Job, "live", fails)
    with pytest.raises(type(error)):
        jobs.live(job)
    (entry,) = journal.after(0)
    assert entry.text == f"job 1 failed: {says}"
    assert entry.ended is not None
    assert (entry.ended.failure, entry.ended.verdict) == (says, None)


def test_what_befalls_a_job_is_heard_but_of_a_queue_s_which_tells_itself(
    tmp_path: Path, journal: Journal
) -> None:
    _, job = living(tmp_path, journal)
    job._terms.emit(JobNote("worker 1 left u1"))
    job._terms.emit(OutputLine("hello", "u1h1"))
    assert [entry.text for entry in journal.after(0)] == ["job 1: worker 1 left u1"]
    _, queued = living(tmp_path, journal, number=12)
    queued._terms.emit(JobNote("worker 1 left u1"))
    assert len(journal.after(0)) == 1
