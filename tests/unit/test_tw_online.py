"""The optimum with hindsight removed: its programs by hand, and beside the MILP where nothing is to come."""

from __future__ import annotations

import pytest

from testbed.scheduling.free_capacity import Loads
from testbed.scheduling.model import Job, Limits, Progress
from testbed.systems.p4inc import milp
from testbed.systems.p4inc.checker import check
from testbed.systems.p4inc.simulator.fluid import simulate
from testbed.systems.p4inc.simulator.settings import SETTINGS
from tests.bench import tw_online
from tests.bench.tw_online import RULES, Choice, Reoptimised, shown

# Four ports a unit of 40 Gb/s, one place for INC; TS of 1 s without loss.
LIMITS = Limits.uniform(3, 4, 1, 40.0, host_gbps=40.0, reconfiguration_s=0.0)


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not cut a program short: each takes a tenth of a second."""
    monkeypatch.setattr(tw_online, "SOLVE_S", 60.0)


def waiting(*jobs: Job) -> list[Progress]:
    return [Progress(job, job.gigabits) for job in jobs]


@pytest.mark.parametrize("rule", RULES)
def test_jobs_follow_each_other_in_a_place(rule: str) -> None:
    # with their PSs, 16 streams of 80 Gb take 8 s each, and both 16 s; one after the other with INC 4 s
    jobs = [Job(1, ((0, 16),), 1, 80.0), Job(2, ((0, 16),), 1, 80.0)]
    end_s, starts, ps = Choice(LIMITS, 0, (), waiting(*jobs), Loads()).solved(rule)
    assert (end_s, sorted(starts.values()), ps) == (4.0, [0, 2], set())


def test_what_runs_keeps_its_place_and_the_ports() -> None:
    held = Progress(Job(1, ((0, 16),), 1, 200.0), 120.0, started=0, inc=0, rate_gbps=40.0)
    end_s, starts, ps = Choice(LIMITS, 2, [held], waiting(Job(2, ((0, 16),), 1, 40.0)), Loads()).solved(
        "early"
    )
    assert (end_s, starts, ps) == (4.0, {2: 3}, set())
    # for three seconds the ports carry another job's; 80 Gb more are half a second
    sent = Progress(Job(3, ((0, 4),), 1, 160.0), 120.0, started=0, rate_gbps=40.0)
    narrow = Job(4, ((0, 2),), 1, 40.0, 0.25)
    end_s, starts, ps = Choice(LIMITS, 2, [held, sent], waiting(narrow), Loads()).solved("early")
    assert (end_s, starts, ps) == (3.5, {}, {4})


def test_the_rules_differ_where_the_end_does_not() -> None:
    # the long one needs 4 s, the other 1 s at any time, if there are places: two here
    limits = Limits.uniform(3, 4, 2, 40.0, host_gbps=40.0, reconfiguration_s=0.0)
    jobs = [Job(1, ((0, 16),), 1, 160.0), Job(2, ((0, 16),), 1, 40.0)]
    begins = {}
    for rule in RULES:
        end_s, starts, _ = Choice(limits, 0, (), waiting(*jobs), Loads()).solved(rule)
        assert (end_s, starts[1]) == (4.0, 0)
        begins[rule] = starts[2]
    assert begins["early"] == 0
    assert begins["spare"] == 1
    assert begins["late"] > 0


@pytest.mark.parametrize("rule", RULES)
def test_with_all_jobs_known_it_is_the_optimum(rule: str) -> None:
    setting = SETTINGS["table1"].having({"job_count": 30, "jobs_per_s": 1e6, "iterations": 60.0})
    jobs = setting.jobs(3)
    outcome = simulate(setting.limits, jobs, Reoptimised(rule), setting.initial, record=True)
    assert outcome.schedule is not None
    check(outcome.schedule)
    solved = milp.solve(setting.limits, jobs, ports=setting.initial, time_limit_s=20.0)
    assert solved.bound_s <= outcome.ct_bti_s <= 1.02 * solved.bound_s


def test_the_table() -> None:
    over = {"hindsight": 0.0, "tw+": 0.05, "early": 0.1, "spare": 0.2, "late": 0.3}
    run = {"iterations": 60.0, "jobs": 60, "over": over}
    more = {"iterations": 60.0, "jobs": 60, "over": {name: 2 * share for name, share in over.items()}}
    line = shown({"runs": [run, more]}).splitlines()[-1]
    assert line == "| 60 | 60 | 2 | 0.0% (0%) | 7.5% (10%) | 15.0% (20%) | 30.0% (40%) | 45.0% (60%) |"
