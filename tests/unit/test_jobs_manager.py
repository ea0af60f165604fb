"""Jobs that something fails from outside."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.aggregation.system import Layout
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.errors import RequestError, TestbedError
from testbed.jobs.life import Terms
from testbed.jobs.manager import Jobs, means_of
from testbed.jobs.request import JobRequest
from testbed.jobs.user_files import UserFiles
from testbed.systems.job_options import JobOptions
from testbed.topology import catalogue
from testbed.wire.transports import GLOO, PACKETS
from tests.machine import InMemory
from tests.processes import spawn

LOST = "u1's simple_switch ended (signal 9), and with it what it had summed"
TOPOLOGY = catalogue.ready("default")
MINE = Caller(4242, 4242, (), "me", "/")


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """Two that live: job 1 in its second generation, and job 2 in its first, which is another user's."""
    places: Any = object()  # no job gets as far
    runtime, machine = Runtime("t", tmp_path), InMemory(TOPOLOGY)
    means = means_of(runtime, TOPOLOGY, machine, lambda op: None, places, UserFiles(spawn))
    made = Jobs(means)
    for caller, host in ((Caller.of(os.getuid()), (1, 1)), (MINE, (1, 2))):
        request = JobRequest("x.py", (), "inc", None, caller, "/", {}, None, None, JobOptions(restarts=1))
        layout = Layout("inc", (host,), PACKETS)
        assert made.hold(request, lambda busy, layout=layout: layout, lambda _: Terms(None))
    made.job(1).generation = means.holdings.generation()
    yield made
    assert not machine.hosts.started


def test_jobs_whose_sums_were_lost_fail_and_the_others_go_on(jobs: Jobs) -> None:
    jobs.fail({2: jobs.job(2).generation}, LOST)
    assert {number: jobs.job(number).failure for number in (1, 2)} == {1: None, 2: LOST}
    assert jobs.job(2).stop_reason is None, "so that it may start again"


def test_a_job_is_stopped_by_its_user_or_root_and_by_nobody_else(jobs: Jobs) -> None:
    other = Caller(4243, 4243, (0, 4242), "other", "/")
    with pytest.raises(RequestError, match="job 2 is not a running job of other; running: none"):
        jobs.stop(2, "no", other)
    for asker, reason in ((MINE, "mine"), (Caller.of(0), "root")):
        jobs.stop(2, reason, asker)
        assert jobs.job(2).stop_reason == reason


def test_what_befell_an_earlier_generation_or_a_job_that_is_gone_fails_nobody(jobs: Jobs) -> None:
    jobs.fail({1: jobs.job(2).generation, 9: jobs.job(1).generation}, LOST)
    assert jobs.job(1).failure is jobs.job(2).failure is None


def test_no_job_gets_the_hosts_of_another_and_none_any_once_the_testbed_ends(jobs: Jobs) -> None:
    request = jobs.job(1).request
    chosen = iter([(1, 1), (1, 3)])
    third = jobs.hold(request, lambda busy: Layout("ring", (next(chosen),), GLOO), lambda _: Terms(None))
    assert third is not None
    assert third.hosts == ["u1h3"], "the first choice was another job's by then"
    assert jobs.hold(request, lambda busy: None, lambda _: Terms(None)) is None
    jobs.forget(third)
    assert jobs.means.holdings.busy() == {(1, 1), (1, 2)}
    assert not jobs.stop_all("the testbed is ending", 0.0)
    with pytest.raises(TestbedError, match="the testbed is ending"):
        jobs.hold(request, lambda busy: Layout("ring", ((1, 3),), GLOO), lambda _: Terms(None))
