"""The cost of a frame on this machine, as it is kept for the machine, and the cores that may be used."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from testbed.host_checks import frame_costs
from testbed.host_checks.frame_costs import NAME, cores_allowed, frame_cost

MTU = 1500


class Trials:
    """Each measurement that is made, with the trials of the next."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.trials = [5.0, 4.0, 4.5]

    def __call__(self, mtu: int) -> list[float]:
        self.made.append(mtu)
        return self.trials


@pytest.fixture
def trials() -> Trials:
    return Trials()


def test_it_is_measured_once_for_each_mtu(tmp_path: Path, trials: Trials) -> None:
    first, is_new = frame_cost(MTU, trials, tmp_path / "cache")
    assert is_new
    assert (first.best_us, first.middle_us, first.was_busy) == (4.0, 4.5, False)
    assert frame_cost(MTU, trials, tmp_path / "cache") == (first, False)
    assert frame_cost(9000, trials, tmp_path / "cache")[1]
    assert trials.made == [MTU, 9000]


def test_a_busy_machine_is_told(tmp_path: Path, trials: Trials) -> None:
    trials.trials = [4.0, 9.0, 30.0]
    for _ in range(2):
        cost, _ = frame_cost(MTU, trials, tmp_path)
        assert (cost.best_us, cost.was_busy) == (4.0, True)


@pytest.mark.parametrize("change", ["CPUINFO", "cores_allowed", "sources"])
def test_another_machine_or_code_is_measured_again(
    change: str, tmp_path: Path, trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame_cost(MTU, trials, tmp_path)
    text = tmp_path / "text"
    text.write_text("model name\t: another\n")
    other = {"CPUINFO": text, "cores_allowed": lambda: 0.5, "sources": lambda: [text]}[change]
    monkeypatch.setattr(frame_costs, change, other)
    assert [frame_cost(MTU, trials, tmp_path)[1] for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    "change",
    [
        {"best_us": "fast"},
        {"best_us": 0},
        {"best_us": float("nan")},
        {"middle_us": 1},
        {"measured_s": 1e12},
        {"facts": ""},
    ],
)
def test_a_file_with_other_numbers_is_not_believed(
    change: dict[str, object], tmp_path: Path, trials: Trials
) -> None:
    frame_cost(MTU, trials, tmp_path)
    file = tmp_path / NAME.format(mtu=MTU)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert frame_cost(MTU, trials, tmp_path)[1]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"\xff\xfe", b"{}"])
def test_an_unreadable_file_is_replaced(content: bytes, tmp_path: Path, trials: Trials) -> None:
    file = tmp_path / NAME.format(mtu=MTU)
    file.write_bytes(content)
    assert [frame_cost(MTU, trials, tmp_path)[1] for _ in range(2)] == [True, False]


def test_a_full_disk_costs_a_measurement_each_time(
    tmp_path: Path, trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(frame_costs, "write_whole", full)
    assert [frame_cost(MTU, trials, tmp_path)[1] for _ in range(2)] == [True, True]
    (tmp_path / "file").touch()
    assert frame_cost(MTU, trials, tmp_path / "file")[1], "the cache folder is no folder"


def test_the_limit_of_a_cgroup_above_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "all" / "mine"
    inner.mkdir(parents=True)
    own = tmp_path / "cgroup"
    own.write_text("1:cpu:/other\n0::/all/mine\n")
    monkeypatch.setattr(frame_costs, "CGROUPS", tmp_path)
    monkeypatch.setattr(frame_costs, "OWN_CGROUP", own)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert cores_allowed() == 3
    (inner / "cpu.max").write_text("max 100000\n")
    assert cores_allowed() == 3
    (inner.parent / "cpu.max").write_text("150000 100000\n")
    assert cores_allowed() == 1.5
    (inner / "cpu.max").write_text("50000 100000\n")
    assert cores_allowed() == 0.5
    own.unlink()
    assert cores_allowed() == 3
