"""The controller's decisions, carried out by a model of everything that they are about: random sequences of
requests, of switches that come, go and come back with other contents, of failures in mid-change and of
controllers that die.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.decide import decide
from controller.flows import Flow, oxc_flows, routes_of
from controller.steps import (
    LIGHT,
    MODEL,
    AskModel,
    Began,
    Came,
    ChangeRoutes,
    Demanded,
    Done,
    End,
    Failed,
    Held,
    Linked,
    Modify,
    Ordered,
    Overdue,
    Read,
    Restarted,
    Task,
    TellTime,
    Timed,
    Turn,
    WaitUntil,
    Watch,
)
from testbed.errors import RequestError, TestbedError
from testbed.ocs.circuits import Circuit, circuit
from testbed.topology.addresses import OXC_DPID
from tests.examples import examples
from tests.unit.controller_world import MIXED, SWITCHED, Died, World
from tests.unit.model_switches import with_change

WORLDS: list[tuple[tuple[str, ...], bool, dict[str, Any]]] = [
    (SWITCHED, True, {}),
    (SWITCHED, True, {"lock_failure": 0.4, "core": {}}),
    (SWITCHED, False, {"lock_failure": 0.4}),
    (MIXED, True, {}),
]
EVENTS = 12


def some_circuits(world: World, chance: Random) -> frozenset[Circuit]:
    """A few circuits of now, and others between ports that are free then."""
    kept = [c for c in sorted(world.state.circuits or ()) if chance.random() < 0.6]
    used = {port for c in kept for port in c.ports}
    free = [port for port in world.topology.optical_ports if port not in used]
    chance.shuffle(free)
    pairs = zip(free[::2], free[1::2], strict=False)
    return frozenset([*kept, *(circuit(a, b) for a, b in pairs if chance.random() < 0.7)])


def come_with_anything(world: World, chance: Random) -> None:
    """A switch comes with what it held, part of it, nothing, or what nobody asked for; or comes back so by
    another connection before anybody has noticed that the last one ended.
    """
    dpid = chance.choice(sorted(set(world.dpids) - world.linked) or world.dpids)
    held = world.held[dpid]
    kind = chance.choice(("all", "part", "none", "other"))
    if kind == "part":
        world.held[dpid] = {match: flow for match, flow in held.items() if chance.random() < 0.5}
    elif kind != "all":
        world.held[dpid] = {}
    if kind == "other":
        flow = Flow(7, out_port=3, in_port=2)
        world.held[dpid] = {flow.match: flow}
    world.come(dpid)


def something_happens(world: World, chance: Random) -> None:
    units = [unit.index for unit in world.topology.units]
    often, seldom = ("order", "come", "links"), ("demand", "part", "restart", "overdue", "die")
    match chance.choice((*often, *often, *seldom)):
        case "order":
            world.run(Ordered(some_circuits(world, chance)))
        case "links":
            world.run(Linked(world.some_links()))
        case "demand":
            pairs = [tuple(sorted(chance.sample(units, 2))) for _ in range(chance.randint(0, 3))]
            world.run(Demanded(tuple((a, b) for a, b in pairs)))
        case "come":
            come_with_anything(world, chance)
        case "part" if world.linked:
            world.part(chance.choice(sorted(world.linked)))
        case "restart":
            unit = chance.choice(units)
            if unit in world.state.premises.without_openflow:
                world.routes.pop(unit, None)
            world.run(Restarted(unit))
        case "overdue":
            world.run(Overdue())
        case "die":
            raise Died


def settle(world: World, by_itself: bool) -> None:
    """All that happens until a testbed is ready: switches connect again, and what failed is told again, by
    the controller itself or because somebody asks for it.
    """
    for dpid in set(world.dpids) - world.linked:
        world.come(dpid)
    if by_itself:
        world.run(Overdue())
        return
    if world.state.circuits is None:
        world.part(OXC_DPID)
        world.come(OXC_DPID)
    if OXC_DPID not in world.state.verified:
        world.run(Ordered(world.state.current))
    for unit in world.state.unsettled:
        world.run(Restarted(unit))


@pytest.mark.parametrize(("engines", "has_plane", "more"), WORLDS)
@settings(max_examples=examples(100), deadline=None)
@given(
    chance=st.randoms(use_true_random=True),
    mishaps=st.sampled_from([0.0, 0.02, 0.15]),
    deafness=st.sampled_from([0.0, 0.1, 0.4]),
    by_itself=st.booleans(),
)
def test_whatever_happens(
    engines: tuple[str, ...],
    has_plane: bool,
    more: dict[str, Any],
    chance: Random,
    mishaps: float,
    deafness: float,
    by_itself: bool,
) -> None:
    world = World(engines, has_plane, chance, **more)
    world.run(Began())
    world.mishaps, world.deafness, world.flapping = mishaps, deafness, 0.3
    for _ in range(EVENTS):
        try:
            something_happens(world, chance)
        except RequestError:  # more circuits than a unit has ports
            pass
        except TestbedError:  # before the optical switch has come
            assert world.state.circuits is None
        except Died:
            world.restart()
            world.run(Began())
        if world.state.errand is None:
            world.check_verified()
    world.mishaps = world.deafness = 0.0
    world.deaf.clear()
    settle(world, by_itself)
    assert world.state.is_ready
    assert world.state.lacks == ()
    for dpid in world.state.verified:
        world.check_settled(dpid)


# ---------------------------------------------------------------------- one decision at a time


def settled(engines: tuple[str, ...], has_plane: bool) -> World:
    world = World(engines, has_plane, Random(11))
    world.run(Began())
    for dpid in world.dpids:
        world.come(dpid)
    assert world.state.is_ready
    return world


def planned(world: World, todo: tuple[Task | End, ...]) -> tuple[Task | End, ...]:
    """The tasks after the one that asks the model, which is the only one."""
    (task,) = todo
    assert isinstance(task, Task)
    (ask,) = task.steps
    assert (task.about, type(ask)) == (MODEL, AskModel)
    answer = world.carry_out(ask)
    assert answer
    return world.decide(answer)


def asked(world: World, target: frozenset[Circuit]) -> tuple[Task, ...]:
    """The tasks of a change, from the moment at which it begins."""
    (task,) = planned(world, world.decide(Ordered(target)))
    assert task == Task(OXC_DPID, (TellTime(),))
    world.now_ns = 1_000_000
    time = world.carry_out(TellTime())
    assert time == Timed(0.001)
    return tuple(task for task in world.decide(time) if isinstance(task, Task))


def test_the_steps_of_a_change_in_their_order() -> None:
    world = settled(SWITCHED, True)
    gone, new = circuit("u1o1", "u2o1"), circuit("u1o1", "u3o3")
    assert gone in world.state.current
    (optics,) = asked(world, world.state.current - {gone} | {new})
    change = world.state.errand and world.state.errand.change
    assert change
    a, b, c = world.numbers(["u1o1", "u2o1", "u3o3"])
    assert optics.steps == (
        Modify(OXC_DPID, oxc_flows([gone]), oxc_flows([new])),
        Read(OXC_DPID),
    )
    (light,) = world.decide(Held(OXC_DPID, oxc_flows(change.target)))
    turn = Turn(((a, c), (b, None), (c, a)), change.dark_ns)
    assert isinstance(light, Task)
    assert light.about == LIGHT
    first, routes = light.steps
    assert first == turn
    watch, *tors = world.decide(Done(LIGHT))
    assert watch == Task(LIGHT, (Watch((a, c)),))
    tasked = [task.about for task in tors if isinstance(task, Task)]
    assert isinstance(routes, ChangeRoutes), "while it is dark, before anybody is told"
    assert tasked == sorted(routes.changes)
    for dpid in tasked:
        wanted = routes_of(dpid, change.tor_flows[dpid])
        assert with_change(world.routes[dpid], *routes.changes[dpid]) == wanted
    for task in tors:
        assert isinstance(task, Task)
        modify, read = task.steps
        assert isinstance(modify, Modify)
        assert modify.add
        assert read == Read(modify.dpid)


def test_tors_are_told_of_a_change_whose_turn_failed() -> None:
    world = settled(SWITCHED, True)
    (_,) = asked(world, world.state.current | {circuit("u1o3", "u2o3")})
    world.decide(Held(OXC_DPID, world.state.wanted(OXC_DPID)))
    tors = world.decide(Failed(LIGHT, TestbedError("refused")))
    assert [task.about for task in tors if isinstance(task, Task)] == [1, 2]


def test_without_a_fast_path_the_flows_absence_is_the_darkness() -> None:
    world = settled(SWITCHED, False)
    gone, new = circuit("u1o1", "u2o1"), circuit("u1o1", "u3o3")
    (optics,) = asked(world, world.state.current - {gone} | {new})
    change = world.state.errand and world.state.errand.change
    assert change
    assert optics.steps == (
        Modify(OXC_DPID, oxc_flows([gone]), frozenset()),
        WaitUntil(change.due_ns),
        Modify(OXC_DPID, frozenset(), oxc_flows([new])),
        Read(OXC_DPID),
    )


def test_a_change_tells_the_tors_that_it_concerns_and_no_other() -> None:
    """A second circuit between two units changes routes at these two alone."""
    world = settled(SWITCHED, True)
    (_,) = asked(world, world.state.current | {circuit("u1o3", "u2o3")})
    (_,) = world.decide(Held(OXC_DPID, world.state.wanted(OXC_DPID)))
    _, *tors = world.decide(Done(LIGHT))
    assert [task.about for task in tors if isinstance(task, Task)] == [1, 2]


def test_a_tor_that_failed_is_told_again_by_the_next_change() -> None:
    world = settled(SWITCHED, True)
    world.failed = True
    world.decide(Restarted(4))
    world.decide(Failed(4, TestbedError("no answer")))
    (_,) = asked(world, world.state.current | {circuit("u1o3", "u2o3")})
    (_,) = world.decide(Held(OXC_DPID, world.state.wanted(OXC_DPID)))
    _, *tors = world.decide(Done(LIGHT))
    assert [task.about for task in tors if isinstance(task, Task)] == [1, 2, 4]
    assert tors[-1] == Task(4, (Read(4),)), "what it holds is not known"


def of_the_optical_switch(todo: tuple[Task | End, ...]) -> Task:
    """Return the one task, which is the optical switch's."""
    (task,) = todo
    assert isinstance(task, Task)
    assert task.about == OXC_DPID
    return task


