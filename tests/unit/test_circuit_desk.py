"""Workers that ask for circuits: by real sockets, with a controller that is a set of circuits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from testbed.aggregation.forest import Forest
from testbed.aggregation.system import Layout
from testbed.jobs.circuit_desk import CircuitDesk
from testbed.jobs.claimed_circuits import ClaimedCircuits
from testbed.topology.load import parse
from testbed.wire.transports import GLOO
from workloads.circuits import Asked, CircuitClient, CircuitsBusyError, CircuitsRefusedError, Light

LIMIT_S = 20.0
UNITS = {
    "units": [{"hosts": 2}] * 4,
    "optical_ports": 1,
    "core": {},
    "ocs": {"circuits": [["u1o1", "u2o1"], ["u3o1", "u4o1"]]},
}
WITHOUT_CORE = {
    "units": [{"hosts": 2}] * 3,
    "optical_ports": 2,
    "ocs": {"circuits": [["u1o1", "u2o1"], ["u2o2", "u3o1"]]},
}
RING = ((1, 2), (2, 3), (3, 4), (4, 1))


class World:
    """A testbed's circuits. Job 1 has a worker in each unit; `more` has other jobs."""

    def __init__(self, config: dict[str, Any] = UNITS, demands: tuple[tuple[int, int], ...] = RING) -> None:
        self.topology = parse(config, "it")
        self.lit = [list(pair) for pair in config["ocs"]["circuits"]]
        self.more: dict[str, Any] = {}
        self.changes = 0
        self.may_change = threading.Event()
        self.may_change.set()
        self.is_left = False
        hosts = tuple((unit.index, 1) for unit in self.topology.units)
        self.jobs = {1: Layout("ring", hosts, GLOO, demands=demands)}
        self.claimed = ClaimedCircuits(self.topology, self.ask, lambda: dict(self.jobs), lambda: self.is_left)

    def ask(self, operation: str, **arguments: Any) -> Any:
        if operation == "circuits":
            return {"circuits": self.lit, "dark": [], "failed_locks": {}, "down": [], **self.more}
        assert operation == "exchange"
        assert self.may_change.wait(LIMIT_S)
        if arguments["instead_of"] != sorted(self.lit):
            return {"is_done": False, "event": None}
        added = [pair for pair in arguments["circuits"] if pair not in self.lit]
        removed = [pair for pair in self.lit if pair not in arguments["circuits"]]
        self.lit = arguments["circuits"]
        self.changes += 1
        times = dict.fromkeys(("asked_ms", "switch_ms", "lock_ms", "resolution_ms", "settled_ms"), 1.0)
        event = {"id": self.changes, "time": 0, "ports": [], **times, "since_asked_ms": {}}
        return {"is_done": True, "event": {**event, "measured_ms": 7.5, "removed": removed, "added": added}}

    @contextmanager
    def desk(self, job: int = 1, workers: int = 4) -> Iterator[list[CircuitClient]]:
        with CircuitDesk(job, workers, self.claimed) as desk:
            clients = [CircuitClient(desk.fd(rank)) for rank in range(workers)]
            desk.are_inherited()
            yield clients


def asked(clients: list[CircuitClient], *names: str, ahead: bool = False, wait_s: float = 0.0) -> list[Asked]:
    pairs = tuple((a, b) for a, b in (name.split("-") for name in names))
    return [client.ask(pairs, tuple(range(len(clients))), ahead, wait_s) for client in clients]


def alone(client: CircuitClient, rank: int, *names: str, ahead: bool = False, wait_s: float = 0.0) -> Asked:
    pairs = tuple((a, b) for a, b in (name.split("-") for name in names))
    return client.ask(pairs, (rank,), ahead, wait_s)


def lights(requests: list[Asked]) -> list[Light]:
    return [each.wait(LIMIT_S) for each in requests]


def refusal(request: Asked) -> str:
    with pytest.raises(CircuitsRefusedError) as raised:
        request.wait(LIMIT_S)
    return str(raised.value)


def until(condition: Any) -> None:
    for _ in range(int(LIMIT_S / 0.01)):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("not in time")


def test_circuits_change_once_for_all_members_and_stay_lit_afterwards() -> None:
    world = World()
    with world.desk() as clients:
        first = asked(clients, "u1-u3", "u2-u4")
        for light in lights(first):
            assert (light.circuits, light.is_changed) == ((("u1o1", "u3o1"), ("u2o1", "u4o1")), True)
            assert light.dark_ms == 7.5
        second = asked(clients, "u1-u3")
        assert [light.dark_ms for light in lights(second)] == [0.0] * 4
        for each in (*first, *second):
            each.release()
        until(lambda: not world.claimed.by_job())
        assert world.changes == 1, "they stay lit"
        assert [light.is_changed for light in lights(asked(clients, "u2-u4"))] == [False] * 4


def test_none_is_answered_before_the_last_member_has_asked() -> None:
    world = World()
    with world.desk() as clients:
        early = [client.ask((("u1", "u3"),), (0, 1, 2, 3), False, 0.0) for client in clients[:3]]
        assert not any(each.is_lit for each in early)
        late = clients[3].ask((("u1", "u3"),), (0, 1, 2, 3), False, 0.0)
        assert lights([*early, late])
        other = [
            client.ask((("u1", "u3") if rank else ("u1", "u2"),), (0, 1), False, 0.0)
            for rank, client in enumerate(clients[:2])
        ]
        assert "all ask for the same" in refusal(other[0])
        assert "worker 1 asks for u1-u3, and another member for u1-u2" in refusal(other[1])


