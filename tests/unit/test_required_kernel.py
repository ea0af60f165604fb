"""The kernel as `testbed up` tries it before anything starts, and when it does so again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed import up
from testbed.daemon import supervisor
from testbed.errors import HostError, TestbedError
from testbed.host_checks import host, kernel, required_kernel
from testbed.host_checks.features import ProbeFailure, ProbeResult
from testbed.host_checks.required_kernel import NAME, NEEDED, TOLD, require_kernel

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


@pytest.fixture(autouse=True)
def a_host_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all that is not the kernel's work."""
    monkeypatch.setattr(host, "PROBES", dict.fromkeys(host.PROBES, lambda: "works"))


def quiet(text: str) -> None:
    assert "once after each start" in text


def found(monkeypatch: pytest.MonkeyPatch, *lacking: str, is_broken: bool = False) -> None:
    """Have a kernel lack something."""

    def findings(names: Sequence[str]) -> list[ProbeResult]:
        return [
            ProbeResult(name, name not in lacking, "no", broken=is_broken and name in lacking)
            for name in names
        ]

    monkeypatch.setattr(kernel, "findings", findings)


def test_our_programs_a_broadcast_a_mark_and_a_tick_are_needed() -> None:
    assert {"xdp", "programs", "broadcast", "marks", "ticks", "mmap", "tbf", "mirred"} <= set(NEEDED)
    assert {*NEEDED, *TOLD} <= set(kernel.PROBES)
    names = {path.name for path in required_kernel.sources()}
    assert {
        "programs.c",
        "link_marks.c",
        "doctor_probe.c",
        "blocks.h",
        "kernel.py",
        "probe.py",
        "program.py",
    } <= names


def test_what_works_is_tried_once_for_each_start_of_the_machine_and_each_text(
    trials: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    for _ in range(2):
        require_kernel(quiet, folder)
    assert trials == [(*NEEDED, *TOLD)]
    text, boot, status = (tmp_path / name for name in ("text", "boot_id", "status"))
    text.write_text("another program\n")
    boot.write_text("another start\n")
    status.write_text("CapEff:\t0000000000000001\n")
    for count, (name, other) in enumerate(
        (("sources", lambda: [text]), ("BOOT", boot), ("STATUS", status)), start=2
    ):
        monkeypatch.setattr(required_kernel, name, other)
        for _ in range(2):
            require_kernel(quiet, folder)
        assert len(trials) == count, name
    assert [path.name for path in folder.iterdir()] == [NAME]


@pytest.mark.parametrize("lacking", NEEDED)
def test_a_lack_is_a_line_with_its_remedy_and_is_not_remembered(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found(monkeypatch, lacking)
    with pytest.raises(HostError, match=rf"^this host lacks {lacking} \(.+\): no; needed is [^\n]+$"):
        require_kernel(quiet, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lacking", TOLD)
def test_a_lack_that_can_be_done_without_is_said_each_time_and_tried_once(
    lacking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    found(monkeypatch, lacking)
    require_kernel(said.append, tmp_path)
    assert len(said) == 2
    assert said[1].startswith(f"this host lacks {lacking} (")
    assert "no; without it each packet is sent by itself" in said[1]
    monkeypatch.setattr(kernel, "findings", lambda _: pytest.fail("it was tried again"))
    require_kernel(said.append, tmp_path)
    assert said[2:] == said[1:2]


@pytest.mark.parametrize("is_broken", [False, True])
def test_what_a_lack_comes_of_is_named_in_its_place(
    is_broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container without NET_RAW sends no frame, and one without NET_ADMIN makes no device."""

    def lacks() -> str:
        raise ProbeFailure("NET_RAW is missing", remedy="run it with NET_RAW")

    found(monkeypatch, *NEEDED, is_broken=is_broken)
    monkeypatch.setitem(host.PROBES, "capabilities", lacks)
    line = r"^this host lacks capabilities \(.+\): NET_RAW is missing; needed is run it with NET_RAW; testbed"
    with pytest.raises(HostError, match=line):
        require_kernel(quiet, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_started_where_the_kernel_lacks_something(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(say: object) -> None:
        raise HostError("this host lacks marks")

    monkeypatch.setattr(required_kernel, "require_kernel", lacks)
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
        require_kernel(quiet, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_a_cache_it_is_tried_each_time(trials: Trials, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for _ in range(2):
        require_kernel(quiet, file / "folder")
    assert len(trials) == 2
