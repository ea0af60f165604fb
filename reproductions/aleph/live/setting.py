"""The ways to sum that the paper compares, the two networks in which it does, and a job's run there. Owns no
experiment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reproductions.example_jobs import JOBS
from reproductions.live import TestbedOfFigures, run_result
from testbed.client.caller import Caller
from testbed.errors import TestbedError
from testbed.messages.coding import as_json
from testbed.messages.result import RunResult
from testbed.topology import catalogue

MTU = 9000


@dataclass(frozen=True, slots=True)
class Sync:
    """A way to sum that is compared: by which system, its words here, and what stands for it in the paper."""

    sync: str
    title: str
    paper: str


PS = Sync("ps", "parameter server", "BytePS")
RING = Sync("ring", "ring", "Horovod")
ALEPH = Sync("aleph", "ALEPH, clustered by time", "ALEPH")
PRINTED = Sync("aleph-mwcha", "ALEPH, M-WCHA", "ALEPH")
WAYS = (PS, RING, ALEPH, PRINTED)
COLOURS = {PS.sync: "#D55E00", RING.sync: "#E69F00", ALEPH.sync: "#0072B2", PRINTED.sync: "#56B4E9"}
"""Of Okabe and Ito's palette."""


def example(scale: int) -> dict[str, Any]:
    """Return the network of section 3.1: workers of 10, 10, 10 and 30 Gb/s, a parameter server of 20, in a
    rack of its own behind a circuit that holds up nobody.
    """
    rates_mbps = (10_000, 10_000, 10_000, 30_000)
    return {
        "units": [
            {"kind": "gpu", "hosts": [{"rate_mbps": rate} for rate in rates_mbps]},
            {"kind": "cpu", "hosts": [{"rate_mbps": 20_000}]},
        ],
        "optical_rate_mbps": 100_000,
        "mtu": MTU,
        "scale": scale,
    }


def section_6_3(scale: int) -> dict[str, Any]:
    """Return the network of section 6.3, the catalogue's, at a scale and with large frames."""
    return {**catalogue.READY["aleph"], "mtu": MTU, "scale": scale}


def run(testbed: TestbedOfFigures, way: Sync, stem: str, folder: Path, *script: str) -> tuple[RunResult, Any]:
    """Return a job's result, and what its script wrote. The job has all workers of the first unit; `script`
    is the script's name and arguments.
    """
    result, out = folder / f"{stem}.run.json", folder / f"{stem}.json"
    place = f"u1:{testbed.topology.units[0].hosts}"
    words = [str(JOBS / script[0]), *script[1:], "--out", str(out)]
    testbed.command("run", "--place", place, "--sync", way.sync, "--json", str(result), *words)
    with Caller.of_this_process().acting():
        return run_result(result), json.loads(out.read_text())


def shown(result: RunResult) -> dict[str, Any]:
    """Return what a run's result says of what the links allow, and whether to trust it. Raises TestbedError
    where it has no bound.
    """
    if result.bound is None:
        raise TestbedError(f"job {result.id}: no sums were seen, so that it has no bound")
    return {
        "bound_ms": result.bound.bound_ms,
        "measured_ms": result.bound.measured_ms,
        "ratio": result.bound.ratio,
        "verdict": as_json(result.verdict),
    }
