"""The window of workloads/native/window.h: its steps, and many of them at a queue that marks and loses."""

from __future__ import annotations

import ctypes
import heapq
import itertools
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.limits import CALL_S

NATIVE = Path(__file__).resolve().parents[2] / "workloads/native"
SHIM = """
#include "window.h"
void opened(struct window *w, double limit, int marks) { window_open(w, limit, marks); }
int take(struct window *w, int marked, uint64_t done, uint64_t sent)
{
    return window_take(w, marked, done, sent);
}
int notice(struct window *w) { return window_notice(w); }
int lost(struct window *w) { return window_lost(w); }
"""


class Window(ctypes.Structure):
    """struct window."""

    _fields_ = [
        *((name, ctypes.c_double) for name in ("size", "threshold", "congestion", "limit", "least")),
        ("round_end", ctypes.c_uint64),
        *((name, ctypes.c_uint32) for name in ("taken", "marked", "full", "reduced")),
    ]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("window")
    (folder / "shim.c").write_text(SHIM)
    argv = ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{NATIVE}", "-o", "shim.so", "shim.c"]
    subprocess.run(argv, cwd=folder, check=True, timeout=CALL_S)
    library = ctypes.CDLL(str(folder / "shim.so"))
    library.opened.argtypes = [ctypes.POINTER(Window), ctypes.c_double, ctypes.c_int]
    library.take.argtypes = [ctypes.POINTER(Window), ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64]
    library.notice.argtypes = library.lost.argtypes = [ctypes.POINTER(Window)]
    return library


def made(native: ctypes.CDLL, limit: float = 120, marks: bool = True) -> Window:
    window = Window()
    native.opened(window, limit, marks)
    return window


class Flow:
    """A window with results coming one after the other, always full."""

    def __init__(self, native: ctypes.CDLL, limit: float = 120, marks: bool = True) -> None:
        self.native, self.window, self.done, self.sent = native, made(native, limit, marks), 0, 0

    def round(self, marked: int) -> float:
        """Give the window as many results as it holds, the first so many marked, and return the window after
        them.
        """
        self.window.full = 1
        self.sent = max(self.sent, self.done + int(self.window.size))
        for result in range(self.sent - self.done):
            self.done += 1
            self.native.take(self.window, result < marked, self.done, self.done + int(self.window.size))
            self.window.full = 1
        self.sent = self.done + int(self.window.size)
        return float(self.window.size)


def test_it_doubles_until_the_first_mark_and_then_grows_by_one_a_round(native: ctypes.CDLL) -> None:
    flow = Flow(native)
    assert flow.window.size == 1
    assert [flow.round(0) for _ in range(5)] == [2, 4, 8, 16, 32]
    after = flow.round(1)
    assert after < 64
    grown = flow.round(0)
    assert after < grown <= after + 1.01


def test_it_is_cut_by_half_of_the_smoothed_share_of_marks(native: ctypes.CDLL) -> None:
    flow = Flow(native)
    flow.window.size = flow.window.threshold = 64.0
    flow.round(0)  # congestion, 1 at first, falls by a sixteenth
    assert flow.window.congestion == pytest.approx(15 / 16)
    before = flow.window.size
    flow.round(1)
    assert flow.window.congestion == pytest.approx((15 / 16) ** 2 + 1 / 64 / 16, rel=0.01)
    assert flow.window.size == pytest.approx((before + 1) * (1 - flow.window.congestion / 2), rel=0.05)
    for _ in range(200):
        flow.round(1000)
    assert flow.window.congestion == pytest.approx(1, abs=0.001)
    assert flow.window.size == 1, "no floor above what a queue holds"


def test_it_does_not_grow_where_it_holds_nothing_back(native: ctypes.CDLL) -> None:
    window = made(native)
    for done in range(1, 100):
        native.take(window, 0, done, done)
    assert window.size == 1


def test_notices_halve_it_once_a_round(native: ctypes.CDLL) -> None:
    flow = Flow(native)
    flow.window.size = 40.0
    flow.window.round_end = 1000
    assert native.notice(flow.window) == 1
    assert native.notice(flow.window) == 0
    assert (flow.window.size, flow.window.threshold) == (20.0, 20.0)


def test_losses_cut_it_only_where_nothing_marks(native: ctypes.CDLL) -> None:
    marked, unmarked = made(native), made(native, marks=False)
    assert unmarked.size == 30
    for window in (marked, unmarked):
        window.size = 100.0
    assert (native.lost(marked), native.lost(unmarked)) == (0, 1)
    assert (marked.size, unmarked.size) == (100.0, pytest.approx(70.0))
    for _ in range(20):
        unmarked.reduced = 0
        native.lost(unmarked)
    assert unmarked.size == 8


def test_the_first_mark_ends_the_doubling_before_its_round_is_over(native: ctypes.CDLL) -> None:
    window = made(native)
    window.size, window.full, window.round_end = 16.0, 1, 100
    native.take(window, 0, 1, 100)
    assert window.size == 17
    native.take(window, 1, 2, 100)
    native.take(window, 0, 3, 100)
    assert (window.size, window.threshold) == (pytest.approx(17 + 1 / 17), 17)


