"""The list of faults, with figures: the cost of each to a job, and the longest time without progress.

`python -m tests.bench.faults [--engine xdp|bmv2] [--json FILE]`, as root. Scenarios and assertions:
tests/privileged/fault_scenarios.py, test_faults.py. A round is 61 fragments of 360 gradients; rounds a second
are relative to the same job without faults in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.host import ROOT, facts
from tests.privileged.commands import pid_of, running
from tests.privileged.fault_scenarios import TIMES, described
from tests.privileged.inside import findings

SHAPES = ("rack", "units", "eight")
BMV2_TIMES = "9"  # the tests' rounds are over in half a second
LONG = ROOT / "tests/privileged/jobs/long.py"


def parameter_server_killed() -> dict[str, Any]:
    """Kill the server of a real job with `--sync ps`. Return the job's exit code, its message, and after how
    long it ended.
    """
    with running() as testbed:
        argv = [
            sys.executable,
            "-m",
            "testbed.run",
            "--name",
            testbed.name,
            "--place",
            "u1:3",
            "--sync",
            "ps",
        ]
        with subprocess.Popen(
            [*argv, str(LONG), "60"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as job:
            assert job.stdout is not None
            if not any("first sum" in line for line in job.stdout):
                raise SystemExit(
                    f"the job ended before its parameter server was killed: {job.communicate()[1]}"
                )
            os.kill(pid_of(testbed.pid, "workloads.parameter_server"), signal.SIGKILL)
            fault = time.monotonic()
            _, errors = job.communicate(timeout=60)
            said = re.findall(r"parameter server on .*SIGKILL.*", errors)
            return {
                "seconds": time.monotonic() - fault,
                "exit_code": job.returncode,
                "said": said[0] if said else errors[-500:],
            }


def verdict(job: dict[str, Any]) -> str:
    if job["wrong"]:
        return f"WRONG: {job['wrong']} lanes"
    return "exact" if not job["errors"] else f"told: {job['errors'][0][1]}"


def line(name: str, job: dict[str, Any], clean: dict[str, Any] | None, more: str = "") -> str:
    """Return a row of the table."""
    share = f"{job['rounds_per_s'] / clean['rounds_per_s']:>8.2f}" if clean else f"{'':>8}"
    again = 100 * job["retransmitted"] / job["pushed"]
    return (
        f"{name:<34} "
        f"{verdict(job):<12}{job['rounds_per_s']:>9.1f}{share}{job['median_ms']:>10.1f}{job['longest_ms']:>11.1f}"
        f"{again:>8.2f} %  {more}"
    )


def table(figures: dict[str, Any]) -> list[str]:
    """Return all rows."""
    rates, eight = figures["rates"], figures["eight_jobs"]
    clean = rates["none"]
    rows = [
        f"{'fault':<34} "
        f"{'sums':<12}{'rounds/s':>9}{'of none':>8}{'median ms':>10}{'longest ms':>11}{'again':>10}"
    ]
    for name, job in rates.items():
        rows.append(line(f"{name}, one unit", job, clean, _links(job["links"])))
    rows.append(
        line(
            "loss 1 %, two units, every link",
            figures["rates_across"],
            None,
            _links(figures["rates_across"]["links"]),
        )
    )
    rows += [line(f"loss 1 %, job {number} of 8", job, None) for number, job in enumerate(eight, 1)]
    took, dark = figures["reloaded"]["took_ms"], figures["reconfigured"]["dark_ms"]
    rows.append(
        line(
            "programs replaced, 5 times",
            figures["reloaded"],
            None,
            f"each took {min(took):.0f} to {max(took):.0f} ms",
        )
    )
    rows.append(
        line(
            "circuits changed in mid-round",
            figures["reconfigured"],
            None,
            f"{len(dark)} times dark {min(dark):.0f} to {max(dark):.0f} ms",
        )
    )
    cut = figures["ps_host_cut_off"]
    rows.append(
        line(
            "PS host cut off",
            cut,
            None,
            f"for {cut['cut_ms']:.0f} ms; next result {cut['recovery_ms']:.0f} ms after",
        )
    )
    rows += [
        f"worker killed: after {seconds:.1f} s {kind}: {text}"
        for seconds, kind, text in figures["killed"]["others"]
    ]
    for number, worker in enumerate(figures["restarted"]):
        error = worker["error"]
        rows.append(
            f"worker 1 started again: worker {number}: {worker['rounds']} rounds, "
            + (f"then {error[1]}: {error[2]}" if error else "all exact")
        )
    if ps := figures.get("parameter_server_killed"):
        rows.append(
            f"PS process killed: exit code {ps['exit_code']} after {ps['seconds']:.1f} s: {ps['said']}"
        )
    if mixed := figures.get("mixed"):
        rows.append(line("loss 1 %, XDP and BMv2, every link", mixed, None, _links(mixed["links"])))
    return rows


def _links(counters: dict[str, int]) -> str:
    shown = [
        f"{counters[name]} {name}"
        for name in ("lost", "duplicated", "held", "corrupted")
        if counters.get(name)
    ]
    return f"{', '.join(shown)} of {counters['seen']} frames" if shown else ""


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.faults", description=__doc__)
    parser.add_argument("--engine", choices=("xdp", "bmv2"), default="xdp", help="of every ToR")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args(argv)
    if arguments.engine == "bmv2":
        os.environ[TIMES] = BMV2_TIMES
    figures: dict[str, Any] = {}
    for shape in SHAPES:
        print(f"{shape} ...", file=sys.stderr, flush=True)
        figures |= findings(f"fault_scenarios:{shape}", described(shape, arguments.engine), 240)
    if arguments.engine == "xdp":
        figures["parameter_server_killed"] = parameter_server_killed()
    else:
        figures["mixed"] = findings("fault_scenarios:rates_across", described("units", "mixed"), 240)
    print("\n".join(table(figures)))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(
            json.dumps({"host": facts(), "engine": arguments.engine, **figures}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
