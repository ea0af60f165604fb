"""Cgroups of either version, in trees with the files that the kernel has there."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from testbed.cgroups import keeper, lifetime
from testbed.cgroups.hierarchy import (
    Hierarchy,
    Version1,
    Version2,
    enclosing,
    end_members,
    find,
    limit,
    members,
)
from testbed.emulation.enclosures import Enclosures
from testbed.errors import HostError, SettingError
from tests.limits import CALL_S
from tests.processes import no_namespace

V1 = "31 30 {device} / {}/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
OTHER = "32 30 {device} / {}/memory rw,relatime - cgroup cgroup rw,memory\n"
V2 = "30 24 {device} / {} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def mounted(folder: Path, *lines: str) -> Path:
    """Return a mountinfo with these lines, of mounts that can be seen at their folders."""
    mounts, number = folder / "mountinfo", folder.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    (folder / "cpu,cpuacct").mkdir(exist_ok=True)
    before = "22 1 8:1 / / rw - ext4 /dev/vda1 rw\n"
    mounts.write_text("".join(line.format(folder, device=device) for line in (before, *lines)))
    return mounts


def cgroup(folder: Path, files: dict[str, str]) -> Path:
    """Return a cgroup with the files that the kernel makes in it."""
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_a_hierarchy_is_found_where_it_is_mounted(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("cpuset cpu io memory pids\n")
    assert find(mounted(tmp_path, OTHER, V1)) == Version1(tmp_path / "cpu,cpuacct")
    assert find(mounted(tmp_path, V2)) == Version2(tmp_path)
    assert find(mounted(tmp_path, V2, OTHER, V1)) == Version1(tmp_path / "cpu,cpuacct"), "of a hybrid host"


PIDS = "33 30 {device} / {}/pids rw,relatime - cgroup cgroup rw,pids\n"


@pytest.mark.parametrize(
    ("mounts", "own", "expected"),
    [
        ((V2,), "0::/user.slice/mine\n", "user.slice/mine"),
        ((V1, V2), "1:cpu,cpuacct:/other\n0::/\n", ""),
        ((V1, PIDS), "2:pids:/mine\n1:cpu,cpuacct:/\n", "pids/mine"),
        ((V1, OTHER), "2:memory:/\n1:cpu,cpuacct:/\n", None),
        ((V2.replace("{device} /", "{device} /docker/a"),), "0::/docker/a/b\n", "b"),
        ((V2,), "0::/../../elsewhere\n", None),
        ((), "0::/\n", None),
    ],
    ids=["second", "hybrid", "first", "none that is quiet", "a mounted part", "outside", "unmounted"],
)
def test_jobs_are_kept_together_where_that_changes_no_scheduling(
    tmp_path: Path, mounts: tuple[str, ...], own: str, expected: str | None
) -> None:
    mounted(tmp_path, *mounts)
    if expected:
        (tmp_path / expected).mkdir(parents=True)
    (tmp_path / "own").write_text(own)
    folder = enclosing(mounted(tmp_path, *mounts), tmp_path / "own")
    assert folder == (None if expected is None else tmp_path / expected)


@pytest.mark.parametrize("limited", [True, False])
def test_a_job_s_cgroup_is_below_its_host_s_limit_where_both_are_of_one_hierarchy(
    tmp_path: Path, limited: bool
) -> None:
    for name in ("jobs", "limits/u1h1"):
        (tmp_path / name).mkdir(parents=True)
    limits = {"u1h1": tmp_path / "limits" / "u1h1"} if limited else {}
    made = Enclosures(tmp_path / "jobs", limits, no_namespace).cgroups_of("u1h1", "job-1-1")
    assert made == [tmp_path / ("limits/u1h1" if limited else "jobs") / "job-1-1"]
    other = Path("/dev/shm")  # of another file system
    assert Enclosures(other, limits, no_namespace).cgroups_of("u1h1", f"job-{os.getpid()}") == [
        *limits.values(),
        other / f"job-{os.getpid()}",
    ]
    (other / f"job-{os.getpid()}").rmdir()
    assert Enclosures(None, limits, no_namespace).cgroups_of("u1h1", "job-1-1") == [*limits.values()]


def test_what_is_in_a_cgroup_is_ended(tmp_path: Path) -> None:
    """Whoever ends is in it no more, as the kernel has it."""
    with subprocess.Popen(["sleep", "4321"]) as process:
        members(tmp_path).write_text(f"{process.pid}\n0\n")
        threading.Timer(0.1, members(tmp_path).write_text, [""]).start()
        try:
            assert end_members(tmp_path) == 1
            assert process.wait(CALL_S) == -signal.SIGKILL
        finally:
            process.kill()


def test_a_mount_that_another_hides_is_none(tmp_path: Path) -> None:
    """mountinfo lists it still: no cgroup can be made there."""
    hidden = V1.replace("{device}", "0:0")
    with pytest.raises(HostError, match=r"^no cgroups are mounted"):
        find(mounted(tmp_path, hidden, V2.replace("{device}", "0:0")))
    (tmp_path / "cgroup.subtree_control").write_text("cpu\n")
    assert find(mounted(tmp_path, hidden, V2)) == Version2(tmp_path)


def test_a_host_without_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"^no cgroups are mounted; cpus of hosts needs the cpu controller"):
        find(mounted(tmp_path, OTHER))
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n")
    with pytest.raises(HostError, match=r"cgroup.subtree_control has no cpu, and so nothing below it"):
        find(mounted(tmp_path, V2))


FILES: dict[str, tuple[Hierarchy, dict[str, str], dict[str, str]]] = {
    "1": (
        Version1(Path()),
        {"cpu.cfs_period_us": "100000\n", "cpu.cfs_quota_us": "-1\n"},
        {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"},
    ),
    "2": (
        Version2(Path()),
        {"cpu.max": "max 100000\n", "cgroup.subtree_control": "\n"},
        {"cpu.max": "50000 100000", "cgroup.subtree_control": "+cpu"},
    ),
}


@pytest.mark.parametrize("version", FILES)
def test_a_limit_is_written_and_read_back(tmp_path: Path, version: str) -> None:
    hierarchy, before, after = FILES[version]
    folder = cgroup(tmp_path / "u1h1", before)
    hierarchy.pass_on(folder)
    for name in before:
        (folder / name).write_text(
            ""
        )  # as the kernel does, what is written takes the place of what was there
    hierarchy.pass_on(folder)
    limit(hierarchy, folder, 0.5)
    assert {name: (folder / name).read_text() for name in before} == after
    assert members(folder) == folder / "cgroup.procs"


@pytest.mark.parametrize("version", FILES)
def test_a_limit_that_does_not_take_effect_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    hierarchy, before, _ = FILES[version]
    folder = cgroup(tmp_path / "u1h1", before)
    monkeypatch.setattr("testbed.cgroups.hierarchy._write", lambda path, text: None)
    with pytest.raises(SettingError, match=r"50000 of 100000 us were asked for, and (-1|max) of 100000 read"):
        limit(hierarchy, folder, 0.5)


@pytest.mark.parametrize("version", FILES)
def test_files_that_the_kernel_has_not_are_not_made(tmp_path: Path, version: str) -> None:
    folder = cgroup(tmp_path / "u1h1", {})
    with pytest.raises(FileNotFoundError):
        limit(FILES[version][0], folder, 0.5)
    assert not list(folder.iterdir())


def test_cgroups_are_removed_with_those_in_them(tmp_path: Path) -> None:
    for host in ("u1h1", "u1h2"):
        (tmp_path / "made" / host).mkdir(parents=True)
    assert keeper.remove(tmp_path / "made", 1.0)
    assert keeper.remove(tmp_path / "made", 1.0), "it is gone already"
    assert not list(tmp_path.iterdir())
    (tmp_path / "kept" / "u1h1").mkdir(parents=True)
    (tmp_path / "kept" / "u1h1" / "file").touch()
    assert not keeper.remove(tmp_path / "kept", 0.0), "of what is no cgroup nothing is removed"


class _Refusing(Version1):
    """A hierarchy, in a plain folder, that passes nothing on: it is the last to see what is made there."""

    def pass_on(self, folder: Path) -> None:
        raise PermissionError(1, f"mode {folder.stat().st_mode & 0o777:o}", str(folder))


def test_only_root_may_look_into_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may open it can hold its lock, and with it a start of the testbed, and its end."""
    monkeypatch.setattr(lifetime, "find", lambda: _Refusing(tmp_path))
    umask = os.umask(0)
    try:
        with pytest.raises(HostError, match="mode 700;"), lifetime.HostCgroups("t", {"u1h1": 0.5}):
            pass
    finally:
        os.umask(umask)
    assert not list(tmp_path.iterdir()), "the keeper removes it"


def test_a_lock_that_another_holds_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other: list[int] = []

    def opened(folder: Path) -> int:
        other.append(os.open(folder, os.O_RDONLY))
        fcntl.flock(other[0], fcntl.LOCK_EX)
        return os.open(folder, os.O_RDONLY)

    monkeypatch.setattr(lifetime, "find", lambda: _Refusing(tmp_path))
    monkeypatch.setattr(lifetime, "_open", opened)
    monkeypatch.setattr(lifetime, "_LOCK_S", 0.0)
    try:
        with (
            pytest.raises(HostError, match=r"lock .*/optinc-t-[0-9a-f]{8}: another process holds it"),
            lifetime.HostCgroups("t", {"u1h1": 0.5}),
        ):
            pass
    finally:
        for fd in other:
            os.close(fd)
    assert not list(tmp_path.iterdir())
