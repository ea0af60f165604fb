"""Jobs under faults: the sums are exact, or every worker is told in time what is wrong; nothing hangs.

tests/bench/faults.py prints the figures of the same scenarios.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binom

from testbed.dataplanes.xdp.program import PORTS
from testbed.machine.links import LinkFault
from tests.at_once import at_once
from tests.limits import CALL_S
from tests.privileged.commands import ROOT, WAIT_S, Testbed, bounded, command, pid_of, running
from tests.privileged.fault_scenarios import (
    FAULTS,
    FRAGMENTS,
    LOSS,
    ROUNDS,
    ROUNDS_OF_EIGHT,
    TIME_LIMIT_S,
    described,
)
from tests.privileged.inside import findings

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs"), pytest.mark.usefixtures("nothing_left")]

ENGINES = ["xdp", pytest.param("bmv2", marks=pytest.mark.needs("bmv2"))]
JOBS = Path(__file__).resolve().parent / "jobs"
SLACK_S = 20.0  # a machine with other work on it; who is not told waits for longer than all of that
COUNTER = {"loss": "lost", "duplicate": "duplicated", "reorder": "held", "corrupt": "corrupted"}


def found_in(scenario: str, shape: str, engine: str) -> Any:
    return findings(f"fault_scenarios:{scenario}", described(shape, engine), 480)


def judge(job: dict[str, Any], rounds: int, workers: int = 3, held: bool = False) -> None:
    """`held`: until the scenario was through; so many rounds are the least."""
    assert job["errors"] == []
    assert job["rounds"] == [max(job["rounds"]) if held else rounds] * workers
    assert min(job["rounds"]) >= rounds
    assert job["wrong"] == 0, "every lane of every round at every worker"


def judge_links(links: dict[str, int], fault: LinkFault) -> None:
    """The faults that the stages counted are as many as were asked for."""
    for field, counter in COUNTER.items():
        low, high = binom.interval(1 - 1e-6, links["seen"], getattr(fault, field))
        assert low <= links[counter] <= high, f"{counter} of {links['seen']}"
    assert [links[name] for name in ("crowded", "failed", "merged")] == [0, 0, 0]


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def networks(engine: str) -> dict[str, dict[str, Any]]:
    """The findings on each shape of network."""
    return at_once({shape: partial(found_in, shape, shape, engine) for shape in ("rack", "units", "eight")})


@pytest.fixture(scope="module")
def rack(networks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return networks["rack"]


@pytest.fixture(scope="module")
def units(networks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return networks["units"]


@pytest.mark.parametrize("name", FAULTS)
def test_sums_are_exact_under(name: str, engine: str, rack: dict[str, Any]) -> None:
    job = rack["rates"][name]
    judge(job, ROUNDS[engine])
    fault, links = FAULTS[name], job["links"]
    if fault is None:
        assert links == {}
        return
    assert links["seen"] >= 2 * 3 * ROUNDS[engine] * FRAGMENTS * 0.9, "pushes and results both met the stage"
    judge_links(links, fault)


def test_sums_are_exact_across_units_when_every_link_loses_1_percent(
    engine: str, units: dict[str, Any]
) -> None:
    job = units["rates_across"]
    judge(job, ROUNDS[engine])
    judge_links(job["links"], LOSS)


@pytest.mark.needs("bmv2")
def test_sums_are_exact_across_kinds_of_switch_when_every_link_loses_1_percent() -> None:
    job = found_in("rates_across", "units", "mixed")
    judge(job, ROUNDS["mixed"])
    judge_links(job["links"], LOSS)


def test_eight_jobs_on_one_switch_are_all_exact_when_every_link_loses_1_percent(
    engine: str, networks: dict[str, dict[str, Any]]
) -> None:
    jobs = networks["eight"]["eight_jobs"]
    assert len(jobs) == 8
    for job in jobs:
        judge(job, ROUNDS_OF_EIGHT[engine], 2)
    assert sum(job["retransmitted"] for job in jobs) > 0


def test_the_programs_are_replaced_under_a_job(engine: str, units: dict[str, Any]) -> None:
    job = units["reloaded"]
    judge(job, ROUNDS[engine], held=True)
    assert job["new"] == [True] * len(PORTS), "of every program that is attached"


def test_a_job_outlives_reconfigurations_of_its_circuits(engine: str, units: dict[str, Any]) -> None:
    job = units["reconfigured"]
    judge(job, ROUNDS[engine], held=True)
    assert len(job["dark_ms"]) == 6


def test_a_job_goes_on_when_its_ps_host_is_reachable_again(engine: str, units: dict[str, Any]) -> None:
    job = units["ps_host_cut_off"]
    judge(job, ROUNDS[engine], held=True)
    assert job["lost"] > 0
    assert max(job["results"]) <= 1, (
        "no result without the PS host, but for a worker that takes late what had come"
    )


def test_the_others_are_told_in_time_when_a_worker_is_killed(rack: dict[str, Any]) -> None:
    outcome = rack["killed"]
    assert outcome["wrong"] == 0
    assert len(outcome["others"]) == 2
    for seconds, kind, message in outcome["others"]:
        assert seconds < TIME_LIMIT_S + SLACK_S
        assert (kind, message.count("\n")) == ("PeersMissingError", 0)
        assert re.search(r"no result in 5 s after fragment \d+", message)


def test_a_worker_started_again_in_the_same_generation_is_refused_and_changes_no_sum(
    rack: dict[str, Any],
) -> None:
    first, again, third = rack["restarted"]
    assert [worker["wrong"] for worker in (first, again, third)] == [0, 0, 0]
    assert again["rounds"] == 0
    assert again["error"][1] == "RejoinError"
    assert re.search(r"worker 1 has been in generation \d+ before", again["error"][2])
    assert [worker["error"][1] for worker in (first, third)] == ["PeersMissingError"] * 2


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with running() as made:
        yield made


def test_a_training_job_is_told_of_a_worker_s_death_on_links_that_lose(testbed: Testbed) -> None:
    lossy = command("testbed.fault", "set", "u1h1", "u1h2", "u1h3", "--loss", "1%", "--name", testbed.name)
    assert lossy.returncode == 0, lossy.stderr
    ended = command("testbed.run", "--name", testbed.name, "--place", "u1:3", str(JOBS / "dies.py"))
    assert command("testbed.fault", "clear", "--name", testbed.name).returncode == 0
    assert ended.returncode == 1
    messages = re.findall(r"\[(u1h\d)\] told after ([\d.]+) s: (.*)", ended.stdout)
    assert {host for host, _, _ in messages} == {"u1h1", "u1h3"}, ended.stdout + ended.stderr
    assert all("worker 1" in message for _, _, message in messages)


def test_a_job_ends_with_a_clear_error_when_its_parameter_server_is_killed(testbed: Testbed) -> None:
    argv = [sys.executable, "-m", "testbed.run", "--name", testbed.name, "--place", "u1:3", "--sync", "ps"]
    argv += [str(JOBS / "long.py"), "3600"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, cwd=ROOT, text=True, **pipes) as job, bounded(job, 2 * WAIT_S):
        assert job.stdout is not None
        assert any("first sum" in line for line in job.stdout)
        os.kill(pid_of(testbed.pid, "workloads.parameter_server"), signal.SIGKILL)
        _, errors = job.communicate(timeout=CALL_S)
    assert job.returncode == 1
    assert re.search(r"parameter server on u\dh\d .*SIGKILL", errors), errors
