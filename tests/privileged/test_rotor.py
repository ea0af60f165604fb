"""`testbed reproduce rotor throughput --quick` and latency as a user types them: detours carry what direct
circuits cannot, and short flows do not wait for circuits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.privileged.commands import command

pytestmark = [
    pytest.mark.needs("namespaces", "xdp", "ovs"),
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.timeout(300),
]


def rows_of(figure: str, folder: Path, *words: str) -> list[dict[str, Any]]:
    ended = command(
        "testbed.reproduce", "rotor", figure, "--quick", *words, "--out", str(folder), timeout_s=240
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "runs trustworthy" in ended.stdout
    assert (folder / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
    rows: list[dict[str, Any]] = json.loads((folder / f"{figure}.json").read_text())["rows"]
    return rows


def test_detours_carry_half_of_a_permutation_and_direct_circuits_a_third(tmp_path: Path) -> None:
    rows = rows_of("throughput", tmp_path)
    by = {(row["demand"], row["routing"]): row for row in rows}
    assert list(by) == [(demand, by) for demand in ("uniform", "permutation") for by in ("direct", "vlb")]
    for row in rows:
        assert 0.7 * row["bound_mbps"] < row["carried_mbps"] < 1.1 * row["bound_mbps"], row
    direct, vlb = by["permutation", "direct"], by["permutation", "vlb"]
    assert vlb["carried_mbps"] > 1.5 * direct["carried_mbps"]
    assert vlb["bound_mbps"] == pytest.approx(2 * direct["bound_mbps"], rel=1e-3)


def test_short_flows_do_not_wait_for_direct_circuits_while_bulk_does(tmp_path: Path) -> None:
    rows = rows_of("latency", tmp_path)
    assert [(row["routing"], row["offered_mbps"] > 0) for row in rows] == [
        ("opera", False), ("opera", True), ("direct", False), ("direct", True)
    ]  # fmt: skip
    opera, bulk, direct, behind_bulk = rows
    assert opera["median_ms"][2] < 0.8 * direct["median_ms"][2]
    assert bulk["median_ms"][0] < 0.8 * behind_bulk["median_ms"][0]
    assert bulk["carried_mbps"] > 0.7 * bulk["offered_mbps"]
    assert min(*opera["finished"], *direct["finished"]) > 0.9
