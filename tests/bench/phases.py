"""What circuits that change within a job give it: a transformer with pipeline and data parallel groups.

    python -m tests.bench.phases [--dark 1,10,100] [--iterations N] [--json FILE]

Needs root. Four units of one host, with one optical port each and a core of a tenth of its rate, run
workloads/jobs/stages.py by `--sync ring` under each policy of circuits: static, on-demand, ahead, and an
oracle, which knows from the first iteration on what `ahead` learns. With two ports each nothing has to
change: there the policies show what asking costs.

The bound of an iteration is the first stage's path: five computations, two transfers of activations or their
gradients, one sum of gradients, each at its link's rate, and the part of two dark times that no computation
covers. `slowest` is the slowest iteration from the third on: a frame that is lost in the dark costs TCP's
timeout, 200 ms and more. `lost` are the frames lost in the dark, in all iterations.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.host import ROOT, facts
from tests.bench.tables import table
from tests.privileged.commands import Testbed, command, running

COMPUTE_MS, ITERATIONS, DARK_MS = 60.0, 10, "10,100"
OPTICAL_MBPS, CORE_MBPS = 200.0, 20.0  # after the scale
ACTIVATIONS_BYTES = 16 * 32 * 64 * 4
GRADIENTS_BYTES = 4 * (256 * 64 + 2 * 49_984)  # of the first stage: embedding and two layers
POLICIES = ("static", "on-demand", "ahead", "oracle")
ORACLE = '''
from workloads.circuit_policy import Expected, ring, Call

class Oracle:
    """Knows that sums of gradients follow the pipeline's last call, and the pipeline's first the sums."""

    def before(self, call):
        if call.kind != "all_reduce":
            self.pipeline = call
        return ring(call)

    def after(self, call):
        last = "recv" if self.rank(call) in (0, 3) else "send"
        other = {0: 3, 1: 2, 2: 1, 3: 0}
        if call.kind == "all_reduce":
            return Expected(ring(self.pipeline), self.pipeline.members)
        if call.kind == last:
            me = self.rank(call)
            members = tuple(sorted((me, other[me])))
            pair = tuple(f"u{rank + 1}" for rank in members)
            return Expected((pair,), members)
        return None

    def rank(self, call):
        import os
        return int(os.environ["RANK"])
'''


def bound_ms(policy: str, ports: int, dark_ms: float) -> float:
    """Return the bound of an iteration."""
    lit_ms = (2 * ACTIVATIONS_BYTES + GRADIENTS_BYTES) * 8 / OPTICAL_MBPS / 1e3
    if ports > 1:
        return 5 * COMPUTE_MS + lit_ms
    if policy == "static":
        return 5 * COMPUTE_MS + (2 * ACTIVATIONS_BYTES / OPTICAL_MBPS + GRADIENTS_BYTES / CORE_MBPS) * 8 / 1e3
    if policy == "on-demand":
        return 5 * COMPUTE_MS + lit_ms + 2 * dark_ms
    # behind the backward pass of the first stage, and behind its step and its next forward pass
    return 5 * COMPUTE_MS + lit_ms + max(0.0, dark_ms - COMPUTE_MS) + max(0.0, dark_ms - 2 * COMPUTE_MS)


def config(ports: int, dark_ms: float) -> dict[str, Any]:
    lit = [["u1o1", "u2o1"], ["u3o1", "u4o1"]]
    if ports == 2:
        lit += [["u1o2", "u4o2"], ["u2o2", "u3o2"]]
    return {
        "units": [{"hosts": 1}] * 4,
        "optical_ports": ports,
        "optical_rate_mbps": OPTICAL_MBPS * 200,
        "core": {"rate_mbps": CORE_MBPS * 200},
        "scale": 200,
        "ocs": {"switch_ms": dark_ms, "lock_ms": 0, "circuits": lit},
    }


def measured(testbed: Testbed, folder: Path, policy: str, iterations: int) -> dict[str, Any]:
    """Run the job under a policy, and return its times and what its circuits did."""
    file, oracle = folder / "result.json", folder / "oracle.py"
    oracle.write_text(ORACLE)
    reset = command("testbed.circuits", "--name", testbed.name, "reset")
    assert reset.returncode == 0, reset.stderr
    words = ["--place", "u1:1,u2:1,u3:1,u4:1", "--sync", "ring", "--timeout", "280", "--json", str(file)]
    words += ["--circuits", f"{oracle}:Oracle" if policy == "oracle" else policy]
    script = [str(ROOT / "workloads" / "jobs" / "stages.py"), "--iterations", str(iterations)]
    script += ["--compute-ms", str(COMPUTE_MS)]
    ended = command("testbed.run", "--name", testbed.name, *words, *script)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    line = next(line for line in ended.stdout.splitlines() if "iteration_ms" in line)
    printed = json.loads(line[line.index("{") :])
    result = json.loads(file.read_text())
    counts = [worker["stats"].get("circuits", {}) for worker in result["workers"]]
    return {
        "median_ms": printed["median_ms"],
        "slowest_ms": max(printed["iteration_ms"][2:]),
        "changes": len(result["ocs"]["events"]) / iterations,
        "lost": sum(each["dark"] for each in result.get("optical_losses", {}).values()),
        "core_bytes": sum(each["bytes_up"] for each in result["links"] if each["name"].endswith("c")),
        "went_on_without": sum(each.get("went_on_without", 0) for each in counts),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dark", default=DARK_MS)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    darks = [float(each) for each in arguments.dark.split(",")]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        for ports, dark_ms in [*((1, each) for each in darks), (2, darks[0])]:
            file = folder / "four.yaml"
            file.write_text(json.dumps(config(ports, dark_ms)))
            with running(str(file)) as testbed:
                for policy in POLICIES if dark_ms == darks[0] else POLICIES[1:]:
                    bound = bound_ms(policy, ports, dark_ms)
                    row = {"ports": ports, "dark_ms": dark_ms, "policy": policy, "bound_ms": bound}
                    row |= measured(testbed, folder, policy, arguments.iterations)
                    rows.append(row)
                    print(row, file=sys.stderr, flush=True)
    heads = ("ports", "dark ms", "circuits", "bound ms", "median ms", "slowest ms", "changes", "lost")
    print(
        table(
            heads,
            [
                (
                    str(row["ports"]),
                    f"{row['dark_ms']:g}",
                    row["policy"],
                    f"{row['bound_ms']:.0f}",
                    f"{row['median_ms']:.0f}",
                    f"{row['slowest_ms']:.0f}",
                    f"{row['changes']:.1f}",
                    str(row["lost"]),
                )
                for row in rows
            ],
        )
    )
    if arguments.json:
        arguments.json.write_text(json.dumps({"host": facts(), "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
