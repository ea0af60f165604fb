"""Scenes at the optical switch: circuits that are made, go dark and are removed, and frames that enter. The
scenes are data; `play` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from testbed.ocs.timetable import Matching, Timetable
from testbed.reference_model.output_ports import Reaction
from tests.vectors.build import push

FRAME, LONG = push(0, 0), bytes(range(60)) * 50
PROBE = bytes(12) + b"\x88\xb5" + bytes(46)
S = 1_000_000_000


class Optics(Protocol):
    """An optical switch with the ports 1 to 8."""

    def turn(self, peers: Mapping[int, int | None], dark_at_ns: int, lit_at_ns: int) -> None: ...
    def keep(self, table: Timetable, peers: Sequence[Mapping[int, int]], start_ns: int) -> None: ...
    def leave(self) -> None: ...
    def receive(self, data: bytes, port: int, now_ns: int) -> Reaction: ...


@dataclass(frozen=True, slots=True)
class Enters:
    """A frame that enters a port at `now_ns`, the verdict expected, and the ports by which it must leave
    unchanged.
    """

    data: bytes
    port: int
    now_ns: int
    verdict: str
    leaves_by: tuple[int, ...] = ()


@dataclass(slots=True)
class Scene:
    """Steps at an optical switch, in order."""

    steps: list[Enters | Callable[[Optics], None]] = field(default_factory=list)

    def sees(self, port: int, now_ns: int, verdict: str, *leaves_by: int, data: bytes = FRAME) -> None:
        self.steps.append(Enters(data, port, now_ns, verdict, leaves_by))

    def turn(self, peers: Mapping[int, int | None], dark_at_ns: int = 0, lit_at_ns: int = 0) -> None:
        self.steps.append(lambda optics: optics.turn(peers, dark_at_ns, lit_at_ns))

    def connect(self, *pairs: tuple[int, int], dark_at_ns: int = 0, lit_at_ns: int = 0) -> None:
        ends = {port: peer for a, b in pairs for port, peer in ((a, b), (b, a))}
        self.turn(ends, dark_at_ns, lit_at_ns)

    def disconnect(self, *ports: int) -> None:
        self.turn(dict.fromkeys(ports))

    def keep(
        self, starts: Sequence[int], period: int, guard: int, *pairs: Sequence[tuple[int, int]], at: int
    ) -> None:
        """Follow a timetable of matchings from `at` on: `starts[i]` is when the matching of `pairs[i]` starts
        in the period.
        """
        table = Timetable(period, guard, tuple(Matching(start, frozenset()) for start in starts))
        peers = [{port: peer for a, b in met for port, peer in ((a, b), (b, a))} for met in pairs]
        self.steps.append(lambda optics: optics.keep(table, peers, at))

    def leave(self) -> None:
        self.steps.append(lambda optics: optics.leave())


def play(scene: Scene, optics: Optics) -> list[str]:
    """Run a scene at an optical switch; return a line for each departure from what it expects."""
    wrong = []
    for number, step in enumerate(scene.steps):
        if not isinstance(step, Enters):
            step(optics)
            continue
        verdict, emissions = optics.receive(step.data, step.port, step.now_ns)
        ports = tuple(port for emission in emissions for port in emission.ports or ())
        if (verdict, ports) != (step.verdict, step.leaves_by):
            wrong.append(f"step {number}: {verdict} by {ports}, expected {step.verdict} by {step.leaves_by}")
        if any(emission.data != step.data for emission in emissions):
            wrong.append(f"step {number}: the frame left changed")
    return wrong


TABLE: dict[str, Scene] = {}


def entry(write: Callable[[Scene], None]) -> None:
    scene = Scene()
    write(scene)
    TABLE[write.__name__.replace("_", " ")] = scene


@entry
def a_port_without_a_circuit_is_unlit(s: Scene) -> None:
    for port in (1, 8):
        s.sees(port, S, "unlit")
        s.sees(port, S, "probe", data=PROBE)


@entry
def light_leaves_at_the_other_end_both_ways(s: Scene) -> None:
    s.connect((1, 5), (2, 6))
    for port, peer in ((1, 5), (5, 1), (2, 6), (6, 2)):
        s.sees(port, S, "lit", peer)
        s.sees(port, S, "lit", peer, data=LONG)
        s.sees(port, S, "lit", peer, data=bytes(14))
    s.sees(3, S, "unlit")


@entry
def a_dark_port_loses_what_arrives_before_its_time(s: Scene) -> None:
    s.connect((1, 5))
    s.turn({1: 5}, 0, 2 * S)
    s.sees(1, 0, "dark")
    s.sees(1, 2 * S - 1, "dark")
    s.sees(1, 2 * S, "lit", 5)
    s.sees(1, 2 * S + 1, "lit", 5)
    s.sees(1, 2 * S - 1, "dark")
    # the other direction has its own deadline
    s.sees(5, 2 * S - 1, "lit", 1)


@entry
def times_have_64_bits(s: Scene) -> None:
    s.connect((3, 4))
    s.connect((3, 4), dark_at_ns=2**33, lit_at_ns=2**33 + 5)
    for port, peer in ((3, 4), (4, 3)):
        s.sees(port, 6, "lit", peer)
        s.sees(port, 2**33 - 1, "lit", peer)
        s.sees(port, 2**33, "dark")
        s.sees(port, 2**33 + 4, "dark")
        s.sees(port, 2**33 + 5, "lit", peer)


@entry
def circuits_change_in_the_dark(s: Scene) -> None:
    s.connect((1, 5), (2, 6), (3, 7))
    s.connect((1, 6), (2, 5), dark_at_ns=S, lit_at_ns=2 * S)
    for port, before, after in ((1, 5, 6), (5, 1, 2), (2, 6, 5), (6, 2, 1)):
        s.sees(port, S - 1, "lit", before)  # until the dark time begins, the last circuits stay
        s.sees(port, S, "dark")
        s.sees(port, 2 * S - 1, "dark")
        s.sees(port, 2 * S, "lit", after)
    s.sees(3, S, "lit", 7)  # a circuit that is not changed stays lit
    s.disconnect(1, 6)
    s.sees(1, 3 * S, "unlit")
    s.sees(6, 3 * S, "unlit")
    s.sees(2, 3 * S, "lit", 5)


@entry
def circuits_come_and_go_at_their_time(s: Scene) -> None:
    s.connect((1, 5))
    s.turn({1: None, 2: 5, 5: 2}, S, 2 * S)
    s.sees(1, S - 1, "lit", 5)
    s.sees(2, S - 1, "unlit")
    for port in (1, 2, 5):
        s.sees(port, S, "dark")
    s.sees(1, 2 * S, "unlit")
    s.sees(2, 2 * S, "lit", 5)
    s.sees(5, 2 * S, "lit", 2)


@entry
def a_turn_without_darkness_loses_nothing(s: Scene) -> None:
    s.connect((1, 5), (2, 6))
    s.connect((1, 6), (2, 5), dark_at_ns=S, lit_at_ns=S)
    s.sees(1, S - 1, "lit", 5)
    s.sees(1, S, "lit", 6)


@entry
def a_turn_that_is_written_late_is_dark_at_once(s: Scene) -> None:
    s.connect((1, 5))
    s.connect((1, 6), dark_at_ns=S, lit_at_ns=2 * S)
    s.connect((1, 6), dark_at_ns=S, lit_at_ns=3 * S)
    s.sees(1, S, "dark")
    s.sees(1, 2 * S, "dark")
    s.sees(1, 3 * S, "lit", 6)


@entry
def a_dark_port_without_a_circuit_is_dark(s: Scene) -> None:
    s.turn({4: None}, 0, S)
    s.sees(4, S - 1, "dark")
    s.sees(4, S, "unlit")


@entry
def the_agents_probe_is_answered_and_not_counted(s: Scene) -> None:
    s.connect((1, 5))
    s.turn({1: 6}, S, 2 * S)
    s.sees(1, S - 1, "probe", 1, data=PROBE)
    s.sees(1, 2 * S - 1, "probe", data=PROBE)
    s.sees(1, 2 * S, "probe", 1, data=PROBE)
    s.disconnect(1, 5)
    s.sees(1, S, "probe", data=PROBE)


@entry
def matchings_take_turns_by_the_clock(s: Scene) -> None:
    s.connect((1, 8))
    s.keep((0, 300), 1000, 10, [(1, 5), (2, 6)], [(1, 6), (2, 7)], at=S)
    s.sees(1, S - 1, "lit", 8)  # before the timetable begins, the circuits last set stay
    for begun in (S, S + 1000, S + 7_000_000):
        for port in (1, 2, 3, 8):
            s.sees(port, begun, "dark")
            s.sees(port, begun + 9, "dark")
        s.sees(1, begun + 10, "lit", 5)
        s.sees(5, begun + 299, "lit", 1)
        s.sees(7, begun + 299, "unlit")
        s.sees(8, begun + 299, "unlit")
        s.sees(1, begun + 300, "dark")
        s.sees(1, begun + 309, "dark")
        s.sees(1, begun + 310, "lit", 6)
        s.sees(6, begun + 999, "lit", 1)
        s.sees(7, begun + 999, "lit", 2)
        s.sees(5, begun + 999, "unlit")
        s.sees(1, begun + 310, "probe", 1, data=PROBE)
        s.sees(1, begun + 309, "probe", data=PROBE)
    s.leave()
    s.sees(1, S, "lit", 8)
    s.sees(2, S, "unlit")


@entry
def a_circuit_that_stays_is_dark_at_the_timetables_begin_alone(s: Scene) -> None:
    s.keep((0, 300), 1000, 10, [(1, 5), (2, 6)], [(1, 5), (2, 7)], at=S)
    s.sees(1, S + 9, "dark")
    s.sees(1, S + 10, "lit", 5)
    for changed in (S + 300, S + 1000):
        s.sees(1, changed, "lit", 5)
        s.sees(5, changed + 9, "lit", 1)
        s.sees(2, changed + 9, "dark")
        s.sees(3, changed + 9, "dark")
    s.sees(2, S + 310, "lit", 7)
    s.sees(3, S + 310, "unlit")


@entry
def a_matching_without_a_guard_loses_nothing(s: Scene) -> None:
    s.keep((0, 1), 3, 0, [(1, 2)], [(1, 3)], at=10)
    for now, peer in ((10, 2), (11, 3), (12, 3), (13, 2), (14, 3)):
        s.sees(1, now, "lit", peer)


@entry
def as_many_matchings_as_there_are(s: Scene) -> None:
    s.keep(range(32), 32, 0, *([(1, 2 + number % 7)] for number in range(32)), at=2**33)
    for now in range(70):
        s.sees(1, 2**33 + now, "lit", 2 + now % 32 % 7)
