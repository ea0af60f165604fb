"""The oracle of the clean-up tests: it must see what a testbed could leave, and must not see what is gone."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path

import pytest

from testbed.emulation.namespaces import call_libc
from tests.limits import CALL_S
from tests.privileged.commands import ROOT, wait_for
from tests.privileged.host_state import (
    PR_SET_CHILD_SUBREAPER,
    RUNTIME,
    HostSnapshot,
    assert_unchanged,
    bpf_lines,
    host_snapshot,
)
from tests.processes import alive

pytestmark = pytest.mark.alone  # whose snapshots are compared as they are

LOAD = """
import os, sys
from testbed.host_checks.headers import kernel_headers
os.environ["BCC_KERNEL_SOURCE"] = str(kernel_headers())
from bcc import BPF
text = "int left_behind(struct xdp_md *context) { return XDP_PASS; }"
program = BPF(text=text).load_func("left_behind", BPF.XDP)
print("loaded", flush=True)
sys.stdin.read()
"""


ATTACH = """
import os, subprocess, sys
from testbed.host_checks.headers import kernel_headers
os.environ["BCC_KERNEL_SOURCE"] = str(kernel_headers())
from bcc import BPF
text = f"int {sys.argv[1]}(struct xdp_md *context) {{ return XDP_PASS; }}"
program = BPF(text=text)
subprocess.run(["ip", "link", "add", "held0", "type", "veth"], check=True)
program.attach_xdp("held0", program.load_func(sys.argv[1], BPF.XDP), 0)
os._exit(0)
"""


def test_sees_an_orphan_until_it_is_gone() -> None:
    before = host_snapshot()
    with subprocess.Popen(
        ["sh", "-c", "sleep 613 >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True
    ) as shell:
        pid = int(shell.communicate(timeout=CALL_S)[0])
    name = Path(f"/proc/{pid}/comm")
    wait_for(lambda: name.read_text() == "sleep\n", "the orphan is not its shell any more")
    assert host_snapshot().added_since(before) == {"processes": [f"{pid} sleep"]}
    subprocess.run(["kill", str(pid)], check=True, timeout=CALL_S)
    assert_unchanged(before)


def test_sees_a_runtime_folder(tmp_path: Path) -> None:
    before = host_snapshot()
    folder = RUNTIME / f"left-{tmp_path.name}"
    folder.mkdir(parents=True)
    try:
        assert host_snapshot().added_since(before) == {"runtime_folders": [folder.name]}
        with pytest.raises(AssertionError, match=folder.name):
            assert_unchanged(before, deadline_s=0.1)
    finally:
        folder.rmdir()
    assert_unchanged(before)


@pytest.mark.needs("xdp")
def test_sees_a_loaded_program_of_another_process() -> None:
    before = host_snapshot()
    holder = subprocess.Popen(
        [sys.executable, "-c", LOAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "loaded\n"
        added = host_snapshot().added_since(before)
        assert any(program.endswith(" left_behind") for program in added["bpf_programs"])
        holder.communicate(timeout=CALL_S)
    assert_unchanged(before)


@pytest.mark.needs("xdp")
def test_a_program_that_a_process_of_another_lane_holds_is_not_this_ones() -> None:
    names = [sys.executable, "-c", "from tests.privileged.host_state import host_snapshot as now\n"]
    names[2] += "print('\\n'.join(now().bpf_programs))"
    holder = subprocess.Popen(
        [sys.executable, "-c", LOAD], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "loaded\n"
        assert any(program.endswith(" left_behind") for program in host_snapshot().bpf_programs)
        beside = subprocess.run(
            names, cwd=ROOT, capture_output=True, text=True, check=True, timeout=CALL_S
        ).stdout
        assert "left_behind" not in beside, "of a process that did not start its holder"
        holder.communicate(timeout=CALL_S)


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=CALL_S)


@contextmanager
def other_programs() -> Iterator[int]:
    """Make what a container engine makes meanwhile: a mount and a device, in the namespaces that this
    process's parent is in, and a process that is no descendant. Yields the process's number.
    """
    with tempfile.TemporaryDirectory(prefix="other-program-") as folder:
        at_home = ["nsenter", f"--target={os.getppid()}", "--mount", "--net"]
        call_libc("prctl", PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        with subprocess.Popen(
            ["sh", "-c", "sleep 614 >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True
        ) as shell:
            pid = int(shell.communicate(timeout=CALL_S)[0])
        with ExitStack() as undo:
            undo.callback(os.kill, pid, signal.SIGKILL)
            for make, remove in (
                (["mount", "-t", "tmpfs", "tmpfs", folder], ["umount", folder]),
                (["ip", "link", "add", "other0", "type", "veth"], ["ip", "link", "delete", "other0"]),
            ):
                run(*at_home, *make)
                undo.callback(run, *at_home, *remove)
            yield pid


def test_what_other_programs_mount_make_and_start_meanwhile_is_no_leftover(tmp_path: Path) -> None:
    before, left = host_snapshot(), tmp_path / "left"
    left.mkdir()
    with other_programs() as pid:
        assert alive(pid)
        assert_unchanged(before, deadline_s=CALL_S)
        run("mount", "-t", "tmpfs", "tmpfs", str(left))
        run("ip", "link", "add", "u1-h1", "type", "veth", "peer", "u1-h2")
        try:
            made = {"mounts": [str(left)], "interfaces": ["u1-h1", "u1-h2"]}
            added = host_snapshot().added_since(before)
            assert {kind: added.get(kind) for kind in made} == made
            with pytest.raises(AssertionError, match="u1-h1"):
                assert_unchanged(before, deadline_s=0.1)
        finally:
            run("ip", "link", "delete", "u1-h1")
            run("umount", str(left))
    assert_unchanged(before)


@pytest.mark.needs("xdp")
def test_a_program_that_nobody_holds_is_a_leftover_if_its_name_is_one_of_ours() -> None:
    """Attached to a device, whose loader has ended."""
    before = host_snapshot()
    for name, is_ours in (("tor_port", True), ("of_some_engine", False)):
        loaded = subprocess.run(
            [sys.executable, "-c", ATTACH, name], capture_output=True, text=True, check=False, timeout=CALL_S
        )
        assert loaded.returncode == 0, loaded.stderr
        try:
            programs = host_snapshot().added_since(before).get("bpf_programs", [])
            assert (name in [program.split()[1] for program in programs]) == is_ours
        finally:
            run("ip", "link", "delete", "held0")
    assert_unchanged(before)


def test_a_program_that_came_after_the_test_is_not_the_tests() -> None:
    nothing = {field.name: frozenset[str]() for field in fields(HostSnapshot)}
    first = HostSnapshot(**{**nothing, "bpf_programs": frozenset({"7 left"})})
    later = HostSnapshot(**{**nothing, "bpf_programs": frozenset({"7 left", "8 came"})})
    assert later.without_later_bpf(first) == first
    assert HostSnapshot(**nothing).without_later_bpf(first) == HostSnapshot(**nothing)


def test_what_was_there_before_is_not_new_whoever_held_it_then() -> None:
    """Snapshots of other lanes open each object for a moment."""
    nothing = {field.name: frozenset[str]() for field in fields(HostSnapshot)}
    before = HostSnapshot(**{**nothing, "all_maps": frozenset({"7 entries"})})
    now = HostSnapshot(**{**nothing, "bpf_maps": frozenset({"7 entries", "8 left"})})
    assert now.added_since(before) == {"bpf_maps": ["8 left"]}


def test_an_open_file_that_lies_deeper_than_a_path_is_long_is_no_bpf_object(
    tmp_path: Path,
) -> None:
    name, folder = "d" * 250, os.open(tmp_path, os.O_RDONLY)
    for _ in range(17):
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    try:
        with pytest.raises(OSError, match=os.strerror(errno.ENAMETOOLONG)):
            os.readlink(f"/proc/self/fd/{folder}")
        assert bpf_lines(Path("/proc/self"), Path(f"/proc/self/fd/{folder}")) == []
    finally:
        os.close(folder)
        shutil.rmtree(tmp_path / name)
