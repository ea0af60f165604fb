"""Jobs of 16 workers in two pods with unequal hosts, clustered by ALEPH's algorithm and by ours: the time of
a sum as predicted by the model of clusterings, as links allow, and as measured.

    python -m tests.bench.clustered [--scale N] [--turns N] [--gigabits G] [--json FILE]

Needs root; brings a testbed up and ends it. Every ToR has hosts of 30, 20, 10 and 10 Gb/s; the parameter
server has 40. Pods and circuits are never the bottleneck. A sum is of 4.2 Gb, as in the paper's example;
links and volume are divided by the scale. The model (testbed/systems/aleph/model.py) computes vectors over
links' rates; the prediction multiplies that by the ratio of a vector's frames to its bytes, which accounts
for headers and votes. The time that links allow (docs/verdict.md) also uses the time at which each worker
asked.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from reproductions import live
from testbed.aggregation.site import declared_site
from testbed.systems.aleph import clusterings
from testbed.systems.aleph.site import instance_at
from testbed.telemetry.demand import frame_bytes, pushed_frames
from testbed.telemetry.timelines import Collective
from testbed.topology.yaml_text import written
from testbed.wire.spec import lanes_for
from tests.bench.host import ROOT, facts
from tests.bench.tables import table

GIGABITS = 4.2
RATES_MBPS = (30_000, 20_000, 10_000, 10_000)
SCALE, TURNS = 400, 8
MTU = 3476  # the largest for XDP in native mode: at this scale a larger frame takes long on the link
WAYS = {"aleph": "fastest", "aleph-mwcha": "mwcha"}
PLACE = "u1:8,u2:8"


def configuration(scale: int) -> dict[str, Any]:
    """Return the catalogue's pods with eight unequal hosts each, and one server."""
    pod = {"kind": "gpu", "racks": 2, "hosts": [{"rate_mbps": rate} for rate in RATES_MBPS]}
    return {
        "units": [pod, pod, {"kind": "cpu", "hosts": [{"rate_mbps": 40_000}]}],
        "pod_rate_mbps": 160_000,
        "optical_rate_mbps": 160_000,
        "optical_ports": 2,
        "mtu": MTU,
        "scale": scale,
    }


def measured(
    testbed: live.TestbedOfFigures, sync: str, asked: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Run a job by a system, and return its figures beside the model's."""
    result, out = folder / f"{sync}.run.json", folder / f"{sync}.json"
    values = int(asked.gigabits * 1e9 / 32 / asked.scale)
    script = [str(ROOT / "workloads" / "jobs" / "vectors.py"), "--values", str(values)]
    script += ["--turns", str(asked.turns + 2), "--warm-up", "2", "--out", str(out)]
    testbed.command("run", "--place", PLACE, "--sync", sync, "--json", str(result), *script)
    run, summed = json.loads(result.read_text()), json.loads(out.read_text())
    *workers, server = testbed.topology.hosts
    instance = instance_at(declared_site(testbed.topology), workers, [server])
    lanes = lanes_for(MTU)
    frames = pushed_frames(Collective(4 * values, True, 1), len(workers), lanes) * frame_bytes(lanes)
    clustering = clusterings.cluster(WAYS[sync], instance)
    return {
        "sync": sync,
        "contributors": len(clustering.contributors),
        "predicted_ms": clustering.time(instance) * asked.gigabits * 1e6 * frames / (4 * values),
        "bound_ms": run["bound"]["bound_ms"],
        "measured_ms": summed["sum_ms"],
        "error": summed["error"],
        "verdict": run["verdict"],
    }


def shown(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table of Markdown."""
    return table(
        ["", "contributors", "predicted, ms", "links allow, ms", "measured, ms", "apart", "trustworthy"],
        [
            [
                row["sync"],
                str(row["contributors"]),
                f"{row['predicted_ms']:.0f}",
                f"{row['bound_ms']:.0f}",
                f"{row['measured_ms']:.0f}",
                f"{100 * (row['measured_ms'] / row['predicted_ms'] - 1):+.1f} %",
                "yes" if row["verdict"]["trustworthy"] else "no",
            ]
            for row in rows
        ],
    )


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.clustered", description=__doc__)
    parser.add_argument(
        "--scale", type=int, default=SCALE, help="links and volume are divided by it (%(default)s)"
    )
    parser.add_argument("--turns", type=int, default=TURNS, help="sums that count (%(default)s)")
    parser.add_argument("--gigabits", type=float, default=GIGABITS, help="of a sum (%(default)s)")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with live.testbed("clustered", written(configuration(arguments.scale)), folder) as testbed:
            rows = [measured(testbed, sync, arguments, folder) for sync in WAYS]
    print(shown(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps({"host": facts(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
