"""The process that turns optical ports, and what is made of the probes that it sends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence

import pytest

from testbed.dataplanes.xdp import port_turner as module
from testbed.dataplanes.xdp.plane import NEVER_NS
from testbed.dataplanes.xdp.port_turner import LEAD_NS, Turner
from testbed.errors import TestbedError
from testbed.ocs.glimpses import Darkness, Glimpses

SLOW_NS, REFUSED = 10_000_000, 13


class PortsToTurn:
    """Ports of which each takes a while to be written, or refuses; a darkness is seen as it was asked for.
    What is seen of it also says how often a port had its new circuit while another had its old one.
    """

    def __init__(self, takes_ns: int = 0) -> None:
        self.takes_ns, self.mixed, self.stopped_ns = takes_ns, 0, 0
        self.lit: dict[int, tuple[int, int]] = {}  # port -> when it goes dark, and is lit again

    def darken(self, peers: Mapping[int, int | None], dark_at_ns: int) -> None:
        if REFUSED in peers:
            raise OSError(22, "no such port")
        self.lit = dict.fromkeys(peers, (NEVER_NS, NEVER_NS))
        for port in peers:
            self.lit[port] = dark_at_ns, NEVER_NS
            self._pass()

    def light(self, ports: Iterable[int], lit_at_ns: int | Sequence[int]) -> None:
        for at, port in enumerate(ports):
            own_ns = lit_at_ns if isinstance(lit_at_ns, int) else lit_at_ns[at]
            self.lit[port] = self.lit[port][0], own_ns
            self._pass()

    def stop(self) -> None:
        now_ns = time.monotonic_ns()
        if any(now_ns < dark_at_ns or lit_at_ns != NEVER_NS for dark_at_ns, lit_at_ns in self.lit.values()):
            raise OSError(5, "the timetable ends, and ports are lit")
        self.stopped_ns = now_ns

    def _pass(self) -> None:
        if not self.takes_ns:
            return
        time.sleep(self.takes_ns / 1e9)
        now_ns = time.monotonic_ns()
        some_old = any(now_ns < dark_at_ns for dark_at_ns, _ in self.lit.values())
        some_new = any(now_ns >= lit_at_ns for _, lit_at_ns in self.lit.values())
        self.mixed += some_old and some_new

    def watch(self, port: int, dark_at_ns: int, lit_at_ns: int) -> Glimpses:
        return Glimpses(port, self.stopped_ns or os.getpid(), self.mixed, lit_at_ns - dark_at_ns)


def lost() -> None:
    raise AssertionError("the process is there")


def test_ports_are_turned_and_watched_by_another_process() -> None:
    turner = Turner(PortsToTurn(), lost)
    before_ns = time.monotonic_ns()
    turned = turner.turn({1: 2, 2: 1}, 5_000, watched=2)
    assert turned.dark_at_ns > before_ns + LEAD_NS
    assert turned.lit_at_ns == turned.dark_at_ns + 5_000
    seen = turner.seen()
    assert (seen.lit_ns, seen.still_dark_ns, seen.lit_again_ns) == (2, 0, 5_000)
    assert seen.dark_ns not in (0, os.getpid())


def test_each_port_may_be_dark_for_its_own_time_and_the_last_is_watched() -> None:
    turner = Turner(LastLit(), lost)
    turned = turner.turn({1: 2, 2: 1, 3: None}, (5_000, 90_000, 7_000), watched=2)
    assert turned.lit_at_ns == turned.dark_at_ns + 90_000
    seen = turner.seen()
    assert (seen.lit_ns, seen.dark_ns, seen.still_dark_ns, seen.lit_again_ns) == (
        5_000,
        90_000,
        7_000,
        90_000,
    )


class LastLit(PortsToTurn):
    """Shows how long each of three ports is dark, and how long the watch is."""

    def watch(self, port: int, dark_at_ns: int, lit_at_ns: int) -> Glimpses:
        first, second, third = (self.lit[number][1] - dark_at_ns for number in (1, 2, 3))
        return Glimpses(first, second, third, lit_at_ns - dark_at_ns)


@pytest.mark.parametrize("dark_ns", [5_000, 20 * SLOW_NS])
def test_ports_that_are_written_late_wait_in_the_dark_for_the_last(dark_ns: int) -> None:
    turner = Turner(PortsToTurn(SLOW_NS), lost)
    begun_ns = time.monotonic_ns()
    turned = turner.turn({1: 2, 2: 1, 3: None}, dark_ns, watched=1)
    assert turned.lit_at_ns >= begun_ns + 3 * SLOW_NS + dark_ns, "dark as long as asked after the last"
    assert turned.lit_at_ns >= begun_ns + 6 * SLOW_NS, "and no earlier than that is written"
    assert turner.seen().still_dark_ns == 0, "how often old and new circuits were lit at once"


def test_a_timetable_ends_while_the_ports_are_dark_and_they_stay_so_as_long_as_asked() -> None:
    turner = Turner(PortsToTurn(), lost)
    turned = turner.turn({1: 2, 2: 1}, SLOW_NS, watched=1, ends_timetable=True)
    stopped_ns = turner.seen().dark_ns
    assert turned.dark_at_ns <= stopped_ns <= turned.lit_at_ns - SLOW_NS


def test_a_port_that_refuses_is_an_error_and_the_next_turn_works() -> None:
    turner = Turner(PortsToTurn(), lost)
    with pytest.raises(TestbedError, match="no such port"):
        turner.turn({REFUSED: None}, 5_000, watched=None)
    turner.turn({1: None}, 5_000, watched=None)
    turner.turn({1: 2}, 5_000, watched=1)
    assert turner.seen().lit_ns == 1


@pytest.mark.parametrize(
    ("number", "message"), [(signal.SIGKILL, "has ended"), (signal.SIGSTOP, "answer in")]
)
def test_a_process_that_has_ended_or_hangs_is_told(
    number: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    calls: list[str] = []
    turner = Turner(PortsToTurn(), lambda: calls.append("lost"))
    turner.turn({1: 2}, 5_000, watched=1)
    pid = turner.seen().dark_ns
    os.kill(pid, number)
    with pytest.raises(TestbedError, match=message):
        turner.turn({1: 2}, 5_000, watched=1)
    assert calls == ["lost"]
    os.kill(pid, signal.SIGKILL)


def test_ten_thousand_ports_are_one_message() -> None:
    turner = Turner(PortsToTurn(), lost)
    peers: dict[int, int | None] = {port: 65_536 - port for port in range(20_000, 30_000)}
    turner.turn(peers, 5_000, watched=20_000)
    assert turner.seen().lit_ns == 20_000


@pytest.mark.parametrize(
    ("glimpses", "darkness"),
    [
        (Glimpses(990, 1010, 2980, 3020), Darkness(990, 2030, 60)),
        (Glimpses(0, 1010, 2980, 3020), Darkness(1000, 2020, 50)),  # nobody looked before it
        (Glimpses(990, 1010, 2980, 0), Darkness(990, 4010, 2040)),  # nor after it, until somebody asked
        (Glimpses(990, 0, 0, 3020), Darkness(990, 2030, 2030)),  # nor in it
        (Glimpses(0, 0, 0, 0), Darkness(1000, 4000, 4000)),
        (Glimpses(3020, 0, 0, 0), Darkness(1000, 4000, 4000)),  # the first who looked came after it
    ],
)
def test_a_darkness_is_at_most_from_light_to_light_and_at_least_what_was_seen_dark(
    glimpses: Glimpses, darkness: Darkness
) -> None:
    assert glimpses.darkness(began_ns=1000, seen_ns=5000) == darkness
