"""`testbed reproduce aleph fig6 --quick` and fig8 as a user types them: sums are right, losses are counted,
and nothing is left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reproductions.aleph.micro.clocks import kernel_threads_are_seen
from tests.conftest import lacking
from tests.privileged.commands import command

pytestmark = [
    pytest.mark.needs("namespaces", "xdp"),
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.timeout(240),
]


def test_sums_are_right_and_losses_are_counted(tmp_path: Path) -> None:
    if not kernel_threads_are_seen(Path("/proc")):
        lacking("kthreads", "the kernel's threads are not seen in this PID namespace")
    words = ["--quick", "--seconds", "0.2", "--out", str(tmp_path)]
    ended = command("testbed.reproduce", "aleph", "fig6", *words, timeout_s=200)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads((tmp_path / "fig6.json").read_text())
    assert {row["case"] for row in report["rows"]} == {"xdp-native", "xdp-generic"}
    for row in report["rows"]:
        counts = row["counts"]
        assert counts["wrong"] == counts["duplicate"] == 0, row
        assert counts["received"] > 0, row
        if row["offered"] is None:  # as many as are taken: all workers' packets are there
            assert counts["sums"] > 0, row
            assert counts["incomplete"] == counts["late"] == 0, row
    assert report["claims"]
    assert "Loss by the head's load" in ended.stdout
    assert (tmp_path / "fig6.png").read_bytes().startswith(b"\x89PNG")


def test_killed_in_the_middle_it_leaves_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "testbed.reproduce", "aleph", "fig8", "--quick", "--out", str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(4)]
        assert said[0] == "fig8: 1 minute or more\n"
        assert said[3] == "fig8: 8 runs\n"
        while not _inside():
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while left := _inside():
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def _inside() -> list[str]:
    """The measuring processes that there are."""
    running = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if "reproductions.aleph.micro.session" in words:
            running.append(" ".join(words))
    return running
