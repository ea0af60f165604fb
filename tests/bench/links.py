"""The rates that shaped links hold, by kind of traffic, rate and direction; the highest rate that holds;
round trips on an idle link.

`python -m tests.bench.links [--json FILE]`, as root. Rates are from the links' own counters over one second,
under senders that offer 1.25 times the rate (TCP: as much as it can). tests/privileged/wire_traffic.py
defines the kinds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.emulation.namespaces import command
from tests.bench.host import ROOT, facts
from tests.privileged.wire_cases import KINDS, Case, Found
from tests.privileged.wire_traffic import Rig, measure

RATES_MBPS = (10.0, 100.0, 400.0, 1000.0)
BOTH_MBPS = (10.0, 100.0, 400.0)
STEP = 1.25
LOWEST_MBPS, HIGHEST_MBPS = 100.0, 12_000.0
MARK = "round trips: "
LINKS = {"unshaped": "open", "10 Mb/s": "10", "100 Mb/s": "100", "1000 Mb/s": "1000"}
COLUMNS = (
    f"{'traffic':<10} {'link':<6} {'way':<4} {'asked':>6} {'measured':>9} {'error':>8} {'queued':>7} "
    f"{'Mb/s there':>10} {'drops':>7} "
    f"{'idle, by core':>14}  verdict"
)


def row(link: Found) -> Iterable[str]:
    """Yield a line for each direction: ab is from the link's host, ba to it."""
    idle = " ".join(f"{100 * share:.0f}" for share in link.idle_shares)
    for way in link.directions:
        error = 100 * (way.measured_mbps / link.case.rate_mbps - 1)
        yield (
            f"{link.case.kind:<10} {way.link:<6} {way.direction:<4} {link.case.rate_mbps:>6g} "
            f"{way.measured_mbps:>9.2f} {error:>+7.2f}% "
            f"{100 * way.queued_share:>6.0f}% {way.queued_mbps:>10.2f} {way.drops:>7} {idle + ' %':>14}  "
            f"{link.verdict}"
        )


def shown(cases: list[Case]) -> list[Found]:
    results = measure(cases)
    for result in results:
        for line in row(result):
            print(line, flush=True)
    return results


def highest(kind: str, start_mbps: float) -> tuple[float | None, list[Found]]:
    """Search, in steps of a quarter, for the highest rate that holds in one direction. Return it (None: none
    holds) and all that was measured.
    """
    tried: list[Found] = []
    rate, best = start_mbps, None
    while LOWEST_MBPS <= rate <= HIGHEST_MBPS:
        result = measure([Case(kind, rate)])[0]
        tried.append(result)
        if result.verdict == "holds":
            best = rate
            if any(other.verdict != "holds" for other in tried):
                break
            rate = round(rate * STEP)
        elif best is not None:
            break
        else:
            rate = round(rate / STEP)
    return best, tried


def round_trips() -> dict[str, list[float]]:
    """Ping over otherwise idle links of two hosts, inside the namespaces."""
    with Rig([None, 10, 100, 1000], ["udp"]) as rig:
        return {name: rig.round_trips_ms(f"d{tag}s", f"d{tag}t") for name, tag in LINKS.items()}


def outside_round_trips() -> dict[str, list[float]]:
    argv = command([sys.executable, "-m", "tests.bench.links", "--inside"], "links")
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    if ended.returncode or not lines:
        raise SystemExit(f"links: round trips: exit code {ended.returncode}\n{ended.stderr[-2000:]}")
    trips: dict[str, list[float]] = json.loads(lines[-1].removeprefix(MARK))
    return trips


def plain(link: Found) -> dict[str, Any]:
    return asdict(link) | {"error": link.worst_error, "verdict": link.verdict}


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.links", description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--no-search", action="store_true", help="leave out the search for the highest rate")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.inside:
        print(MARK + json.dumps(round_trips()))
        return 0
    print(COLUMNS)
    results: list[Found] = []
    for kind in KINDS:
        results += shown(
            [Case(kind, rate) for rate in RATES_MBPS] + [Case(kind, rate, both=True) for rate in BOTH_MBPS]
        )
    searched: dict[str, Any] = {}
    for kind in () if arguments.no_search else KINDS:
        best, tried = highest(kind, 1000)
        searched[kind] = {"highest_mbps": best, "tried": [plain(result) for result in tried]}
        limit = "none" if best is None else f"{best:g} Mb/s"
        print(f"highest rate that holds, {kind}, one direction: {limit}; beyond it: {tried[-1]}", flush=True)
    trips = outside_round_trips()
    for name, times in trips.items():
        print(
            f"round trip, {name} link: median {1000 * statistics.median(times):.0f} us, least "
            f"{1000 * min(times):.0f}"
        )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        figures = {
            "host": facts(),
            "rates": [plain(result) for result in results],
            "highest": searched,
            "round_trips_ms": trips,
        }
        arguments.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