@pytest.mark.parametrize("repairs", [0, 1, 2])
def test_a_change_is_told_twice_whatever_was_told_in_a_repair_before_it(repairs: int) -> None:
    """A switch that takes nothing of a change is told once more, and then has failed."""
    world = settled(SWITCHED, False)
    before = oxc_flows(world.state.current)
    if repairs:  # after a change that failed
        asked(world, world.state.current - {circuit("u1o1", "u2o1")})
        world.decide(Failed(OXC_DPID, TestbedError("no answer")))
    target = world.state.current - {circuit("u1o1", "u2o1")}
    todo = world.decide(Ordered(target))
    if repairs:
        task = of_the_optical_switch(todo)
        assert task.steps == (Read(OXC_DPID),)
        for _ in range(repairs):
            task = of_the_optical_switch(world.decide(Held(OXC_DPID, frozenset())))
            assert Modify(OXC_DPID, frozenset(), before) in task.steps
        todo = world.decide(Held(OXC_DPID, before))
    task = of_the_optical_switch(planned(world, todo))
    assert task.steps == (TellTime(),)
    change, *_ = of_the_optical_switch(world.decide(Timed(0.001))).steps
    assert change == Modify(OXC_DPID, before - oxc_flows(target), frozenset())
    again = of_the_optical_switch(world.decide(Held(OXC_DPID, before)))
    assert change in again.steps, "a change that was told once is told once more"
    (end,) = world.decide(Held(OXC_DPID, before))
    assert isinstance(end, End)
    assert str(end.failure) == "switch 0x1000: 0 flows missing and 2 too many after the barrier"


