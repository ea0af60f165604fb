"""The testbed on Debian 12's own kernel, on an emulated machine: the short form of tests/kernels."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import lacking

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 1200
SOONER = -10  # niceness of its processes, which have a limit of their own, beside lanes that compute
STEPS = (
    "features",
    "programs",
    "up",
    "a sum in the network",
    "across racks",
    "with 1 % lost",
    "a late worker (Trio-ML)",
)


@pytest.mark.timeout(LIMIT_S + 60)
def test_the_short_form_passes_on_debians_kernel() -> None:
    if platform.machine() != "x86_64" or shutil.which("qemu-system-x86_64") is None:
        lacking("kernels", "qemu-system-x86_64 is not installed, or this is no x86-64")
    argv = [sys.executable, "-m", "tests.kernels"]
    done = subprocess.run(
        argv,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        preexec_fn=partial(os.nice, SOONER),
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    lines = done.stdout.splitlines()
    for name in (*STEPS, "down"):
        assert any(line.startswith(f"{name}: ") for line in lines), f"{name}: no such step\n{done.stdout}"
