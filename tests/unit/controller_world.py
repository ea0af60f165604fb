"""Switches and a fast path that carry out what `controller.decide` asks for, on a simulated clock. The
invariants are asserted after every step. No threads.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any

from controller.decide import TRIES, decide
from controller.flows import Flow, Routes, circuits_of, oxc_flows, routes_of, tor_flows
from controller.records import ChangeRecord
from controller.state import State, begin
from controller.steps import (
    AskModel,
    Came,
    ChangeRoutes,
    Complain,
    Done,
    Drawn,
    End,
    Event,
    Failed,
    Gone,
    Held,
    Join,
    Joined,
    Linked,
    Lit,
    Modify,
    Peers,
    Read,
    ReadLight,
    SetRoutes,
    Step,
    Task,
    TellTime,
    Timed,
    Turn,
    WaitUntil,
    Watch,
)
from testbed.errors import TestbedError
from testbed.messages.coding import as_json, decode
from testbed.messages.controller import ReconfigurationEvent
from testbed.ocs.circuits import Circuit, circuit, ports_of
from testbed.optics.model import CircuitTurn, DarkTimes, Ends
from testbed.plugins.optical import model_of
from testbed.topology import addresses
from testbed.topology.addresses import OXC_DPID, Dpid
from testbed.topology.load import parse
from testbed.topology.units import Unit
from tests.unit.model_switches import with_change

SWITCHED = ("xdp", "xdp", "xdp", "xdp")
MIXED = ("xdp", "bmv2", "xdp", "xdp", "bmv2")


class Died(Exception):
    """The controller's process ended; switches and fast path keep their state."""


