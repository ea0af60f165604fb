"""`testbed reproduce luwu fig2 --quick` as a user types it: LuWu and FSDP learn the same, a worker's link
carries no more than S each way, and nothing is left.
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


def test_an_iteration_by_phase(tmp_path: Path) -> None:
    ended = command("testbed.reproduce", "luwu", "fig2", "--quick", "--out", str(tmp_path), timeout_s=280)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads((tmp_path / "fig2.json").read_text())
    ours, sharded = report["rows"]
    assert [row["way"] for row in (ours, sharded)] == ["luwu", "fsdp"]
    assert ours["losses"] == pytest.approx(sharded["losses"], rel=0.02)
    claims = {claim["text"]: claim for claim in report["claims"]}
    for way in ("down", "up"):
        claim = claims[f"LuWu's bytes over S, worker, {way}"]
        assert float(claim["ours"]) <= 1.02, claim
        assert claim["verdict"] == ("agrees" if ours["verdict"]["trustworthy"] else "not judged"), claim
    for row in (ours, sharded):
        assert 0 < row["serialised_s"] <= row["communicated_s"] < row["iteration_s"]
    assert (tmp_path / "fig2.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "fig2.runs").glob("*.states")) == []
