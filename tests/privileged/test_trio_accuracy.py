"""`testbed reproduce trio fig12 --quick` as a user types it: the workers' models are the same, and nothing is
left.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.privileged.commands import command

pytestmark = [
    pytest.mark.needs("namespaces", "xdp", "ovs", "torch"),
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.timeout(300),
]


def test_a_model_is_trained_beside_stragglers(tmp_path: Path) -> None:
    words = ["--quick", "--iterations", "13", "--target", "0.3", "--out", str(tmp_path)]
    ended = command("testbed.reproduce", "trio", "fig12", *words, timeout_s=240)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    ideal, baseline, ours = json.loads((tmp_path / "fig12.json").read_text())["rows"]
    assert [row["way"] for row in (ideal, baseline, ours)] == ["ideal", "switches", "trio"]
    assert [len(row["ended_s"]) for row in (ideal, baseline, ours)] == [13] * 3
    # who waits for all has the sums of who is never late, to the last bit
    assert baseline["accuracy"] == ideal["accuracy"]
    assert ideal["delays"] == 0 < baseline["delays"] == ours["delays"]
    assert sum(ours["without"].values()) > 0
    assert "Figure 12: to an accuracy of 30% beside stragglers" in ended.stdout
    assert (tmp_path / "fig12.png").read_bytes().startswith(b"\x89PNG")
