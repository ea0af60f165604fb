"""Run a scenario inside a testbed's namespaces and return its findings: `findings(NAME)` outside, `python -m`
this file inside.

A scenario is a function of a running `Network` in tests/privileged/scenarios.py, or in another module named
before a colon; its result must be JSON-able. A module's `before_network` is called before the network comes
up.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from testbed.emulation.namespaces import command, private_mounts
from tests.limits import SLOWER

MARK = "findings: "


def findings(scenario: str, topology: str = "default", timeout_s: float = 360) -> Any:
    """Run a scenario and return its findings. Fails the test with the scenario's output if it fails."""
    argv = [sys.executable, "-m", "tests.privileged.inside", scenario, topology]
    root = Path(__file__).resolve().parents[2]
    ended = subprocess.run(
        command(argv, "scenario"),
        cwd=root,
        capture_output=True,
        text=True,
        timeout=timeout_s * SLOWER,
        check=False,
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    said = f"{scenario}: exit code {ended.returncode}\n{ended.stdout[-3000:]}\n{ended.stderr[-5000:]}"
    assert ended.returncode == 0, said
    assert lines, said
    return json.loads(lines[-1].removeprefix(MARK))


def main(scenario: str, topology: str) -> None:
    """Bring the network up inside the namespaces, run the scenario, and print its findings."""
    private_mounts("scenario")
    from testbed.daemon.network import Network
    from testbed.topology import catalogue
    from testbed.topology.load import parse

    module, _, function = scenario.rpartition(":")
    folder = Path("/run/openvswitch/scenario")  # on a private tmpfs
    folder.mkdir()
    described = parse(json.loads(topology), "test") if topology.startswith("{") else catalogue.ready(topology)
    scenarios = importlib.import_module(f"tests.privileged.{module or 'scenarios'}")
    getattr(scenarios, "before_network", lambda: None)()
    with Network(described, folder) as network:
        outcome = getattr(scenarios, function)(network)
    print(MARK + json.dumps(outcome))


if __name__ == "__main__":
    main(*sys.argv[1:])
