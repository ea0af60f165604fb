"""Other users of the machine: cores that programs outside of the testbed take, and other testbeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.local.counters import spent
from testbed.telemetry.other_programs import Company, Spent, company


def fake(folder: Path, own: list[tuple[int, int, int, int]], user: int) -> Path:
    folder.mkdir()
    (folder / "stat").write_text(f"cpu  {user} 10 20 900 0 0 77 5 0 0\ncpu0 1 1 1 1\n")
    for at, times in enumerate(own, 1):
        (folder / str(at)).mkdir()
        fields = ["S", *["0"] * 10, *map(str, times), "0"]
        (folder / str(at) / "stat").write_text(f"{at} (a) b) {' '.join(fields)}\n")
    return folder


def test_the_machines_time_less_the_testbeds_own_is_that_of_others(tmp_path: Path) -> None:
    """A process that has ended is in its parent's time of children."""
    before = spent(10.0, ["h", "x"], fake(tmp_path / "a", [(100, 0, 0, 0), (50, 50, 0, 0)], 1000))
    after = spent(12.0, ["h", "y"], fake(tmp_path / "b", [(100, 0, 70, 80)], 1350))
    assert (after.own_s - before.own_s, after.all_s - before.all_s) == pytest.approx((0.5, 3.5))
    assert company(before, after, "h") == Company(pytest.approx(1.5), ("x", "y"))


def test_what_was_little_has_no_words() -> None:
    now = Spent(1.0, 5.0, 5.0, frozenset({"h"}))
    assert company(now, now, "h").words == ""
    assert Company(0.5, ("x",)).words == (
        "programs outside of this testbed took 0.50 cores; other testbeds ran: x"
    )