def test_a_worker_that_ends_holds_nothing_and_others_do_not_wait_for_it() -> None:
    world = World()
    with world.desk() as clients:
        alone(clients[0], 0, "u1-u3").wait(LIMIT_S)
        assert world.claimed.by_job()
        waiting = [client.ask((("u1", "u3"),), (0, 1), False, 0.0) for client in clients[1:2]]
        clients[0]._socket.shutdown(2)
        assert "worker 0 ended before it asked for them" in refusal(waiting[0])
        until(lambda: not world.claimed.by_job())
        late = clients[1].ask((("u1", "u2"),), (0, 1), False, 0.0)
        assert "worker 0 ended before it asked for them" in refusal(late)


def test_a_worker_that_ends_while_circuits_change_holds_nothing() -> None:
    world = World()
    with world.desk() as clients:
        world.may_change.clear()
        both = [client.ask((("u1", "u3"),), (0, 1), False, 0.0) for client in clients[:2]]
        until(lambda: 1 in world.claimed.by_job())
        clients[0]._socket.shutdown(2)
        threading.Event().wait(0.05)
        world.may_change.set()
        assert both[1].wait(LIMIT_S).is_changed
        both[1].release()
        until(lambda: not world.claimed.by_job())


def test_a_request_ahead_waits_for_its_own_blocks_and_a_nested_one_is_refused() -> None:
    world = World()
    with world.desk() as clients:
        outer = asked(clients, "u1-u3")
        lights(outer)
        assert "held by worker 0 in a block around this one" in refusal(asked(clients, "u1-u2")[0])
        ahead = asked(clients, "u1-u2", ahead=True, wait_s=LIMIT_S)
        threading.Event().wait(0.1)
        assert not ahead[0].is_lit
        for each in outer:
            each.release()
        assert lights(ahead)[0].circuits == (("u1o1", "u2o1"),)
        ahead[0].release()
        ahead[0].release()


def test_other_jobs_keep_what_they_hold_until_a_time_is_over() -> None:
    world = World()
    world.jobs[2] = Layout("ring", ((1, 2), (2, 2)), GLOO)
    with world.desk() as clients, world.desk(2, 2) as others:
        lights(mine := asked(clients, "u1-u3"))
        (text, _) = (refusal(each) for each in asked(others, "u1-u2"))
        assert text == "circuits u1-u2: u1o1-u3o1 is in use by job 1 (wait_s: how long to wait for it)"
        assert refusal(asked(others, "u1-u2", wait_s=0.1)[1]).endswith("by job 1 after 0.1 s")
        assert "the job has no host in u3; its units are u1, u2" in refusal(asked(others, "u1-u3")[0])
        patient = asked(others, "u1-u2", wait_s=LIMIT_S)
        for each in mine:
            each.release()
        assert lights(patient)[0].circuits == (("u1o1", "u2o1"),)
    assert world.claimed.by_job() == {}, "the jobs have ended"


def test_timetables_policies_and_sums_that_would_be_cut_off_refuse() -> None:
    world = World(WITHOUT_CORE, ((1, 2), (2, 3)))
    layout = world.jobs[1]
    forest = object.__new__(Forest)
    world.jobs[1] = Layout("inc", layout.workers, "packets", forest=forest, demands=layout.demands)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forest, "hosts", lambda self: set())
        with world.desk(workers=3) as clients:
            text = refusal(asked(clients, "u1-u2", "u1-u2")[0])
            assert (
                "u2 and u3 would have no way to each other, and places sum for the job in both (inc)" in text
            )
            assert world.claimed.by_job() == {}
            world.is_left = True
            assert "the circuits are the scheduler's" in refusal(asked(clients, "u1-u2")[0])
            world.is_left = False
            matchings = [{"start_ms": 0, "circuits": []}]
            world.more = {"schedule": {"period_ms": 1, "guard_ms": 0, "matchings": matchings}}
            assert "a timetable runs" in refusal(asked(clients, "u1-u2")[0])


def test_units_that_a_block_cut_off_are_joined_again_after_it() -> None:
    world = World(WITHOUT_CORE, ((1, 2), (2, 3)))
    with world.desk(workers=3) as clients:
        lights(both := asked(clients, "u1-u2", "u1-u2"))
        assert all("u3o1" not in pair for pair in world.lit)
        for each in both:
            each.release()
        until(lambda: any("u3" in pair[1] for pair in world.lit))


def test_the_holders_of_what_is_in_the_way_learn_that_others_wait() -> None:
    world = World()
    with world.desk() as clients:
        told: list[str] = []
        clients[0].wanted = told.append
        held = alone(clients[0], 0, "u1-u3", ahead=True)
        held.wait(LIMIT_S)
        waiting = alone(clients[1], 1, "u1-u2", ahead=True, wait_s=LIMIT_S)
        until(lambda: told == [held.key])
        held.release()
        assert waiting.wait(LIMIT_S).is_changed
        with pytest.raises(CircuitsBusyError, match=r"held by worker 1 of this job after 0\.1 s"):
            alone(clients[2], 2, "u1-u4", ahead=True, wait_s=0.1).wait(LIMIT_S)
