"""Jobs that something fails from outside."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.aggregation.system import Layout
from testbed.contract.transports import PACKETS
from testbed.errors import RequestError
from testbed.jobs.job import Job, JobRequest
from testbed.jobs.manager import Jobs
from testbed.jobs.user_files import UserFiles
from testbed.runtime import Caller
from testbed.topology import catalogue
from tests.processes import spawn

LOST = "u1's simple_switch ended (signal 9), and with it what it had summed"


class NoHosts:
    def popen_in(self, host: str, argv: Any, **options: Any) -> Any:
        raise AssertionError("no process is started in this test")

    def statistics(self, queues_only: bool = False) -> dict[str, Any]:
        return {}


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    """Two that run: job 1 in generation 3, which is its second, and job 2 in its first."""
    caller = Caller.of(os.getuid())
    hosts: Any = NoHosts()
    made = Jobs("t", catalogue.ready("default"), hosts, lambda op: None, None, tmp_path, UserFiles(spawn))
    request = JobRequest("x.py", (), "inc", None, caller, "/", {}, None, None, 1)
    for number, generation, host in ((1, 3, (1, 1)), (2, 2, (1, 2))):
        made._jobs[number] = Job(number, generation, request, Layout("inc", (host,), PACKETS))
    return made


def test_jobs_whose_sums_were_lost_fail_and_the_others_go_on(jobs: Jobs) -> None:
    jobs.fail({2: 2}, LOST)
    assert {number: job.failure for number, job in jobs._jobs.items()} == {1: None, 2: LOST}
    assert jobs._jobs[2].stop_reason is None, "so that it may start again"


def test_a_job_is_stopped_by_its_user_or_root_and_by_nobody_else(jobs: Jobs) -> None:
    mine, root, other = (
        Caller(4242, 4242, (), "me", "/"),
        Caller.of(0),
        Caller(4243, 4243, (0, 4242), "other", "/"),
    )
    jobs._jobs[2].request = replace(jobs._jobs[2].request, caller=mine)
    with pytest.raises(RequestError, match="job 2 is not a running job of other; running: none"):
        jobs.stop(2, "no", other)
    for asker, reason in ((mine, "mine"), (root, "root")):
        jobs.stop(2, reason, asker)
        assert jobs._jobs[2].stop_reason == reason


def test_what_befell_an_earlier_generation_or_a_job_that_is_gone_fails_nobody(jobs: Jobs) -> None:
    jobs.fail({1: 1, 9: 4}, LOST)
    assert all(job.failure is None for job in jobs._jobs.values())