class World:
    """A controller's state, and its environment. `mishaps`: the probability that a step goes wrong;
    `deafness`: the probability that a switch starts to acknowledge changes that it makes only in part or not
    at all.
    """

    def __init__(
        self,
        engines: tuple[str, ...],
        has_plane: bool,
        chance: Random,
        lock_failure: float = 0.0,
        **more: Any,
    ) -> None:
        delay = {
            "switch_ms": {"uniform": [2, 9]},
            "lock_ms": {"normal": [3, 2]},
            "lock_failure": lock_failure,
        }
        units = [{"hosts": 3, "engine": engine} for engine in engines]
        self.topology = parse({"units": units, "optical_ports": 3, "ocs": delay, **more}, "world")
        self.has_plane, self.chance, self.mishaps, self.deafness = has_plane, chance, 0.0, 0.0
        self.flapping = 0.0  # the probability that links change while an errand only waits for light
        self.now_ns = self.due_ns = 1_000
        self.turned_ns = 0
        self.dark_ns: dict[int, int] = {}  # port of a new circuit -> its dark time
        self.longest_ns = 0
        self.new: tuple[Ends, ...] = ()
        self.tors = {addresses.tor_dpid(unit.index): unit for unit in self.topology.units}
        self.dpids = [dpid for dpid, unit in self.tors.items() if unit.data_plane.is_bridge] + [OXC_DPID]
        self.dpids += [addresses.CORE_DPID] * ("core" in more)
        self.held: dict[Dpid, dict[object, Flow]] = {dpid: {} for dpid in self.dpids}
        self.linked: set[Dpid] = set()  # the switches with a connection
        self.deaf = Counter[Dpid]()  # how many more changes a switch will not make
        self.peers: dict[int, int] = {}
        self.routes: dict[Unit, Routes] = {}
        self.dark_until = dict.fromkeys(self.numbers(self.topology.optical_ports), 0)
        self.written: list[ChangeRecord] = []  # the contents of the history's file
        self.restart()

    def restart(self) -> None:
        """Start a controller's process, which knows of the one before only the contents of the file."""
        self.linked = set()
        self.state = begin(self.topology, self.has_plane, self.written)
        self.model = model_of(self.topology)

    def numbers(self, ports: Iterable[str]) -> list[int]:
        return [addresses.oxc_port_number(*addresses.parse_optical_port(port)) for port in ports]

    # ---- an errand, from its event to its end ----

    def decide(self, event: Event) -> tuple[Task | End, ...]:
        self.state, todo = decide(self.state, event, self.now_ns)
        return todo

    def run(self, event: Event) -> End:
        """Carry out everything that an event leads to. Tasks that are open at the same time are interleaved
        in any order. Raises `Died` if the controller is ended half-way.
        """
        self.failed = False
        self.told, self.unheard = set[Dpid](), Counter[Dpid]()
        before = self.state
        todo = list(self.decide(event))
        while not isinstance(todo[0], End):
            task = self.chance.choice(todo)
            todo.remove(task)
            assert isinstance(task, Task)
            answer = self.step(task)
            todo += [answer] if isinstance(answer, Task) else self.decide(answer)
            errand = self.state.errand
            if errand and errand.takes_links and self.chance.random() < self.flapping:
                todo += self.decide(Linked(self.some_links()))
            assert len({other.about for other in todo if isinstance(other, Task)}) == len(todo) or isinstance(
                todo[0], End
            ), "one task a switch"
        (end,) = todo
        assert isinstance(end, End)
        self.check_end(before, end)
        if end.record:
            self.written.append(end.record)
        return end

    def step(self, task: Task) -> Task | Event:
        """Carry out a task's first step. Return the rest of the task, or its answer."""
        self.now_ns += self.chance.choice((0, 1_000, 400_000, 5_000_000))
        first, *rest = task.steps
        mishaps = ["gone", "left", "died"] + ["before", "after"] * (
            not isinstance(first, AskModel | TellTime)
        )
        mishap = self.chance.random() < self.mishaps and self.chance.choice(mishaps)
        if mishap == "died":
            raise Died
        if isinstance(first, Modify) and self.chance.random() < self.deafness:
            self.deaf[first.dpid] = self.chance.choice((1, 1, 1, 2, 9))
        if mishap == "gone" and self.linked:
            self.part(self.chance.choice(sorted(self.linked)))
        if mishap == "before":
            self.failed = True
            return Failed(task.about, TestbedError("refused"))
        try:
            answer = self.carry_out(first)
        except TestbedError as error:
            self.failed = True
            return Failed(task.about, error)
        if mishap == "left" and self.linked:  # the connection ends before the controller has the answer
            self.part(task.about if task.about in self.linked else self.chance.choice(sorted(self.linked)))
        if mishap == "after":  # done, but the answer is lost
            self.failed = True
            return Failed(task.about, TestbedError("no answer"))
        if rest:
            return Task(task.about, tuple(rest))
        return answer or Done(task.about)

    def some_links(self) -> frozenset[str]:
        """A few links that are down."""
        core = [addresses.core_link_name(unit) for unit in self.state.premises.ports]
        links = [*self.topology.optical_ports, *(core if self.state.premises.has_core else ())]
        return frozenset(self.chance.sample(links, self.chance.choice((0, 0, 1, 2, 5))))

    def part(self, dpid: Dpid) -> None:
        self.failed = True
        self.linked.discard(dpid)
        assert self.decide(Gone(dpid)) == ()

    # ---- what steps do ----

    def carry_out(self, step: Step) -> Event | None:
        self.check(step)
        match step:
            case AskModel(turn):
                self.check_turn(turn)
                return Drawn(self.note(self.model.dark_times(turn)))
            case TellTime():
                self.due_ns = self.now_ns + max(self.dark_ns.values(), default=self.longest_ns)
                return Timed(self.now_ns / 1e9)
            case Read(dpid):
                flows = frozenset(self.switch(dpid).values())
                self.hear(dpid, flows)
                return Held(dpid, flows)
            case Modify(dpid, remove, add):
                switch = self.switch(dpid)
                self.told.add(dpid)
                if self.deaf[dpid]:
                    self.deaf[dpid] -= 1
                    remove, add = self.some(remove), self.some(add)
                for flow in remove:
                    switch.pop(flow.match, None)
                switch.update({flow.match: flow for flow in add})
            case SetRoutes(unit, routes):
                self.routes[unit] = routes
            case ChangeRoutes(changes):
                for unit, change in changes.items():
                    self.routes[unit] = with_change(self.routes[unit], *change)
            case ReadLight():
                return Joined(dict(self.peers))
            case Join(peers):
                self.turn(peers)
            case Turn(peers, dark_ns):
                self.turn(peers)
                self.turned_ns = self.now_ns
                dark = [dark_ns] * len(peers) if isinstance(dark_ns, int) else dark_ns
                for (port, _), port_ns in zip(peers, dark, strict=True):
                    self.dark_until[port] = self.now_ns + port_ns
            case WaitUntil(at_ns):
                self.now_ns = max(self.now_ns, at_ns)
            case Watch(ports):
                began_ns = self.turned_ns if ports else None
                self.now_ns = max(self.now_ns, *(self.dark_until[port] for port in ports or (1,)))
                assert all(port in self.peers for port in ports), "light where no circuit is"
                return Lit(began_ns, self.now_ns, 1_000)
            case Complain():
                pass
        return None

    def check_turn(self, turn: CircuitTurn) -> None:
        """Assert that the model is asked about the next change of the history."""
        errand, circuits = self.state.errand, self.state.current
        assert errand
        assert errand.target is not None
        assert turn.number == len(self.written) + 1
        assert [past.number for past in turn.history] == [record.id for record in self.written]
        assert turn.before == {c.ports for c in circuits}
        assert turn.after == {c.ports for c in errand.target}
        self.new = turn.added

    def note(self, times: DarkTimes) -> DarkTimes:
        """Record how long each new circuit must be dark."""
        self.longest_ns = times.longest.total_ns
        self.dark_ns = {
            port: times.circuits.get(ends, times.longest).total_ns
            for ends in self.new
            for port in self.numbers(ends)
        }
        return times

    def turn(self, peers: Peers) -> None:
        for port, peer in peers:
            self.peers.pop(port, None)
            if peer is not None:
                self.peers[port] = peer

    def switch(self, dpid: Dpid) -> dict[object, Flow]:
        if dpid not in self.linked:
            raise TestbedError(f"switch {dpid:#x}: not connected")
        return self.held[dpid]

    def some(self, flows: frozenset[Flow]) -> frozenset[Flow]:
        """Return the part of a change that a deaf switch makes: none or some of its flows."""
        likelihood = self.chance.choice((0.0, 0.0, 0.5))
        return frozenset(flow for flow in sorted(flows) if self.chance.random() < likelihood)

    def hear(self, dpid: Dpid, flows: frozenset[Flow]) -> None:
        """Count how often in a row a switch was sent its flows and reads back others. A change after a repair
        is counted from 0.
        """
        is_unheard = dpid in self.told and flows != self.state.wanted(dpid)
        self.unheard[dpid] = self.unheard[dpid] + 1 if is_unheard else 0
        self.told.discard(dpid)
        self.failed |= self.unheard[dpid] == TRIES

    # ---- what must hold ----

    def staying(self) -> frozenset[Circuit]:
        """Return the circuits that exist and are to exist when the current change has ended."""
        circuits = self.state.circuits
        if circuits is None:
            return frozenset()
        change = self.state.errand.change if self.state.errand else None
        return circuits & change.target - change.added if change else circuits

    def check(self, step: Step) -> None:
        """Assert that nothing of an existing circuit that stays is written to."""
        stay = self.staying()
        ports, pairs = set(self.numbers(ports_of(stay))), {tuple(self.numbers(c.ports)) for c in stay}
        peers = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
        match step:
            case Modify(dpid, remove, add):
                held = set(self.held[dpid].values())
                assert remove <= held or self.failed, "flows are removed that are not there"
                assert not add & held or self.failed, "flows are written that are there"
                assert self.unheard[dpid] < TRIES, "a switch is told for ever"
                if dpid == OXC_DPID:
                    assert not remove & oxc_flows(stay), "a circuit that stays is taken away"
                    self.check_dark(remove | add)
            case Turn(turned, dark_ns):
                assert not ports & dict(turned).keys(), "a circuit that stays goes dark"
                dark = [dark_ns] * len(turned) if isinstance(dark_ns, int) else dark_ns
                new = {port: ns for (port, peer), ns in zip(turned, dark, strict=True) if peer is not None}
                assert new == self.dark_ns, "dark for another time than was drawn"
                oxc = frozenset(self.held[OXC_DPID].values())
                made = circuits_of(oxc, self.topology)
                for port, peer in turned:
                    ends = {tuple(self.numbers(c.ports)) for c in made}
                    assert peer is None or {(port, peer), (peer, port)} & ends, "light before the flows"
            case WaitUntil(at_ns):
                assert at_ns == self.due_ns, "dark for another time than was drawn"
            case Join(joined):
                assert not [a for a, _ in joined if a in peers and self.peers.get(a) == peers[a]]
                assert not [a for a, b in joined if self.peers.get(a) == b], "what is there is made again"

    def check_dark(self, flows: Iterable[Flow]) -> None:
        """Assert that a change writes flows only at ports that are dark, for the drawn time."""
        assert self.state.errand
        change = self.state.errand.change
        if change is None or not change.began_ns:
            return
        numbers = {flow.in_port for flow in flows}
        assert numbers <= set(self.numbers(change.ports)), "a port is written to that does not change"
        if not self.has_plane and any(flow in oxc_flows(change.added) for flow in flows):
            assert self.now_ns >= self.due_ns, "light before its time"

    def check_end(self, before: State, end: End) -> None:
        """Assert that the history has every change of circuits, and that switches that count as verified have
        their flows.
        """
        state = self.state
        assert state.errand is None
        decided = state.last_decided
        assert len(ports_of(decided)) == 2 * len(decided), "by the history a port is in two circuits"
        assert self.failed or OXC_DPID not in self.linked or end.failure is None
        if before.circuits is not None:
            made = state.circuits != before.circuits
            assert bool(end.record) == made, "a change that is not in the history, or one that was none"
        if end.record:
            assert before.circuits is not None
            removed, added = (
                {circuit(*pair) for pair in pairs} for pairs in (end.record.removed, end.record.added)
            )
            assert before.circuits - removed | added == state.circuits
            assert state.history == (*before.history, end.record)
            line = json.dumps(end.record.as_data())
            event = decode(ReconfigurationEvent, json.loads(line), "event")
            assert json.dumps(as_json(event)) == line, "a result would have another event"
            assert ChangeRecord.read(json.loads(line)) == end.record
            measured_ms = end.record.measured_ms
            assert measured_ms is None or measured_ms >= end.record.asked_ms
            assert (measured_ms is None) <= bool(end.failure or not added)
        self.check_verified()

    def check_verified(self) -> None:
        for dpid in self.state.verified:
            assert dpid in self.linked or not self.state.premises.speaks_openflow(dpid), "who is gone counts"
            self.check_settled(dpid)

    def check_settled(self, dpid: Dpid) -> None:
        """Assert that a switch has the flows that the circuits require, computed anew from the circuits
        alone.
        """
        circuits, down = self.state.current, self.state.down
        if dpid == OXC_DPID:
            assert frozenset(self.held[dpid].values()) == oxc_flows(circuits)
            if self.has_plane:
                ends = [tuple(self.numbers(c.ports)) for c in circuits]
                assert self.peers == dict(itertools.chain(ends, [pair[::-1] for pair in ends]))
            return
        unit = addresses.tor_unit(dpid)  # of the core, its own number
        flows = tor_flows(self.topology, circuits, down)[unit]
        if self.state.premises.speaks_openflow(dpid):
            assert frozenset(self.held[dpid].values()) == flows
        if self.has_plane:
            assert self.routes[unit] == routes_of(unit, flows)

    # ---- what happens to it ----

    def come(self, dpid: Dpid) -> End:
        self.linked.add(dpid)
        return self.run(Came(dpid))