def test_it_grows_up_to_what_the_segment_has_room_for(native: ctypes.CDLL) -> None:
    flow = Flow(native, limit=20)
    assert [flow.round(0) for _ in range(6)] == [2, 4, 8, 16, 20, 20]


def test_a_round_after_one_that_held_something_back_does_not_grow_by_that(native: ctypes.CDLL) -> None:
    window = made(native)
    window.full = 1
    native.take(window, 0, 1, 1)
    assert (window.size, window.full) == (2, 0)
    native.take(window, 0, 2, 2)
    assert window.size == 2


def test_a_round_that_a_notice_has_cut_is_not_cut_by_its_marks(native: ctypes.CDLL) -> None:
    flow = Flow(native)
    flow.window.size, flow.window.round_end = 40.0, 10
    assert native.notice(flow.window) == 1
    cuts = [native.take(flow.window, 1, done, 30) for done in range(1, 11)]
    assert (sum(cuts), flow.window.size) == (0, 20)
    assert sum(native.take(flow.window, 1, done, 50) for done in range(11, 31)) == 1, "the next round is"


def test_losses_cut_it_once_a_round_and_end_the_doubling(native: ctypes.CDLL) -> None:
    window = made(native, marks=False)
    window.size, window.round_end = 100.0, 50
    assert [native.lost(window) for _ in range(3)] == [1, 0, 0]
    assert (window.size, window.threshold) == (pytest.approx(70.0), pytest.approx(70.0))
    native.take(window, 0, 50, 90)
    assert native.lost(window) == 1


# ---- many of them at a queue ----


@dataclass(slots=True)
class Queue:
    """A queue that all partial sums pass: it sends a frame each unit of time, holds `room`, and marks a frame
    that has more than `threshold` before it.
    """

    room: int
    threshold: int
    bucket: float  # what passes at once after a pause
    level: float = 0.0
    at: float = 0.0
    passed: int = 0
    lost: int = 0

    def arrive(self, now: float) -> tuple[float, bool] | None:
        """Return the time at which the frame is through, and whether it is marked; None: it is lost."""
        self.level, self.at = max(0.0, self.level - (now - self.at)), now
        waits = max(0.0, self.level - self.bucket)
        if waits + 1 > self.room:
            self.lost += 1
            return None
        self.level += 1
        self.passed += 1
        return now + max(0.0, self.level - self.bucket), waits > self.threshold


@dataclass(slots=True)
class Job:
    """`units` streams of one frame a fragment through the queue; a result when all are through, which all
    workers see.
    """

    window: Window
    units: int
    sent: int = 0
    done: int = 0
    waiting: dict[int, list[bool]] = field(default_factory=dict)


def played(native: ctypes.CDLL, queue: Queue, units: list[int], until: float, seed: int) -> list[int]:
    """Return by job the fragments summed. A frame lost is sent again after 50 units of time; processes are
    late by chance.
    """
    order = itertools.count()
    chance = random.Random(seed)
    jobs = [Job(made(native), count) for count in units]
    events: list[
        tuple[float, int, int, int, bool | None]
    ] = []  # time, order, job, fragment; marked, or None: to be sent

    def later(after: float, number: int, fragment: int, marked: bool | None) -> None:
        heapq.heappush(events, (after, next(order), number, fragment, marked))

    def push(number: int, now: float) -> None:
        job = jobs[number]
        while job.sent < job.done + int(job.window.size):
            job.waiting[job.sent] = []
            late = chance.expovariate(1 / 3) if chance.random() < 0.05 else 0.5
            for _ in range(job.units):
                later(now + late + chance.random() / 10, number, job.sent, None)
            job.sent += 1
        job.window.full = 1

    for number in range(len(jobs)):
        push(number, chance.random())
    while events and events[0][0] < until:
        now, _, number, fragment, marked = heapq.heappop(events)
        job = jobs[number]
        if marked is None:
            through = queue.arrive(now)
            if through is None:
                later(now + 50, number, fragment, None)
            else:
                later(through[0], number, fragment, through[1])
            continue
        job.waiting[fragment].append(marked)
        while job.done in job.waiting and len(job.waiting[job.done]) == job.units:
            marks = job.waiting.pop(job.done)
            job.done += 1
            native.take(job.window, any(marks), job.done, job.sent)
        push(number, now)
    return [job.done for job in jobs]


def cases() -> Iterator[tuple[int, list[int]]]:
    for room in (16, 32, 256):
        yield from ((room, units) for units in ([1], [3], [8], [1, 1], [1, 1, 1, 1], [3, 3]))


@pytest.mark.parametrize(("room", "units"), list(cases()))
def test_a_queue_is_used_up_and_loses_less_than_a_hundredth(
    native: ctypes.CDLL, room: int, units: list[int]
) -> None:
    for seed in range(3):
        queue = Queue(room, room // 4, bucket=16)
        fragments = played(native, queue, units, 20_000, seed)
        assert queue.lost < 0.01 * queue.passed
        assert queue.passed > 0.95 * 20_000
        shares = [done * count for done, count in zip(fragments, units, strict=True)]
        assert sum(shares) ** 2 > 0.95 * len(shares) * sum(share * share for share in shares), shares
