"""`testbed reproduce trio fig14 --quick` and fig15 as a user types them: no packet ages out early, sums are
right, and nothing is left.
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


def test_packets_age_out_after_the_timeout_and_not_before(tmp_path: Path) -> None:
    words = ["--quick", "--runs", "1", "--out", str(tmp_path)]
    ended = command("testbed.reproduce", "trio", "fig14", *words, timeout_s=240)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = json.loads((tmp_path / "fig14.json").read_text())["rows"]
    assert [(row["timeout_ms"], row["busy"]) for row in rows] == [
        (1.0, False), (20.0, False), (1.0, True), (20.0, True)
    ]  # fmt: skip
    assert all(min(row["over"]) >= 1 for row in rows), rows
    assert all(row["verdict"]["trustworthy"] == (row["load"] <= 0.1) for row in rows), rows
    assert "Figure 14: packets that age out" in ended.stdout
    assert (tmp_path / "fig14.png").read_bytes().startswith(b"\x89PNG")


def test_packets_of_each_size_are_timed(tmp_path: Path) -> None:
    words = ["--quick", "--packets", "211", "--out", str(tmp_path)]
    ended = command("testbed.reproduce", "trio", "fig15", *words, timeout_s=240)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = json.loads((tmp_path / "fig15.json").read_text())["rows"]
    assert [(row["gradients"], row["window"], row["packets"]) for row in rows] == [
        (64, 1, 211),
        (1024, 1, 211),
    ]
    assert all(len(row["seconds"]) == 2 and min(row["seconds"]) > 0 for row in rows)
    assert (tmp_path / "fig15.png").read_bytes().startswith(b"\x89PNG")
