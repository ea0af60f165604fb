"""Packets on the XDP programs, in namespaces of their own: `findings(NAME)` outside, `python -m` this
file inside.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from testbed.emulation.namespaces import command, private_mounts
from testbed.plugins.registry import sources
from tests.limits import SLOWER

MARK = "findings: "


def findings(name: str, *arguments: str, timeout_s: float = 480) -> Any:
    """Return the result of `tests.privileged.NAME.inside(programs, ports, *arguments)`. Fails the test with
    its output if it fails.
    """
    return outcome("tests.privileged.packets", name, *arguments, timeout_s=timeout_s)


def outcome(module: str, *arguments: str, timeout_s: float) -> Any:
    """Run `python -m MODULE ARGUMENTS` in namespaces of its own and return its findings. Fails the test with
    its output if it fails.
    """
    argv = [sys.executable, "-m", module, *arguments]
    root = Path(__file__).resolve().parents[2]
    ended = subprocess.run(
        command(argv, "packets"),
        cwd=root,
        capture_output=True,
        text=True,
        timeout=timeout_s * SLOWER,
        check=False,
    )
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    said = f"{module}: exit code {ended.returncode}\n{ended.stdout[-3000:]}\n{ended.stderr[-5000:]}"
    assert ended.returncode == 0, said
    assert lines, said
    return json.loads(lines[-1].removeprefix(MARK))


def main(name: str, *arguments: str) -> None:
    """Make devices and load the observed programs inside the namespaces, then run."""
    private_mounts("packets")
    from testbed.dataplanes.xdp.program import Programs
    from tests.privileged.observed import text
    from tests.privileged.xdp_aggregator import devices

    with devices() as ports, Programs(sources("xdp"), text=text()) as programs:
        result = importlib.import_module(f"tests.privileged.{name}").inside(programs, ports, *arguments)
    print(MARK + json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
