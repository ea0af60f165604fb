"""The kernel as `testbed up` tries it before anything starts, and when it does so again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed import up
from testbed.daemon import supervisor
from testbed.errors import HostError, TestbedError
from testbed.probing import kernel, required
from testbed.probing.features import ProbeResult
from testbed.probing.required import NAME, NEEDED, require_kernel

Trials = list[Sequence[str]]


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    """Each trial of a kernel that can all."""
    made: Trials = []

    def findings(names: Sequence[str]) -> list[ProbeResult]:
        made.append(names)
        return [ProbeResult(name, True, "works") for name in names]

    monkeypatch.setattr(kernel, "findings", findings)
    return made


def found(monkeypatch: pytest.MonkeyPatch, lacking: str, is_broken: bool = False) -> None:
    def findings(names: Sequence[str]) -> list[ProbeResult]:
        return [
            ProbeResult(name, name != lacking, "no", broken=is_broken and name == lacking) for name in names
        ]

    monkeypatch.setattr(kernel, "findings", findings)


def test_our_programs_a_broadcast_and_a_mark_are_needed() -> None:
    assert {"xdp", "programs", "broadcast", "marks", "mmap", "tbf", "mirred", "ovs"} <= set(NEEDED)


def test_what_works_is_tried_once_for_each_start_of_the_machine_and_each_text(
    trials: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        require_kernel("programs", tmp_path)
    assert trials == [NEEDED]
    require_kernel("other programs", tmp_path)
    assert len(trials) == 2
    boot = tmp_path / "boot_id"
    boot.write_text("another start\n")
    monkeypatch.setattr(required, "BOOT", boot)
    require_kernel("other programs", tmp_path)
    assert len(trials) == 3
    assert [path.name for path in tmp_path.iterdir() if path != boot] == [NAME]


@pytest.mark.parametrize("lacking", NEEDED)
def test_a_lack_is_a_line_with_its_remedy_and_is_not_remembered(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, lacking)
    with pytest.raises(HostError, match=rf"^this host lacks {lacking} \(.+\): no; needed is [^\n]+$"):
        require_kernel("programs", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_started_where_the_kernel_lacks_something(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(programs: str) -> None:
        assert "host_port" in programs
        raise HostError("this host lacks marks")

    monkeypatch.setattr(required, "require_kernel", lacks)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for check in ("check_tools", "check_files"):
        monkeypatch.setattr(up, check, lambda *_: None)
    for started in ("bring_up", "bring_up_detached"):
        monkeypatch.setattr(supervisor, started, lambda *_, **__: pytest.fail("it was started"))
    with pytest.raises(HostError, match=r"^this host lacks marks$"):
        up.main(["--config", "rack", "--name", "lacking"])


def test_a_fault_of_a_trial_is_no_lack_of_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, "programs", is_broken=True)
    with pytest.raises(TestbedError, match="a fault of the testbed's own in what tries programs: no"):
        require_kernel("programs", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_a_cache_it_is_tried_each_time(trials: Trials, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for _ in range(2):
        require_kernel("programs", file / "folder")
    assert len(trials) == 2
