"""The scheduler's slots, with jobs that are threads, a controller and links that are lists, and policies that
misbehave.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout
from testbed.errors import RequestError, TestbedError
from testbed.jobs import life, manager
from testbed.messages.coding import decode, plain
from testbed.messages.submission import SubmissionResult
from testbed.plugins.registry import find
from testbed.queue.policy_process import OverrunError, PolicyError
from testbed.queue.result import of_batch, of_session
from testbed.scheduling.model import Decision, State, UnitIndex
from testbed.topology import catalogue
from testbed.topology.load import parse
from testbed.wire.settings import GateSettings, SumSettings
from testbed.wire.transports import GLOO
from tests.unit import session_world
from tests.unit.made_settings import endpoint
from tests.unit.session_world import TOPOLOGY, NoObservation, World
from workloads.job_env import Board


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    monkeypatch.setattr(life, "Observation", NoObservation)
    return lambda *jobs: World(tmp_path, *jobs)


def test_a_decision_is_carried_out(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2", "ps": "u3"}).start()
    made.running(1)
    queued, machine = made.all[0], made.machine
    assert queued.mode == "inc", "the default topology's switches sum"
    assert machine.rates == {"u1h1": 200.0, "u1h2": 200.0}
    assert machine.admitted == {1}
    assert machine.programs == {1: find("inc").programs}, "its places run what its system names"
    assert machine.told[1].sums.transport == "packets"
    assert machine.told[1].sums.endpoint == endpoint(slots=64, ring_fd=0, rate_mbps=200.0)
    assert queued.job is not None
    assert queued.job.ps_host is None, "its parameter server's host is free for others"
    made.end()
    assert (queued.failure, queued.state) == (None, "ended")
    assert [what for _, what in made.said][:2] == ["arrived", "on u1h1 u1h2"]
    assert made.said[-1] == (1, "done")


def test_a_job_s_packets_have_the_lanes_of_the_jobs_file(world: Callable[..., World]) -> None:
    made = world(
        {"name": "a", "place": "u1:2", "lanes": 101},
        {"name": "b", "place": "u2:2", "sync": "inc", "lanes": 64},
        {"name": "c", "place": "u1:2"},
    ).start()
    made.running(1, 2, 3)
    assert {job: packets.lanes for job, packets in made.machine.packets.items()} == {1: 101, 2: 64, 3: None}
    made.end()


def test_jobs_beyond_the_hosts_wait_and_are_not_shown(world: Callable[..., World]) -> None:
    made = world(*({"name": f"j{at}", "place": "u1:2", "ps": "u3"} for at in range(3))).start()
    made.running(1, 2)
    made.until(lambda: made.session.slot > 4, "slots pass")
    assert made.all[2].state == "queued"
    assert {progress.job.id for state in made.policy.states for progress in state.jobs} == {1, 2}
    made.machine.fails.add(1)
    made.running(3)
    assert made.all[2].job is not None
    assert made.all[2].job.hosts == ["u1h1", "u1h2"]
    made.end()
    assert made.all[0].failure == "worker 0 on u1h1 exited with code 5"


def test_one_that_cannot_be_placed_holds_up_those_behind_it(world: Callable[..., World]) -> None:
    made = world(
        {"name": "a", "place": "u1:3", "ps": "u3", "workers": 3},
        {"name": "big", "place": "u1:4", "ps": "u3", "workers": 4},
        {"name": "c", "place": "u2:1", "ps": "u4", "workers": 1},
    ).start()
    made.running(1)
    made.until(lambda: made.session.slot > 3, "slots pass")
    assert [queued.state for queued in made.all] == ["running", "queued", "queued"]
    made.end()
    assert all(queued.failure is None for queued in made.all)


def test_a_cancelled_job_frees_its_hosts_whatever_its_state(world: Callable[..., World]) -> None:
    made = world(
        {"name": "a", "place": "u1:4", "ps": "u3", "workers": 4},
        {"name": "b", "place": "u1:4", "ps": "u3", "workers": 4},
        {"name": "c", "place": "u1:4", "ps": "u3", "workers": 4, "at_s": 600},
    ).start()
    made.running(1)
    assert made.session.cancel({2, 3}, "cancelled") == [2, 3]
    assert made.session.cancel({1, 2, 3}, "cancelled") == [1]
    made.end()
    assert [queued.failure for queued in made.all] == ["cancelled"] * 3
    result = of_batch(made.all, made.session, TOPOLOGY)
    assert (result.done, result.failed, result.cancelled) == (0, 0, 3)
    assert [job.jct_s is None for job in result.jobs] == [False, False, True], "the last had not arrived"


def test_a_job_that_overstays_is_ended(world: Callable[..., World]) -> None:
    made = world({"name": "a", "limit_s": 0.3}).start()
    made.until(lambda: made.all[0].state == "ended", "the job ends")
    made.end()
    assert of_batch(made.all, made.session, TOPOLOGY).failed == 1
    assert made.all[0].failure == "not done 0.3 s after its start"


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (OverrunError("policy x had no decision when its time was over"), "overruns"),
        (PolicyError("policy x raised"), "failures"),
    ],
)
def test_without_a_decision_the_last_one_stays_in_force(
    world: Callable[..., World], error: Exception, counted: str
) -> None:
    made = world({"name": "a", "place": "u1:2"}, {"name": "b", "place": "u2:2"}).start(1)
    made.running(1)

    def spoil(state: State, decision: Decision) -> Decision:
        raise error

    made.policy.spoil = spoil
    made.join()
    made.until(lambda: made.all[1].state == "ready", "the second job is ready")
    before = getattr(made.session.account, counted)
    made.until(lambda: getattr(made.session.account, counted) > before + 2, "it is counted")
    assert [queued.state for queued in made.all] == ["running", "ready"], (
        "new jobs wait, and running ones go on"
    )
    assert "the last decision stays in force" in made.notes[-1]
    (said,) = of_session(made.session).complaints
    complaint, times = said.rsplit(" (", 1)
    assert int(times.removesuffix(" times)")) > 2
    made.until(lambda: any(complaint in note for note in made.notes), "it is noted as well")
    made.policy.spoil = lambda state, decision: decision
    made.running(2)
    made.end()


def test_a_decision_that_breaks_a_constraint_is_not_carried_out(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"})
    made.policy.spoil = lambda state, decision: Decision(
        {job: 1000.0 for job in decision.rates}, decision.inc, decision.ports
    )
    made.start().until(lambda: made.session.account.failures > 1, "it is counted")
    assert made.all[0].state == "ready"
    assert "breaks a constraint: inc-fcfs, slot" in made.notes[-1]
    made.policy.spoil = lambda state, decision: decision
    made.running(1)
    made.end()


def worker_rate(made: World, rank: int) -> ctypes.c_double:
    """Return the cell in which the job's worker reads the rate of its link."""
    job = made.all[0].job
    assert job is not None
    board = Board.from_settings(made.machine.attempts[-1].board.settings(), rank, tuple(job.hosts), None)
    rate = ctypes.c_double.from_address(board.rate_address())
    rate.board = board  # type: ignore[attr-defined]  # its memory, as long as this
    return rate


