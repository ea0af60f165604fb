"""The action's run in its container, without the container: one job on a testbed that lives as long as it
does.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.privileged.commands import WAIT_S
from tests.privileged.host_state import assert_unchanged, host_snapshot

ROOT = Path(__file__).resolve().parents[2]
SUMS = Path(__file__).resolve().parent / "jobs" / "sums.py"

pytestmark = pytest.mark.needs("namespaces", "xdp", "ovs", "torch")


def test_a_job_its_result_and_its_exit_code(tmp_path: Path) -> None:
    before = host_snapshot()
    (tmp_path / "testbed.yaml").write_text("units: [{hosts: 2}]\nscale: 400\n")
    start = [str(ROOT / "scripts/ci_job.py"), "--config", "testbed.yaml", "--results", "left", "--"]
    ended = [
        subprocess.run(
            [*start, *job], cwd=tmp_path, capture_output=True, text=True, timeout=2 * WAIT_S, check=False
        )
        for job in (["--place", "u1:2", str(SUMS), "0.5", "3"], ["--sync", "nonsense", str(SUMS)])
    ]
    assert [each.returncode for each in ended] == [0, 2], [each.stdout + each.stderr for each in ended]
    assert "nonsense" in ended[1].stderr
    result = json.loads((tmp_path / "left/result.json").read_text())
    assert len(result["workers"]) == 2
    assert list((tmp_path / "left/logs").iterdir())
    assert_unchanged(before)