def test_a_switch_that_comes_by_another_connection_is_read_before_it_is_told() -> None:
    world = settled(SWITCHED, True)
    assert world.decide(Came(2)) == (Task(2, (Read(2),)),)


def test_what_is_there_needs_no_step() -> None:
    world = settled(SWITCHED, True)
    assert world.decide(Ordered(world.state.current)) == (End(None, None),)


def test_a_decision_depends_on_its_arguments_alone() -> None:
    world = settled(SWITCHED, True)
    target = world.state.current - {circuit("u1o1", "u2o1")}
    first, second = (decide(world.state, Ordered(target), 5) for _ in range(2))
    assert first == second
    assert world.state.errand is None, "and leaves the state that it was given as it was"


def test_a_model_that_fails_fails_the_change_alone() -> None:
    world = settled(SWITCHED, True)
    before = world.state
    world.decide(Ordered(before.current - {circuit("u1o1", "u2o1")}))
    (end,) = world.decide(Failed(MODEL, TestbedError("it raised")))
    assert isinstance(end, End)
    assert (str(end.failure), end.record) == ("it raised", None)
    assert world.state == before, "no switch was told anything, and each counts as read back still"


def test_a_change_whose_light_does_not_come_is_in_the_history() -> None:
    world = settled(SWITCHED, True)
    tasks = asked(world, world.state.current - {circuit("u1o1", "u2o1")} | {circuit("u1o1", "u3o3")})
    while not isinstance(tasks[0], End):
        task, *others = tasks
        steps = [world.carry_out(step) for step in task.steps if not isinstance(step, Watch)]
        late = isinstance(task.steps[-1], Watch)
        answer = Failed(LIGHT, TestbedError("dark")) if late else steps[-1] or Done(task.about)
        tasks = (*others, *world.decide(answer))  # type: ignore[assignment]
    (end,) = tasks
    assert str(end.failure) == "dark"
    assert end.record
    assert end.record.measured_ms is None
    assert world.state.history == (end.record,)
    assert OXC_DPID not in world.state.verified, "and the next change looks at the light again"
    world.failed = True
    assert world.run(Ordered(world.state.current)) == End(None, None)
    assert world.state.is_ready


