"""All-reduce in the network against gloo's ring: on unshaped links, also with jumbo frames; on links with a
rate; across units; and the error of dark times.

`python -m tests.bench.goodput [--json FILE]`, as root; `--kinds inc` omits gloo. Goodput is the vector's bits
over the time of one all-reduce, from the first worker's start to the last one's end; the median of several
turns. Both kinds take turns in one run, in the same processes, over the same links at the same MTU, with
offloads off.

Bounds. A link of R bit/s carries R / framing bit/s of gradients, framing being a frame's bytes over those of
its gradients (1514 / 1440 at MTU 1500). In one unit every worker's link carries S up and S down: S * framing
/ R. Across U units the PS's link carries a partial sum of each unit for each result: U * S * framing / R.
With a switch as the top each link, and each circuit to the top's unit, carries the vector once each way, as
in one unit. With gloo's ring each worker's link carries 2 (W - 1) / W times S each way.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from testbed.emulation.namespaces import command, private_mounts
from tests.bench.host import ROOT, facts
from tests.bench.rack import BUFFER_PACKETS, KINDS, MARK, SERVER, SWITCH, Setup, Trial, measure

WORKERS = (2, 4, 8)
SHAPED_MBPS = (100.0, 200.0)
LARGE_MTU, JUMBO_MTU = 3476, 9000
UNITS = (2, 2)
DARK = "dark"


def unshaped(workers: Iterable[int]) -> list[Setup]:
    return [Setup((count,)) for count in workers]


def jumbo(workers: Iterable[int]) -> list[Setup]:
    """Return setups with each number of workers at both packet sizes, adjacent to each other."""
    return [Setup((count,), mtu=mtu) for count in workers for mtu in (1500, JUMBO_MTU)]


def shaped(workers: Iterable[int], rates_mbps: Iterable[float]) -> list[Setup]:
    return [
        Setup((count,), rate, mtu) for mtu in (1500, LARGE_MTU) for rate in rates_mbps for count in workers
    ]


def across(rates_mbps: Iterable[float]) -> list[Setup]:
    """Return setups of both trees: with a parameter server's host at the top, and of switches alone."""
    return [Setup(UNITS, rate, top=top) for rate in rates_mbps for top in (SERVER, SWITCH)]


def bound_s(setup: Setup, size_bytes: int, framing: float) -> float:
    """Return the bound in seconds by the module's formulas; 0 for an unshaped link."""
    if setup.rate_mbps is None:
        return 0.0
    return partial_sums(setup) * size_bytes * framing * 8 / 1e6 / setup.rate_mbps


def partial_sums(setup: Setup) -> int:
    """Return how many vectors the busiest link carries each way for one result."""
    return len(setup.hosts) if setup.top == SERVER else 1


def case(name: str, setup: Setup, trial: Trial) -> dict[str, Any]:
    """Measure one network, and return the findings beside their bounds."""
    by_kind = measure(setup, [trial])[0]["runs"][0]
    ring = 2 * (setup.workers - 1) / setup.workers
    row: dict[str, Any] = {
        "case": name,
        "workers": setup.workers,
        "units": len(setup.hosts),
        "top": setup.top if len(setup.hosts) > 1 else None,
        "partial_sums": partial_sums(setup),
        "rate_mbps": setup.rate_mbps,
        "mtu": setup.mtu,
        "bytes": trial.size_bytes,
        "found": by_kind,
        "speedup": by_kind["gloo"]["median_s"] / by_kind["inc"]["median_s"]
        if set(by_kind) == set(KINDS)
        else None,
        "ring": ring,
    }
    if setup.rate_mbps and "inc" in by_kind:
        median = by_kind["inc"]["median_s"]
        row["over_size"] = median / bound_s(setup, trial.size_bytes, 1.0)
        row["over_frames"] = median / bound_s(setup, trial.size_bytes, setup.framing)
    return row


HEAD = (
    f"{'workers':>14} {'Mb/s':>8} {'MTU':>5} {'inc Mb/s':>9} {'gloo Mb/s':>9} {'inc/gloo':>8} "
    f"{'2(W-1)/W':>8} {'/ (S/rate)':>10} "
    f"{'/ frames':>8} {'spread inc, gloo':>16} {'us a pair: all, workers':>23} {'busy':>5} {'again':>6}"
)