def test_rates_and_circuits_follow_the_decision(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2", "ps": "u3"})
    made.session.rules = replace(made.session.rules, policy="made up")
    rate = [10.0]
    made.policy.spoil = lambda state, decision: Decision({1: rate[0]} if state.jobs else {}, {}, {(0, 2): 2})
    made.start().running(1)
    machine = made.machine
    assert sorted({tuple(sorted(end[:2] for end in pair)) for pair in machine.circuits}) == [("u1", "u3")]
    assert len(machine.circuits) == 2
    assert machine.rates == {"u1h1": 50.0, "u1h2": 50.0}
    by_server = SumSettings("ps", "server", None, ("10.0.3.1", 30501), "u3h1", "parameter server")
    assert machine.told[1] == GateSettings(by_server, ())
    seen = [worker_rate(made, rank) for rank in (0, 1)]
    assert [rate_mbps.value for rate_mbps in seen] == [0.0, 0.0], (
        "what the worker was told at its start holds"
    )
    rate[0] = 20.0
    made.until(lambda: machine.rates == {"u1h1": 100.0, "u1h2": 100.0}, "the rate rises")
    made.until(lambda: [rate_mbps.value for rate_mbps in seen] == [100.0, 100.0], "and the workers learn it")
    rate[0] = 5.0
    made.until(lambda: machine.rates == {"u1h1": 25.0, "u1h2": 25.0}, "the rate falls")
    made.until(lambda: [rate_mbps.value for rate_mbps in seen] == [25.0, 25.0], "and the workers learn it")
    made.end()
    result = of_batch(made.all, made.session, TOPOLOGY)
    assert [value for _, value in made.all[0].rates] == [10.0, 20.0, 5.0]
    assert (result.done, result.failed, result.reconfigurations) == (1, 0, 1)
    assert result.reconfigured_connections == len(machine.applied[0])
    assert result.model.ports == ((0, 1, 1), (0, 3, 1), (1, 2, 1), (2, 3, 1))
    assert decode(SubmissionResult, plain(result), "result") == result


def test_a_switch_without_room_makes_a_job_wait(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"})
    made.machine.is_full = True
    made.start().until(lambda: len(made.notes) > 2, "it is said")
    assert made.all[0].state == "ready"
    made.machine.is_full = False
    made.running(1)
    made.end()


def test_the_end_of_the_testbed_ends_everything(world: Callable[..., World]) -> None:
    made = world(
        {"name": "a", "place": "u1:4", "workers": 4}, {"name": "b", "place": "u1:4", "workers": 4}
    ).start()
    made.running(1)
    made.session.cancel({1, 2}, "the testbed is ending")
    made.session.end()
    made.end()
    assert {queued.failure for queued in made.all} == {"the testbed is ending"}
    assert not made.session.add([]), "it takes no more"


def test_jobs_that_join_get_hosts_before_the_next_slot(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2"}, {"name": "later", "place": "u2:2"})
    limits = replace(made.session.rules.limits, slot_s=600.0)
    made.session.rules = replace(made.session.rules, limits=limits)
    first, later = made.all
    made.start(1)
    made.until(lambda: first.state != "coming", "it has arrived")
    made.join()
    made.until(lambda: later.state == "starting", "it has hosts")
    made.session.cancel({1, 2}, "enough")
    made.end()


def test_a_job_that_starts_again_runs_as_it_did_and_its_policy_does_not_notice(
    world: Callable[..., World],
) -> None:
    made = world({"name": "a", "place": "u1:2", "restarts": 1})
    rate = [10.0]
    made.policy.spoil = lambda state, decision: Decision(
        dict.fromkeys(decision.rates, rate[0]), decision.inc, decision.ports
    )
    made.start().running(1)
    machine, queued = made.machine, made.all[0]
    rate[0] = 20.0
    made.until(lambda: machine.rates == {"u1h1": 100.0, "u1h2": 100.0}, "the rate rises")
    machine.fails_once = True
    machine.fails.add(1)
    made.until(lambda: len(machine.attempts) == 2, "it is started again")
    first, second = machine.attempts
    assert (first.gates is not None, first.admission, second.gates) == (True, None, None)
    assert second.admission is not None, "it has its place at the switch anew"
    assert (second.number, second.rate_mbps) == (1, 100.0), "and the rate that it had last"
    assert second.generation != first.generation
    assert machine.rates == {"u1h1": 100.0, "u1h2": 100.0}
    assert (queued.state, queued.started is not None, queued.mode) == ("running", True, "inc")
    slot = made.session.slot
    made.until(lambda: made.session.slot > slot + 2, "slots pass")
    assert {progress.started for state in made.policy.states for progress in state.jobs} == {
        None,
        queued.started,
    }
    assert made.session.account.failures == 0
    made.end()
    assert queued.failure is None
    assert queued.run is not None
    assert [attempt.failure for attempt in queued.run.attempts] == [
        "worker 0 on u1h1 exited with code 5",
        None,
    ]
    assert queued.run.notes == ("worker 0 on u1h1 exited with code 5: restart 1 of at most 1",)
    assert of_session(made.session).jobs[0].restarts == 1


def test_a_job_that_fails_at_its_gates_waits_at_new_ones(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2", "restarts": 1})
    made.machine.is_full = made.machine.fails_once = True
    made.start().until(lambda: made.all[0].state == "ready", "it waits")
    made.machine.fail_at_gates()
    made.until(lambda: len(made.machine.attempts) == 2, "it is started again")
    assert made.machine.attempts[1].gates is not None
    made.machine.is_full = False
    made.running(1)
    made.end()
    assert made.all[0].failure is None


def test_a_job_that_asks_for_a_system_is_summed_by_it_over_the_circuits_of_the_decision(
    world: Callable[..., World],
) -> None:
    made = world({"name": "a", "place": "u1:2,u2:2", "workers": 4, "sync": "switches"})
    made.machine.circuits = []
    made.start().running(1)
    queued, machine = made.all[0], made.machine
    assert (queued.mode, queued.job is not None and queued.job.layout.system) == ("switches", "switches")
    assert machine.told[1].sums.transport == "packets"
    assert machine.told[1].sums.system == "switches"
    assert {tuple(sorted(end[:2] for end in pair)) for pair in machine.circuits} == {("u1", "u2")}
    assert made.policy.states[-1].jobs[0].job.ps == 0, "circuits meet at the top of its tree"
    assert not made.policy.states[-1].jobs[0].job.inc_units(made.session.rules.limits), "INC is not offered"
    assert machine.admitted == {1}
    made.end()
    assert queued.failure is None


def test_a_ring_in_one_unit_has_the_whole_rate_of_its_links(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:4", "workers": 4, "sync": "ring"}).start()
    made.running(1)
    assert made.machine.told[1].sums.transport == "gloo"
    assert made.machine.rates == dict.fromkeys(("u1h1", "u1h2", "u1h3", "u1h4"), 200.0)
    made.end()


def test_circuits_of_planes_that_no_policy_decides_on_stay(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    ocs = {"planes": {"ours": {}, "theirs": {}}}
    raw = {**catalogue.READY["default"], "optical_ports": {"ours": 2, "theirs": 1}, "ocs": ocs}
    monkeypatch.setattr(session_world, "TOPOLOGY", parse(raw, "planes"))
    made = world({"name": "a", "place": "u1:1,u2:1", "ps": "u3"}).start()
    others = [["u1o3", "u2o3"], ["u3o3", "u4o3"]]
    assert all(pair in made.machine.circuits for pair in others)
    made.until(lambda: len(made.machine.applied) > 0, "circuits are set")
    applied = made.machine.applied[0]
    assert all(pair in applied for pair in others)
    ours = [pair for pair in applied if pair not in others]
    joined = [sorted(end[:2] for end in pair) for pair in ours]
    assert all(pair in joined for pair in (["u1", "u3"], ["u2", "u3"]))
    assert not any(end.endswith("o3") for pair in ours for end in pair)
    made.end()


def test_a_port_that_is_down_is_no_port_of_policies(world: Callable[..., World]) -> None:
    """A circuit that dies under a job is replaced in the next time slot."""
    made = world({"name": "a", "place": "u1:2", "ps": "u3"})
    machine = made.machine
    machine.down = ["u3o1"]
    decision = Decision({1: 10.0}, {}, {(0, 2): 1})
    made.policy.spoil = lambda state, _: decision if state.jobs else Decision()
    made.start()
    made.until(lambda: len(machine.applied) > 0, "circuits are set")
    assert machine.circuits == [["u1o1", "u3o2"]], "the dead circuit is no circuit between u2 and u3"
    assert made.policy.states[-1].limits.ports == (2, 2, 1, 2)
    machine.down = ["u1o1"]
    made.until(lambda: machine.circuits == [["u1o2", "u3o1"]], "another circuit in its place")
    machine.down = []
    made.until(lambda: made.policy.states[-1].limits.ports == (2, 2, 2, 2), "the port is back")
    assert machine.circuits == [["u1o2", "u3o1"]]
    made.end()


def test_circuits_that_die_are_kept_where_that_is_asked_for(world: Callable[..., World]) -> None:
    made = world({"name": "a", "place": "u1:2", "ps": "u3"})
    made.session.rules = replace(made.session.rules, on_failure="keep")
    machine = made.machine
    machine.down = ["u2o2"]
    ports = {(0, 2): 1, (1, 2): 1}
    made.policy.spoil = lambda state, _: Decision({1: 10.0}, {}, ports) if state.jobs else Decision()
    made.start()
    made.until(lambda: len(machine.applied) > 0, "circuits are set")
    assert sorted(machine.circuits) == [["u1o1", "u3o2"], ["u2o2", "u3o1"]]
    state = made.policy.states[-1]
    assert (state.limits.ports, state.ports[1, 2]) == ((2, 2, 2, 2), 1), "it sees no difference"
    machine.down = ["u2o2", "u4o1"]
    made.until(lambda: made.policy.states[-1].limits.ports == (2, 2, 2, 1), "u4o1 has no circuit")
    assert len(machine.applied) == 1
    made.end()


def test_a_job_whose_port_goes_down_does_not_stop_the_queue(world: Callable[..., World]) -> None:
    """Its policy never lowers a rate, and needs two ports of u3 for it."""
    made = world({"name": "a", "place": "u1:1,u2:1", "ps": "u3"}, {"name": "b", "place": "u4:2"})
    machine = made.machine
    made.start(1).running(1)
    made.until(lambda: len(machine.applied) > 0, "circuits are set")
    rates = made.all[0].rates
    machine.down = ["u3o1"]
    made.until(lambda: rates[-1][1] == 0.0, "it is cut off")
    made.join()
    made.running(2)
    loss = "u3o1 is down: no free port is left for its circuits; it has no rate until one is up"
    assert any(loss in complaint for complaint in made.session.account.complaints)
    assert any(loss in note for note in made.notes)
    assert made.session.account.failures == 0
    assert any("u3o2" in pair for pair in machine.circuits), "it keeps its other circuit"
    machine.down = []
    made.until(lambda: rates[-1][1] == rates[0][1], "it has its rate again")
    made.until(
        lambda: sum("u3" in (a[:2], b[:2]) for a, b in machine.circuits) == 2, "and both of its circuits"
    )
    assert made.session.account.failures == 0
    made.end()


def test_a_circuit_that_no_port_is_up_for_does_not_stop_the_rest(world: Callable[..., World]) -> None:
    """With `keep` a policy may use the port of a dead circuit for another one."""
    made = world({"name": "a", "place": "u1:2", "ps": "u3"}, {"name": "b", "place": "u4:2"})
    made.session.rules = replace(made.session.rules, on_failure="keep")
    machine = made.machine
    machine.circuits, machine.down = [["u1o1", "u2o1"], ["u1o2", "u4o2"], ["u2o2", "u3o1"]], ["u3o1"]

    def spoil(state: State, _: Decision) -> Decision:
        rates = {progress.job.id: 10.0 for progress in state.jobs}
        inc = {2: UnitIndex(3)} if 2 in rates else {}
        if state.limits.ports[2] == 2:
            return Decision(rates, inc, {(0, 2): 2})
        rates.pop(1, None)
        return Decision(rates, inc, state.ports)

    made.policy.spoil = spoil
    made.start().running(2)
    made.until(lambda: any("no port is up for a circuit of u1-u3" in note for note in made.notes), "said")
    assert made.all[0].state == "ready"
    assert ["u1o1", "u3o2"] in machine.circuits
    machine.down = []
    made.running(1)
    made.end()


def test_a_change_that_the_controller_refuses_leaves_rates_as_they_were(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world({"name": "a", "place": "u1:2", "ps": "u3"})
    made.start().running(1)
    ask, rates = made.machine.ask, made.all[0].rates
    refused = []

    def refusing(operation: str, **arguments: Any) -> Any:
        if operation == "apply":
            refused.append(arguments)
            raise TestbedError("circuit u1o1-u3o1: the link of u3o1 is down")
        return ask(operation, **arguments)

    had, links, inc = rates[-1][1], dict(made.machine.rates), {1: UnitIndex(0)}
    monkeypatch.setattr(made.session, "_controller", refusing)
    made.policy.spoil = lambda state, _: Decision({1: had / 2}, inc, {(0, 2): 1, (1, 3): 1})
    made.until(lambda: len(refused) > 1, "it is refused")
    monkeypatch.setattr(made.session, "_decide", lambda *_: (Decision({1: had}, inc), None))
    slot = made.session.slot
    made.until(lambda: made.session.slot > slot + 1, "the slot is over")
    assert (rates[-1][1], made.machine.rates) == (had, links)
    made.end()


def test_results_of_jobs_across_units_follow_the_decisions_circuits(world: Callable[..., World]) -> None:
    made = world(
        {"name": "a", "place": "u1:2,u2:2", "workers": 4, "sync": "switches"},
        {"name": "b", "place": "u1:2", "ps": "u3"},
    )
    made.start(1).running(1)
    ports = [{(0, 1): 1}]
    made.policy.spoil = lambda state, decision: Decision(dict.fromkeys(decision.rates, 1.0), {}, ports[0])
    made.until(lambda: len(made.machine.applied) > 0, "circuits are set")
    made.machine.rerouted.clear()
    ports[0] = {(0, 1): 2}
    made.until(lambda: made.machine.rerouted == {1}, "its results follow")
    made.end()


@pytest.mark.parametrize("restarts", [0, 1])
def test_one_that_may_start_again_keeps_its_circuits_until_it_has_ended(
    world: Callable[..., World], restarts: int
) -> None:
    made = world({"name": "a", "place": "u1:2", "restarts": restarts}).start()
    made.running(1)
    made.machine.attempts[0].board._workers.left_ns[:] = time.monotonic_ns()
    slot = made.session.slot
    made.until(lambda: made.session.slot > slot + 2, "slots pass")
    assert made.all[0].state == ("running" if restarts else "leaving")
    made.end()
    assert made.all[0].trained_s is not None, "it is the time of training all the same"


CROWDED = "--sync mine.py:Mine: its lay_out raised ValueError: too crowded"


def test_a_job_without_a_layout_beside_others_waits_and_alone_it_fails(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Site] = []
    takes = [True]

    class Mine:
        """A user's system that lays no job out beside another."""

        programs: Mapping[str, str] = {}

        def __init__(self, *_: Any) -> None:
            pass

        def lay_out(self, workers: Any, site: Site) -> Layout:
            asked.append(site)
            if site.busy or not takes[0]:
                raise RequestError(CROWDED)
            return Layout("mine.py:Mine", tuple(workers), GLOO)

    monkeypatch.setattr(manager, "UserSystem", Mine)
    own = {"place": "u1:2", "sync": "mine.py:Mine"}
    made = world({"name": "a", "place": "u2:2"}, {"name": "b", **own}, {"name": "c", **own}).start()
    made.running(1)
    slot = made.session.slot
    made.until(lambda: made.session.slot > slot + 2, "slots pass")
    assert [queued.state for queued in made.all] == ["running", "queued", "queued"]
    times = len(asked)
    assert len(made.notes) == times
    assert made.notes[0].endswith(f"job 2 (b) waits: {CROWDED}")
    made.until(lambda: made.session.slot > slot + 6, "slots pass")
    assert len(asked) == times, "it is not asked again while no host becomes free"
    made.machine.fails.add(1)
    made.running(2)
    takes[0] = False
    made.machine.fails.add(2)
    made.until(lambda: made.all[2].state == "ended", "the third is refused on an empty testbed")
    assert made.all[2].failure == CROWDED
    made.end()
    assert made.all[1].mode == "mine.py:Mine"
