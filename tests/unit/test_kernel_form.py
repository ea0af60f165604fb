"""The steps of the long form are tests that there are (tests/kernels): it runs for hours, and seldom."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kernels.form import TESTS
from tests.limits import CALL_S
from tests.privileged.commands import ROOT


@pytest.mark.parametrize("name", TESTS)
def test_a_step_selects_tests(name: str) -> None:
    files = [f"tests/privileged/{each}" for each in TESTS[name]]
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", *files]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT, timeout=CALL_S)
    assert done.returncode == 0, done.stdout + done.stderr