def line(row: dict[str, Any]) -> str:
    by_kind = row["found"]
    inc, gloo = by_kind.get("inc"), by_kind.get("gloo")

    def shown(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    where = f"{row['workers']}" + (f" in {row['units']}" if row["units"] > 1 else "")
    where += f", {row['top']}" if row["top"] else ""
    costs = (
        f"{inc['machine_us_per_pair']:.2f}, {inc['worker_us_per_pair']:.2f}"
        if inc and not row["rate_mbps"]
        else "-"
    )
    spreads = ", ".join(shown(of and of["spread"], ".0%") for of in (inc, gloo))
    busy = shown(inc and inc["busy"], ".0%")
    again = str(round(sum(counters["retransmitted"] for counters in inc["counters"]))) if inc else "-"
    return (
        f"{where:>14} {row['rate_mbps'] or 'unshaped':>8} {row['mtu']:>5} "
        f"{shown(inc and inc['goodput_mbps'], '.0f'):>9} "
        f"{shown(gloo and gloo['goodput_mbps'], '.0f'):>9} {shown(row['speedup'], '.2f'):>8} "
        f"{row['ring']:>8.2f} "
        f"{shown(row.get('over_size'), '.3f'):>10} {shown(row.get('over_frames'), '.3f'):>8} {spreads:>16} "
        f"{costs:>23} {busy:>5} {again:>6}"
    )


def dark_times() -> list[dict[str, Any]]:
    """Measure reconfigurations of the default testbed, inside its namespaces."""
    private_mounts("bench")
    from testbed.daemon.network import Network
    from testbed.topology import catalogue

    folder = Path("/run/openvswitch/bench")
    folder.mkdir()
    wirings = [[["u1o1", "u3o1"], ["u2o1", "u4o1"]], [["u1o1", "u2o1"], ["u3o1", "u4o1"]]]
    with Network(catalogue.ready("default"), folder) as network:
        return [network.ask("apply", circuits=wirings[turn % 2]) for turn in range(40)]


def outside_dark_times() -> list[dict[str, Any]]:
    argv = command([sys.executable, "-m", "tests.bench.goodput", "--inside", DARK], "bench")
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    lines = [text for text in ended.stdout.splitlines() if text.startswith(MARK)]
    if ended.returncode or not lines:
        raise SystemExit(f"dark times: exit code {ended.returncode}\n{ended.stderr[-2000:]}")
    events: list[dict[str, Any]] = json.loads(lines[-1].removeprefix(MARK))
    return events


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.goodput", description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--mbytes", type=float, default=16.0, help="size of the vector (%(default)s)")
    parser.add_argument("--turns", type=int, default=2, help="all-reduces of a kind in a row (%(default)s)")
    parser.add_argument("--rounds", type=int, default=4, help="how often the kinds alternate (%(default)s)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="what to measure (%(default)s)")
    parser.add_argument(
        "--workers", type=numbers, default=WORKERS, help="numbers of workers in one unit (2,4,8)"
    )
    parser.add_argument(
        "--rates", type=numbers, default=SHAPED_MBPS, help="of shaped links, in Mb/s (100,200)"
    )
    parser.add_argument(
        "--cases", default="unshaped,jumbo,shaped,across,dark", help="which of these (%(default)s)"
    )
    parser.add_argument("--inside", choices=(DARK,), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.inside:
        print(MARK + json.dumps(dark_times()))
        return 0
    size = int(arguments.mbytes * 1e6) // 4 * 4
    kinds, cases = tuple(arguments.kinds.split(",")), arguments.cases.split(",")
    quick = Trial("all-reduce", kinds, size, arguments.turns, arguments.rounds)
    slow = Trial("all-reduce", kinds, size, 1, min(arguments.rounds, 3))
    by_case = {
        "unshaped": (unshaped(arguments.workers), quick),
        "jumbo": (jumbo(arguments.workers), quick),
        "shaped": (shaped(arguments.workers, arguments.rates), slow),
        "across": (across(arguments.rates), slow),
    }
    if unknown := set(cases) - by_case.keys() - {DARK}:
        parser.error(f"--cases: no {', '.join(sorted(unknown))}; known: {', '.join([*by_case, DARK])}")
    plan = [
        (name, setup, trial) for name, (setups, trial) in by_case.items() if name in cases for setup in setups
    ]
    rows = []
    if plan:
        print(HEAD, flush=True)
    for name, setup, trial in plan:
        rows.append(case(name, setup, trial))
        print(line(rows[-1]), flush=True)
    events = outside_dark_times() if DARK in cases else []
    errors = sorted(event["measured_ms"] - event["asked_ms"] for event in events)
    if errors:
        print(
            f"dark time: {len(errors)} reconfigurations, measured - asked: median "
            f"{1000 * statistics.median(errors):.0f} us, "
            f"largest {1000 * errors[-1]:.0f} us"
        )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(
            json.dumps(
                {
                    "host": facts(),
                    "buffer_packets": BUFFER_PACKETS,
                    "goodput": rows,
                    "dark_time_events": events,
                },
                indent=1,
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