def test_what_failed_is_told_again_although_nobody_asks_for_anything() -> None:
    """Open vSwitch stopped while circuits changed, and goes on: requests wait until all is ready."""
    world = settled(SWITCHED, True)
    asked(world, world.state.current - {circuit("u1o1", "u2o1")})
    (end,) = world.decide(Failed(OXC_DPID, TestbedError("no answer in 10 s")))
    assert isinstance(end, End)
    assert world.state.lacks == ("oxc is not read back (no answer in 10 s)",)
    assert world.state.unsettled == (OXC_DPID,)
    world.failed = True
    world.run(Overdue())
    assert world.state.is_ready
    assert (world.state.lacks, world.state.failures) == ((), {})


def test_a_tor_that_failed_is_told_again_alone() -> None:
    world = settled(SWITCHED, True)
    world.failed = True
    world.decide(Restarted(4))
    world.decide(Failed(4, TestbedError("no answer in 10 s")))
    assert world.state.lacks == ("u4 is not read back (no answer in 10 s)",)
    assert world.decide(Overdue()) == (Task(4, (Read(4),)),)


def test_a_switch_that_is_gone_is_named_and_not_told() -> None:
    world = settled(SWITCHED, True)
    world.part(2)
    assert world.state.lacks == ("u2 is not connected",)
    assert world.state.unsettled == ()
    assert world.decide(Overdue()) == (End(None, None),)
