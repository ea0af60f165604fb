"""The pauses of a worker that hears nothing (workloads/native/timing.h), held against
what docs/protocol.md says.
"""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from pathlib import Path

import pytest

from tests.limits import CALL_S

NATIVE = Path(__file__).resolve().parents[2] / "workloads/native"
SHIM = """
#include "timing.h"
void opened(struct timing *t) { timing_open(t); }
void trip(struct timing *t, int64_t rtt, int64_t queued) { timing_round_trip(t, rtt, queued, 1e9); }
int64_t probe(struct timing *t, int64_t silent, int64_t workers, int64_t frame)
{
	return timing_probe_ns(t, silent, workers, frame);
}
"""
MS = 1_000_000


class Timing(ctypes.Structure):
    """struct timing."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("srtt_ns", "base_ns", "pace_ns", "pace_at")),
        *((name, ctypes.c_uint64) for name in ("pace_from", "pace_until")),
        ("timed", ctypes.c_int),
    ]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("timing")
    (folder / "shim.c").write_text(SHIM)
    argv = ["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{NATIVE}", "-o", "shim.so", "shim.c"]
    subprocess.run(argv, cwd=folder, check=True, timeout=CALL_S)
    library = ctypes.CDLL(str(folder / "shim.so"))
    library.trip.argtypes = [ctypes.POINTER(Timing), ctypes.c_int64, ctypes.c_int64]
    library.probe.argtypes = [ctypes.POINTER(Timing), *[ctypes.c_int64] * 3]
    library.probe.restype = ctypes.c_int64
    return library


def made(native: ctypes.CDLL, *trips: tuple[int, int]) -> Timing:
    timing = Timing()
    native.opened(ctypes.byref(timing))
    timing.pace_ns = 1  # so that no round trip is too long to be one
    for rtt, queued in trips:
        native.trip(timing, rtt, queued)
    return timing


def pause(native: ctypes.CDLL, timing: Timing, silent_ns: int, workers: int = 2, frame_ns: int = 0) -> int:
    """Return how long it waits for its next probe, after a silence that lasts so long."""
    return int(native.probe(ctypes.byref(timing), silent_ns, workers, frame_ns))


def probes(native: ctypes.CDLL, timing: Timing, silent_ns: int) -> list[int]:
    """Return when it probes in a silence that lasts so long."""
    times = [pause(native, timing, 0)]
    while times[-1] < silent_ns:
        times.append(times[-1] + pause(native, timing, times[-1]))
    return times


def test_what_was_silent_for_tens_of_milliseconds_is_probed_each_millisecond(native: ctypes.CDLL) -> None:
    times = probes(native, made(native, (300_000, 0)), 100 * MS)
    assert times[:3] == [MS, 2 * MS, 3 * MS]
    assert max(b - a for a, b in itertools.pairwise(times)) == MS


def test_a_pause_is_a_128th_of_a_long_silence_and_a_quarter_of_a_second_at_most(native: ctypes.CDLL) -> None:
    timing = made(native, (300_000, 0))
    assert pause(native, timing, 500 * MS) == 500 * MS // 128
    assert pause(native, timing, 3600_000 * MS) == 250 * MS
    assert len(probes(native, timing, 10_000 * MS)) < 128 * 8, "few packets, however long it lasts"


def test_two_round_trips_are_waited_for_where_they_are_longer(native: ctypes.CDLL) -> None:
    assert pause(native, made(native, (30 * MS, 0)), 0) == 60 * MS
    assert pause(native, made(native), 0) == 5 * MS, "as long as none is known"


def test_what_a_worker_s_own_packets_took_on_its_link_is_no_part_of_a_round_trip(native: ctypes.CDLL) -> None:
    timing = made(native, (30 * MS, 27 * MS))
    assert (timing.srtt_ns, timing.base_ns) == (30 * MS, 3 * MS)
    assert pause(native, timing, 0) == 6 * MS
    native.trip(timing, 3 * MS, 27 * MS)
    assert timing.base_ns == 3 * MS - 3 * MS // 8, "never less than nothing"


@pytest.mark.parametrize("workers", [2, 4, 8, 64])
@pytest.mark.parametrize("rate_mbps", [10, 100, 200, None])
def test_a_link_that_the_probes_of_all_workers_go_over_is_for_the_most_part_free(
    native: ctypes.CDLL, workers: int, rate_mbps: int | None
) -> None:
    frame_ns = 1514 * 8000 // rate_mbps if rate_mbps else 0
    waited = pause(native, made(native, (300_000, 0)), 0, workers, frame_ns)
    assert 2 * workers * frame_ns <= waited / 4 + 1
    assert workers / waited <= 1 / 100_000, "ten thousand probes a second at most, of all of them"
    assert workers > 4 or (rate_mbps or 200) < 100 or waited < 5 * MS, "few go on soon"
