"""The ways of summing that the paper compares, the two networks that it uses, and how a job is run there.
Owns no experiment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from reproductions.example_jobs import JOBS
from reproductions.live import TestbedOfFigures, run_result
from testbed.client.caller import Caller
from testbed.errors import TestbedError
from testbed.messages.coding import Number, decode
from testbed.messages.result import RunResult
from testbed.messages.verdict import JobVerdict
from testbed.topology import catalogue
from testbed.topology.yaml_text import written

MTU = 9000
Script = TypeVar("Script")
"""The type of the result that a script writes."""


@dataclass(frozen=True, slots=True)
class Sync:
    """A way of summing: the system that does it (`--sync`), its title here, and its counterpart in the
    paper.
    """

    sync: str
    title: str
    paper: str


PS = Sync("ps", "parameter server", "BytePS")
RING = Sync("ring", "ring", "Horovod")
ALEPH = Sync("aleph", "ALEPH, clustered by time", "ALEPH")
PRINTED = Sync("aleph-mwcha", "ALEPH, M-WCHA", "ALEPH")
WAYS = (PS, RING, ALEPH, PRINTED)
COLOURS = {PS.sync: "#D55E00", RING.sync: "#E69F00", ALEPH.sync: "#0072B2", PRINTED.sync: "#56B4E9"}
"""From the palette of Okabe and Ito."""


def example(scale: int) -> str:
    """Return the configuration of section 3.1's network, as YAML: workers with links of 10, 10, 10 and 30
    Gb/s, and a parameter server with 20 Gb/s in a rack of its own, behind a circuit that is never the
    bottleneck.
    """
    rates_mbps = (10_000, 10_000, 10_000, 30_000)
    return written(
        {
            "units": [
                {"kind": "gpu", "hosts": [{"rate_mbps": rate} for rate in rates_mbps]},
                {"kind": "cpu", "hosts": [{"rate_mbps": 20_000}]},
            ],
            "optical_rate_mbps": 100_000,
            "mtu": MTU,
            "scale": scale,
        }
    )


def section_6_3(scale: int) -> str:
    """Return the configuration of section 6.3's network (`aleph` of the catalogue) at a scale, with frames of
    9000 bytes, as YAML.
    """
    return written({**catalogue.READY["aleph"], "mtu": MTU, "scale": scale})


class BoundOfRun(NamedTuple):
    """The bound that links set to a run's sums (ms), the time that the sums took (ms), its ratio to the
    bound, and the run's verdict.
    """

    bound_ms: Number
    measured_ms: Number
    ratio: Number
    verdict: JobVerdict


def run(
    testbed: TestbedOfFigures, way: Sync, stem: str, folder: Path, left: type[Script], *script: str
) -> tuple[RunResult, Script]:
    """Run a job on all hosts of the first unit, and return its result and its script's result, of type
    `left`. `script` is the script's name and arguments.
    """
    result, out = folder / f"{stem}.run.json", folder / f"{stem}.json"
    place = f"u1:{testbed.topology.units[0].hosts}"
    words = [str(JOBS / script[0]), *script[1:], "--out", str(out)]
    testbed.command("run", "--place", place, "--sync", way.sync, "--json", str(result), *words)
    with Caller.of_this_process().acting():
        return run_result(result), decode(left, json.loads(out.read_text()), out.name)


def bound_of(result: RunResult) -> BoundOfRun:
    """Return a result's bound. TestbedError where it has none."""
    if result.bound is None:
        raise TestbedError(f"job {result.id}: no sums were seen, so that it has no bound")
    return BoundOfRun(result.bound.bound_ms, result.bound.measured_ms, result.bound.ratio, result.verdict)
