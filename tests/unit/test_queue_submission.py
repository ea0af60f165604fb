"""The jobs file: what is accepted, what is drawn, and where jobs are placed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import run
from testbed.aggregation.site import Rack
from testbed.errors import RequestError
from testbed.jobs.option_table import OPTIONS
from testbed.jobs.placement import place_in_queue
from testbed.plugins.registry import find
from testbed.queue import submission
from testbed.queue.layouts import check_against
from testbed.queue.submission import kinds, parse
from testbed.topology import catalogue, load

ROOT = Path(__file__).resolve().parents[2]
JOB = {"script": "train.py", "workers": 2, "iterations": 7, "megabytes": 1.5}
PS = find("ps")
RACKS = [Rack(1, "gpu", 4), Rack(2, "gpu", 4), Rack(3, "cpu", 2), Rack(4, "cpu", 2)]


def of(*jobs: dict[str, Any], **top: Any) -> dict[str, Any]:
    return {"jobs": [{**JOB, **job} for job in jobs], **top}


def test_what_is_not_said_has_defaults() -> None:
    submission = parse(of({}))
    assert (submission.policy, submission.slot_s, submission.seed, submission.step_gbps) == (
        "inc-tw",
        1.0,
        1,
        None,
    )
    assert submission.on_failure == "replan"
    assert parse(of({}, on_failure="keep")).on_failure == "keep"
    (job,) = submission.jobs
    assert (job.name, job.arguments, job.place, job.ps, job.arrival_s) == ("job-0", (), None, None, 0.0)
    assert (job.update_ms, job.limit_s, job.together) == (0.0, None, False)


def test_copies_have_names_of_their_own_and_draw_their_workers() -> None:
    jobs = parse(
        of({"name": "vgg", "copies": 53, "workers": [2, 4], "arguments": ["--model", "vgg16", 3]})
    ).jobs
    assert [job.name for job in jobs[:2]] == ["vgg-1", "vgg-2"]
    assert jobs[0].arguments == ("--model", "vgg16", "3")
    assert min(Counter(job.workers for job in jobs)[size] for size in (2, 4)) > 10


def test_poisson_arrivals_are_the_same_for_the_same_seed_and_mix_the_kinds() -> None:
    data = of(
        {"name": "a", "copies": 211},
        {"name": "b", "copies": 211},
        arrivals={"per_slot": 2.0},
        slot_s=0.5,
        seed=5,
    )
    jobs = parse(data).jobs
    assert jobs == parse(data).jobs
    assert jobs != parse({**data, "seed": 6}).jobs
    times = [job.arrival_s for job in jobs]
    assert times == sorted(times)
    assert 90 < times[-1] < 125, "422 jobs, 4 a second"
    assert 70 < sum(job.name.startswith("a") for job in jobs[:211]) < 140


def test_jobs_come_in_the_order_of_their_times() -> None:
    jobs = parse(of({"name": "late", "at_s": 3}, {"name": "early", "at_s": 0.5})).jobs
    assert [(job.name, job.arrival_s) for job in jobs] == [("early", 0.5), ("late", 3.0)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([1], "jobs file: .*keys and values are accepted"),
        ({"job": []}, "job: .*did you mean jobs"),
        ({"jobs": []}, "jobs: .*a list of jobs is accepted"),
        (of({"scrip": "x"}), r"jobs\[0\].scrip: x; unknown key; did you mean script"),
        ({"jobs": [{"script": "x", "iterations": 1}]}, r"jobs\[0\].megabytes: missing"),
        (of({"workers": 0}), r"jobs\[0\].workers: 0; a whole number from 1 to 64"),
        (of({"workers": [2, "x"]}), r"jobs\[0\].workers: .*a list of such"),
        (of({"workers": True}), r"jobs\[0\].workers: True"),
        (of({"place": "u1:2,u1:1"}), r"jobs\[0\].place: .*u1 is named twice"),
        (of({"place": "rack"}), r"jobs\[0\].place: 'rack': accepted is UNIT:WORKERS"),
        (of({"place": 3}), r"jobs\[0\].place: 3; .*together"),
        (of({"place": "u1:3"}), r"jobs\[0\].workers: 2; jobs\[0\].place has 3"),
        (of({"ps": "h3"}), r"jobs\[0\].ps: h3; a unit such as u3"),
        (of({"iterations": 0}), r"jobs\[0\].iterations: 0; a whole number from 1"),
        (of({"megabytes": "big"}), r"jobs\[0\].megabytes: big; a number from"),
        (of({"megabytes": float("nan")}), r"jobs\[0\].megabytes: nan; a number from"),
        (of({"update_ms": -1}), r"jobs\[0\].update_ms: -1; a number from 0"),
        (of({"restarts": -1}), r"jobs\[0\].restarts: -1; a whole number from 0 to 100"),
        (of({"lanes": 63}), r"jobs\[0\].lanes: 63; a whole number from 64 to 2234"),
        (
            of({"recovery": "questions"}),
            r"jobs\[0\].recovery: questions; window, integrity and none are accepted",
        ),
        (of({"lanes": "all"}), r"jobs\[0\].lanes: all; a whole number from 64 to 2234"),
        (
            of({"sync": "rings"}),
            r"jobs\[0\].sync: 'rings': accepted are auto, aleph, aleph-mwcha, aleph-servers, inc, luwu, "
            r"ps, ring, switches, trio, FILE.py:CLASS",
        ),
        (of({"sync": 3}), r"jobs\[0\].sync: 3; a text"),
        (of({"limit_s": 0}), r"jobs\[0\].limit_s: 0; a number from 0.1"),
        (of({"arguments": "--fast"}), r"jobs\[0\].arguments: --fast; a list"),
        (of({"name": "a/b"}), r"jobs\[0\].name: a/b; letters"),
        (of({"name": "a" * 65}), r"jobs\[0\].name: aaa.*; up to 64 characters"),
        (of({"name": "a"}, {"name": "a"}), "jobs: two are named 'a'"),
        (of({}, slot_s=0), "slot_s: 0; a number from 0.1 to 3600"),
        (of({}, seed=-1), "seed: -1; a whole number from 0"),
        (of({}, on_failure="wait"), "on_failure: wait; accepted are replan, keep$"),
        (of({}, on_failure=True), "on_failure: True; a text is accepted"),
        (of({}, policy=3), "policy: 3; a text is accepted"),
        (of({}, arrivals={"rate": 1}), "arrivals.rate: 1; unknown key; accepted are per_slot"),
        (of({}, arrivals={}), "arrivals.per_slot: missing"),
        (of({"at_s": 1}, arrivals={"per_slot": 1}), r"jobs\[0\].at_s: 1; with arrivals.per_slot"),
    ],
)
def test_what_is_wrong_is_named(data: Any, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        parse(data)


ACTIONS = [action for action in run.parser()._actions if action.dest != "help"]
TOLD_OF_RUN = {
    "place": "u1:2",
    "ps": "u2",
    "sync": "ring",
    "restarts": 3,
    "lanes": 64,
    "recovery": "integrity",
    "age_out_ms": 5.0,
    "window": 64,
    "leave_after": 3,
    "strict_finite": True,
    "error_feedback": True,
    "fine_sums": True,
    "init_group": True,
    "module": True,
    "folder_per_worker": True,
    "stragglers": "p=0.16,seed=3",
    "script": "x.py",
    "arguments": ["--fast"],
}
TESTBED = "name"  # of the testbed, which is the command's own: a job's key `name` is its name


def test_every_option_of_run_is_a_key_of_a_job_or_has_a_line_that_says_where_it_is() -> None:
    assert sorted(action.dest for action in ACTIONS) == sorted(
        {*submission.SAME_AS_RUN, *submission.ELSEWHERE, TESTBED}
    )
    for option in {*submission.SAME_AS_RUN} - {"circuits"}:  # of which a queued job accepts the default
        (job,) = parse(of({option: TOLD_OF_RUN[option]})).jobs
        (usual,) = parse(of({})).jobs
        asked, as_usual = ((each.options if option in OPTIONS else each) for each in (job, usual))
        assert getattr(asked, option) != getattr(as_usual, option), f"{option} takes effect"


@pytest.mark.parametrize("option", submission.ELSEWHERE)
def test_an_option_of_run_that_is_said_elsewhere_is_refused_with_where(option: str) -> None:
    said = re.escape(f"{option}: {submission.ELSEWHERE[option]}")
    with pytest.raises(RequestError, match=rf"^jobs\[0\]\.{said}$"):
        parse(of({option: "x"}))
    with pytest.raises(RequestError, match=rf"^{said}$"):
        parse(of({}, **{option: "x"}))


def test_the_table_of_documents_has_every_option_of_run() -> None:
    page = (ROOT / "docs" / "scheduling.md").read_text()
    table = page.partition("### What `testbed run` can")[2].partition("\n#")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    flags = [action.option_strings[-1] if action.option_strings else action.dest for action in ACTIONS]
    assert [flag for flag in flags if not any(f"`{flag}" in row for row in rows)] == []


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"place": "u9:2"}, "job job-0: place: u9:2; there are u1 .4 hosts"),
        ({"place": "u1:5", "workers": 5}, "job job-0: place: u1:5; there are"),
        ({"ps": "u7"}, "job job-0: ps: u7; there are"),
        ({"workers": 9}, "job job-0: workers: 9; 8 hosts of gpu units can be had in all"),
        (
            {"workers": 5, "place": "together"},
            "job job-0: workers: 5; 4 hosts of gpu units can be had in one",
        ),
        ({"place": "u3:2", "ps": "u3"}, "job job-0: ps: no host of u3 is left for its parameter server"),
        (
            {"place": "u3:2,u4:2", "workers": 4},
            "job job-0: ps: no host of a cpu unit is left for its parameter server",
        ),
        (
            {"workers": 8, "ps": "u1"},
            "job job-0: workers: 8; 7 hosts of gpu units .* beside its parameter server in u1",
        ),
        (
            {"place": "u1:1,u2:1,u3:1", "workers": 3, "sync": "ring"},
            "job job-0: sync ring: it needs circuits u1-u2, u2-u3, u3-u1; policies decide on circuits "
            "between one unit and those of the workers: place it in fewer units, or run it by testbed run",
        ),
        (
            {"place": "u3:2", "sync": "ps", "ps": "u3"},
            "job job-0: ps: no host of u3 is left for its parameter server",
        ),
        ({"lanes": 361}, "job job-0: lanes 361: 64 to 360 are accepted, as many as the MTU of 1500 holds"),
        ({"lanes": 64, "sync": "ring"}, "job job-0: --lanes 64: ring sums at no place"),
    ],
)
def test_what_this_testbed_cannot_place_is_refused_at_once(job: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        check_against(parse(of(job)), catalogue.ready("default"))


ONE_PORT = {"units": [{"hosts": 2}, {"hosts": 2}, {"hosts": 2}], "optical_ports": 1}


@pytest.mark.parametrize(
    "job",
    [
        {"place": "u1:1,u2:1", "ps": "u3"},
        {"place": "u1:1,u2:1", "ps": "u3", "sync": "ps"},
        {"place": "u1:1,u2:1", "ps": "u3", "sync": "inc"},
    ],
)
def test_a_job_whose_circuits_no_decision_could_give_is_refused_as_run_refuses_it(
    job: dict[str, Any],
) -> None:
    topology = load.parse(ONE_PORT, "one-port")
    with pytest.raises(RequestError, match=r"^job job-0: demands need 2 optical ports of u3; it has 1$"):
        check_against(parse(of(job)), topology)
    for possible in (
        {**job, "ps": "u2"},
        {**job, "ps": None},
        {**job, "place": "u1:2"},
        {"workers": 2, "place": "together"},
    ):
        check_against(parse(of({key: each for key, each in possible.items() if each})), topology)
    by_core = load.parse({**ONE_PORT, "core": {"rate_mbps": 10_000}}, "core")
    check_against(parse(of(job)), by_core)
    in_turns = parse(of(job, policy="mine.py:InTurns"))
    check_against(in_turns, topology)


def test_a_job_placed_nowhere_else_is_refused_wherever_its_server_is() -> None:
    topology = load.parse(ONE_PORT, "one-port")
    with pytest.raises(RequestError, match=r"^job job-0: demands need 2 optical ports of u"):
        check_against(parse(of({"place": "u1:1,u2:1,u3:1", "workers": 3})), topology)


def test_a_policy_gives_no_switch_packets_that_it_has_no_program_for() -> None:
    topology = load.parse({"units": [{"hosts": 3}, {"hosts": 3, "engine": "bmv2"}]}, "mixed")
    check_against(parse(of({"workers": 2, "lanes": 360})), topology)
    check_against(parse(of({"place": "u1:2", "workers": 2, "lanes": 64, "sync": "inc"})), topology)
    for job in ({"workers": 2}, {"place": "u2:2", "workers": 2, "sync": "inc"}):
        with pytest.raises(RequestError, match="lanes 64: u2 has engine: bmv2, whose program takes packets"):
            check_against(parse(of({**job, "lanes": 64})), topology)


def test_what_it_can_place_is_not() -> None:
    check_against(
        parse(
            of(
                {"workers": 8},
                {"name": "b", "place": "u3:1,u1:2", "workers": 3, "ps": "u3"},
                {"name": "c", "place": "u1:2,u2:2", "workers": 4, "sync": "ring"},
                {"name": "d", "place": "u1:1,u2:1,u3:1", "workers": 3, "sync": "inc"},
                {"name": "e", "place": "u1:1,u2:1,u3:1", "workers": 3, "sync": "switches"},
                {"name": "f", "place": "u1:4", "workers": 4, "sync": "ps"},
                {"name": "g", "workers": 2, "lanes": 64},
                {"name": "h", "place": "u1:4", "workers": 4, "sync": "inc", "lanes": 101},
            )
        ),
        catalogue.ready("default"),
    )


# ---------------------------------------------------------------- placement


@given(
    st.integers(1, 8),
    st.sets(st.sampled_from([host for rack in RACKS for host in rack.members()])),
    st.integers(0, 99),
)
def test_as_few_units_as_possible_hold_the_workers(
    workers: int, busy: set[tuple[int, int]], seed: int
) -> None:
    placed = place_in_queue(RACKS, busy, workers, None, False, None, Random(seed), PS.lay_out)
    free = {unit: sum(host not in busy for host in RACKS[unit - 1].members()) for unit in (1, 2, 3, 4)}
    if free[1] + free[2] < workers or free[3] + free[4] == 0:
        assert placed is None
        return
    assert placed is not None
    assert placed.server is not None
    assert len(set(placed.workers)) == workers
    assert not {*placed.workers, placed.server} & busy
    assert placed.server[0] in (3, 4)
    assert {unit for unit, _ in placed.workers} <= {1, 2}
    assert (len({unit for unit, _ in placed.workers}) == 1) == (max(free[1], free[2]) >= workers)


def test_placement_is_random_by_the_seed() -> None:
    drawn = [
        place_in_queue(RACKS, set(), 2, None, False, None, Random(seed), PS.lay_out) for seed in range(29)
    ]
    assert drawn == [
        place_in_queue(RACKS, set(), 2, None, False, None, Random(seed), PS.lay_out) for seed in range(29)
    ]
    assert {placed.workers[0][0] for placed in drawn if placed} == {1, 2}
    assert {placed.server[0] for placed in drawn if placed and placed.server} == {3, 4}


def test_a_parameter_server_in_a_gpu_unit_keeps_a_host_there() -> None:
    placed = [place_in_queue(RACKS, set(), 4, None, False, 1, Random(seed), PS.lay_out) for seed in range(29)]
    assert {placement.workers[0][0] for placement in placed if placement} == {2}, (
        "u1 has room for three beside it"
    )
    assert all(
        placement is not None and placement.server is not None and placement.server[0] == 1
        for placement in placed
    )
    assert place_in_queue(RACKS, set(), 7, None, False, 1, Random(1), PS.lay_out) is not None
    assert place_in_queue(RACKS, set(), 8, None, False, 1, Random(1), PS.lay_out) is None


def test_who_submits_is_told_how_many() -> None:
    assert kinds(parse(of({"workers": 1}))) == "1 job of 1 worker"
    assert kinds(parse(of({}, {"name": "b", "workers": 4}))) == "2 jobs of 2, 4 workers"


def test_together_waits_for_one_unit() -> None:
    busy = {(1, 1), (2, 1)}
    assert place_in_queue(RACKS, busy, 4, None, True, None, Random(1), PS.lay_out) is None
    assert place_in_queue(RACKS, busy, 4, None, False, None, Random(1), PS.lay_out) is not None


def test_what_is_asked_for_is_waited_for() -> None:
    assert place_in_queue(RACKS, {(1, 1)}, 4, ((1, 4),), False, None, Random(1), PS.lay_out) is None
    placed = place_in_queue(RACKS, {(3, 1)}, 3, ((1, 2), (2, 1)), False, 3, Random(1), PS.lay_out)
    assert placed is not None
    assert (placed.workers, placed.server) == (((1, 1), (1, 2), (2, 1)), (3, 2))
    assert (
        place_in_queue(RACKS, {(3, 1), (3, 2)}, 3, ((1, 2), (2, 1)), False, 3, Random(1), PS.lay_out) is None
    )


def test_without_cpu_units_the_parameter_server_takes_any_free_host() -> None:
    racks = [Rack(1, "gpu", 3)]
    placed = place_in_queue(racks, set(), 2, None, False, None, Random(1), PS.lay_out)
    assert placed is not None
    assert placed.server == (1, 3)
    assert place_in_queue(racks, {(1, 1)}, 2, None, False, None, Random(1), PS.lay_out) is None


def test_null_is_what_is_null_by_default_and_no_flag() -> None:
    (usual,), (job,) = parse(of({})).jobs, parse(of({"lanes": None, "stragglers": None})).jobs
    assert job.options == usual.options
    for option, accepted in (("restarts", "a whole number"), ("strict_finite", "true and false")):
        with pytest.raises(RequestError, match=rf"^jobs\[0\]\.{option}: None; {accepted}"):
            parse(of({option: None}))
    accepted = r"accepted are name, script, module, arguments, .* lanes and 11 more$"
    with pytest.raises(RequestError, match=accepted):
        parse(of({"nonesuch": 1}))
