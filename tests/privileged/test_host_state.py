"""The oracle of the clean-up tests: it must see what a testbed could leave, and must not see what is gone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import CALL_S
from tests.privileged.commands import wait_for
from tests.privileged.host_state import RUNTIME, assert_unchanged, host_snapshot

LOAD = """
import os, sys
from testbed.probing.headers import kernel_headers
os.environ["BCC_KERNEL_SOURCE"] = str(kernel_headers())
from bcc import BPF
text = "int left_behind(struct xdp_md *context) { return XDP_PASS; }"
program = BPF(text=text).load_func("left_behind", BPF.XDP)
print("loaded", flush=True)
sys.stdin.read()
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
