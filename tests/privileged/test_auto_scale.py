"""`scale: auto`: a testbed comes up at the scale that was measured, and a second time nothing is measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from testbed import up
from testbed.client.caller import Caller
from testbed.client.runtime import Runtime
from testbed.host_checks import frame_costs
from testbed.host_checks.frame_costs import NAME, frame_cost
from testbed.host_checks.headers import cache_folder
from testbed.topology.load import AtUp
from testbed.topology.values import MAX_MBPS, MIN_MBPS
from tests.privileged.commands import command, fresh_name

pytestmark = [pytest.mark.needs("xdp", "ovs"), pytest.mark.usefixtures("nothing_left")]

SAID = re.compile(
    r"^testbed up: scale (\d+): \S+ cores? keep up with [\d,]+ frames a second, all hosts together "
    r"\(measured (now|on \d{4}-\d\d-\d\d), \S+ us each(; while the machine was busy: .+)?\)$",
    re.MULTILINE,
)


def test_a_testbed_comes_up_at_the_measured_scale_and_the_next_measures_nothing(tmp_path: Path) -> None:
    file = cache_folder() / NAME.format(mtu=1500)
    before = file.read_bytes() if file.exists() else None
    file.unlink(missing_ok=True)
    config = tmp_path / "mine.yaml"
    config.write_text("units: [{hosts: 2}]\nhost_rate_mbps: 40000\nscale: auto\n")
    try:
        scales = []
        for when in ("now", "on "):
            name = fresh_name()
            done = command("testbed.up", "--config", str(config), "--name", name, "--detach")
            try:
                assert done.returncode == 0, done.stderr
                said = SAID.search(done.stderr)
                assert said, done.stderr
                assert said[2].startswith(when)
                scales.append(int(said[1]))
                state = json.loads(command("testbed.status", "--name", name, "--json").stdout)
                assert state["scale"] == scales[-1]
                assert {link["rate_mbps"] for link in state["links"]} == {40_000 / scales[-1]}
                kept = json.loads(Runtime.of(name).topology.read_text())
                assert kept["scale"] == scales[-1], "a record keeps this"
            finally:
                command("testbed.down", "--name", name)
        assert scales[0] == scales[1]
        assert MIN_MBPS < 40_000 / scales[0] < MAX_MBPS
    finally:
        if before is not None:
            file.write_bytes(before)


def test_each_kind_of_xdp_is_measured(tmp_path: Path) -> None:
    for mtu in (3476, 9000):
        cost, is_new = frame_cost(mtu, folder=tmp_path)
        assert is_new
        assert 0.1 < cost.best_us < 5000
    assert frame_cost(9000, folder=tmp_path) == (cost, False)


def test_an_option_replaces_the_scale_of_a_ready_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = Caller.of_this_process()
    assert up.topology_of_config("default", caller, up.asked_at_up("300")).scale == 300
    cost = frame_costs.FrameCost(4.0, 4.0, 0.0)
    monkeypatch.setattr(frame_costs, "frame_cost", lambda _: (cost, False))
    monkeypatch.setattr(frame_costs, "cores_allowed", lambda: 2.0)
    assert up.topology_of_config("rack", caller, AtUp("auto")).scale == 720
