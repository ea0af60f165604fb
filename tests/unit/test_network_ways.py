"""The questions of a network to its controller while circuits change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.daemon import network
from testbed.daemon.network import Network
from testbed.topology.load import parse
from testbed.topology.units import Unit
from tests.forests import p4inc


def test_results_follow_circuits_that_are_decided_before_all_switches_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While a switch is being told, which takes seconds in large fabrics, the controller is not ready."""
    asked = []
    states = {"ready": [False, False, True], "known": [False, True]}

    def call(_path: Path, operation: str, **_: Any) -> Any:
        asked.append(operation)
        return states[operation].pop(0) if operation in states else {"1": [[2]], "2": []}

    monkeypatch.setattr(network.rpc, "call", call)
    monkeypatch.setattr(network.rpc.client, "call", call)
    fabric = Network(parse({"units": [{"hosts": 2}, {"hosts": 2}]}, "test"), tmp_path)
    forest = p4inc([(Unit(1), 1), (Unit(2), 1)], (Unit(1), 2))
    assert fabric.ways(forest) == [{1: [("u1-o2",)], 2: []}]
    assert asked == ["known", "known", "tree"]
    fabric.ask("apply")
    assert asked[3:] == ["ready", "ready", "ready", "apply"]
