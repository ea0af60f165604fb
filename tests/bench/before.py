"""The cost of a change: the same measurements in this checkout and in a checkout of another commit, in turn.

`python -m tests.bench.before CHECKOUT [--pairs N] [--rows loss,unshaped,...] [--json FILE] [--into
docs/studies/performance.md]`, as root; CHECKOUT is a working tree of the other commit in which `make setup`
was run. The order of turns is there, here, here, there, so that a steady drift affects both alike. A ratio is
of two adjacent turns; the median of several counts, and their range shows how reliable it is.

Measurements use what both commits have: tests/privileged/fault_scenarios.py and the benches goodput,
aggregators, engines and bringup of the measured checkout. `torch` runs this checkout's
tests/bench/torch_worker.py in both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.emulation.namespaces import command
from tests.bench.host import ROOT, facts
from tests.bench.tables import publish, table
from tests.bench.torch_worker import MARK as TIMES_MARK
from tests.privileged.fault_scenarios import TIMES
from tests.privileged.inside import MARK

LIMIT_S = 300
ROUNDS_TIMES = "2"
UNITS = 64
_LOSS = """
from tests.privileged import fault_scenarios, inside
fault_scenarios.FAULTS = {name: fault_scenarios.FAULTS[name] for name in ("none", "loss 1 %", "loss 10 %")}
inside.main("fault_scenarios:rates", fault_scenarios.described("rack", "xdp"))
"""
_WHOLE = f"""
import json, time
from pathlib import Path
from testbed.emulation.namespaces import private_mounts
private_mounts("scenario")
try:
    from testbed.daemon.network import Network
except ImportError:  # a commit before the daemon had a package of its own
    from testbed.network import Network
from tests.bench.bringup import topology_of
folder = Path("/run/openvswitch/scenario")
folder.mkdir()
begun = time.monotonic()
with Network(topology_of({UNITS}), folder):
    print({MARK!r} + json.dumps(time.monotonic() - begun), flush=True)
"""
_TWO_HOSTS = "units: [{hosts: 2}]\nhost_rate_mbps: unshaped\n"
_PUSHES = f"""
import json
from tests.bench.rack import Setup, Trial, measure
figures = {{}}
for layout, turns in (("wide", 6), ("registers", 2)):
    setup = Setup((2,), engine="bmv2", layout=layout)
    run = measure(setup, [Trial(layout, ("inc",), 4_000_000, turns, 1)])[0]["runs"][0]["inc"]
    figures[layout] = run["switches_cpu_s"] * 1e6 / run["pairs"]
print({MARK!r} + json.dumps(figures))
"""
Figures = dict[str, float]


def _said(checkout: Path, argv: Sequence[str], **environment: str) -> str:
    """Run a command in that checkout, and return its output. SystemExit if it fails."""
    ended = subprocess.run(
        argv,
        cwd=checkout,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"{checkout}: exit code {ended.returncode}\n{(ended.stdout + ended.stderr)[-3000:]}")
    return ended.stdout


def _python(checkout: Path) -> str:
    return str(checkout / ".venv/bin/python")


def _found(checkout: Path, script: str, **environment: str) -> Any:
    """Run a script of that checkout in namespaces of its own, and return its findings."""
    argv = command([_python(checkout), "-c", script], "scenario")
    lines = _said(checkout, argv, **environment).splitlines()
    return json.loads(next(line for line in lines if line.startswith(MARK)).removeprefix(MARK))


def loss(checkout: Path) -> Figures:
    """Measure rounds a second of three workers, without loss and with frames lost in both directions."""
    jobs = _found(checkout, _LOSS, **{TIMES: ROUNDS_TIMES})
    assert not any(job["wrong"] or job["errors"] for job in jobs.values()), jobs
    return {f"{name}, 3 workers": job["rounds_per_s"] for name, job in jobs.items()}


def _bench(checkout: Path, module: str, *options: str) -> Any:
    """Run one of that checkout's benches, and return its figures."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        _said(checkout, [_python(checkout), "-m", f"tests.bench.{module}", *options, "--json", str(file)])
        return json.loads(file.read_text())


def _without_a_rate(checkout: Path) -> Any:
    options = ("--cases", "unshaped", "--kinds", "inc", "--rounds", "4")
    return _bench(checkout, "goodput", *options)["goodput"]


def spent(checkout: Path) -> Figures:
    """Measure the workers' CPU time for a push and its result on links without a rate, by number of workers.
    It is less noisy than goodput.
    """
    return {
        f"a push and its result, {row['workers']} workers": row["found"]["inc"]["worker_us_per_pair"]
        for row in _without_a_rate(checkout)
    }


def unshaped(checkout: Path) -> Figures:
    """Measure the goodput of an all-reduce on links without a rate, by number of workers, and their mean."""
    rows = _without_a_rate(checkout)
    goodputs = {f"no rate, {row['workers']} workers": row["found"]["inc"]["goodput_mbps"] for row in rows}
    return {**goodputs, "no rate, geometric mean": statistics.geometric_mean(goodputs.values())}


def aggregators(checkout: Path) -> Figures:
    """Measure the gradients that XDP, and a summing process, receive per CPU second of theirs."""
    figures = _bench(checkout, "aggregators", "--rounds", "1")
    return {
        f"aggregator {kind}": statistics.median(run["gbps_per_core"] for run in figures["cases"][kind])
        for kind in ("xdp", "tcp")
    }


def engines(checkout: Path) -> Figures:
    """Measure the goodput of two workers by each way of summing; needs BMv2."""
    rows = _bench(checkout, "engines", "--mtu", "1500", "--rounds", "1", "--seconds", "1")["rows"]
    return {f"two workers, {row['name']}": row["goodput_mbps"] for row in rows if "skipped" not in row}


def pushes(checkout: Path) -> Figures:
    """Measure simple_switch's CPU time for a push of two workers, by layout. It is less noisy than goodput;
    needs BMv2.
    """
    said = _said(checkout, [_python(checkout), "-c", _PUSHES])
    figures = json.loads(next(line for line in said.splitlines() if line.startswith(MARK)).removeprefix(MARK))
    return {f"a push, bmv2-{layout}": cpu_us for layout, cpu_us in figures.items()}


def bringup(checkout: Path) -> Figures:
    """Measure the seconds until 64 units of four hosts are up: devices, links and switches alone, and the
    whole testbed with programs and controller.
    """
    script = [_python(checkout), "-m", "tests.bench.bringup", "--inside", "fabric", "--units", str(UNITS)]
    fabric = json.loads(_said(checkout, command(script, "bench")).splitlines()[-1])
    return {
        f"{UNITS} units up, the fabric": fabric["up_s"],
        f"{UNITS} units down, the fabric": fabric["down_s"],
        f"{UNITS} units up, the testbed": _found(checkout, _WHOLE),
    }


def torch(checkout: Path) -> Figures:
    """Measure the milliseconds that two workers of a job wait for sums and for a DDP iteration, on links
    without a rate.
    """
    with tempfile.TemporaryDirectory() as folder:
        config, name = Path(folder) / "two.yaml", f"before-{os.getpid()}"
        config.write_text(_TWO_HOSTS)
        python = _python(checkout)
        _said(checkout, [python, "-m", "testbed.up", "--config", str(config), "--name", name, "--detach"])
        try:
            worker = str(ROOT / "tests/bench/torch_worker.py")
            said = _said(checkout, [python, "-m", "testbed.run", "--name", name, "--place", "u1:2", worker])
        finally:
            _said(checkout, [python, "-m", "testbed.down", "--name", name])
    figures: Figures = json.loads(said.partition(TIMES_MARK)[2].partition("\n")[0])
    return figures


ROWS: dict[str, tuple[Callable[[Path], Figures], str, int]] = {
    "loss": (loss, "rounds/s", 1),
    "unshaped": (unshaped, "Mb/s", 0),
    "spent": (spent, "us of CPU", 2),
    "aggregators": (aggregators, "Gb/s per core", 2),
    "engines": (engines, "Mb/s", 1),
    "pushes": (pushes, "us of CPU", 1),
    "bringup": (bringup, "s", 2),
    "torch": (torch, "ms", 3),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """One quantity by turn; values at the same index of `before` and `now` were measured in adjacent
    turns.
    """

    what: str
    unit: str
    digits: int
    before: list[float]
    now: list[float]

    @property
    def ratios(self) -> list[float]:
        """Return now over before, for each pair of adjacent turns."""
        return [now / before for before, now in zip(self.before, self.now, strict=True)]


def order(pairs: int) -> list[bool]:
    """Return for each turn whether it is this checkout's: there, here, here, there, and so on."""
    return [(turn % 4) in (1, 2) for turn in range(2 * pairs)]


def compare(row: str, checkout: Path, pairs: int) -> list[Compared]:
    """Measure one row of ROWS in both checkouts."""
    measure, unit, digits = ROWS[row]
    turns: dict[bool, list[Figures]] = {False: [], True: []}
    for is_now in order(pairs):
        figures = measure(ROOT if is_now else checkout)
        turns[is_now].append(figures)
        said = ", ".join(f"{name} {value:.{digits}f}" for name, value in figures.items())
        print(f"{'now' if is_now else 'before'}: {said}", file=sys.stderr, flush=True)
    names = turns[True][0]
    return [
        Compared(
            name,
            unit,
            digits,
            [turn[name] for turn in turns[False]],
            [turn[name] for turn in turns[True]],
        )
        for name in names
    ]


def summary(figures: dict[str, Any]) -> str:
    """Return the table, and what was compared."""

    def spread(values: Sequence[float], digits: int) -> str:
        return (
            f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
        )

    rows = []
    for compared in figures["compared"]:
        each = Compared(**compared)
        rows.append(
            [
                f"{each.what}, {each.unit}",
                spread(each.before, each.digits),
                spread(each.now, each.digits),
                spread(each.ratios, 3),
                f"{len(each.ratios)}",
            ]
        )
    text = table(["", "before", "now", "now / before", "pairs"], rows)
    return (
        f"{text}\n\nA cell has the median of the runs, and in brackets the least and the largest value. "
        f'"Before" is commit {figures["before"][:12]}.'
    )


def commit_of(checkout: Path) -> str:
    """Return the commit that is checked out there."""
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True
    ).stdout.strip()


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.before", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a working tree of the other commit, set up")
    parser.add_argument("--pairs", type=int, default=4, help="turns of each (%(default)s)")
    parser.add_argument("--rows", default=",".join(ROWS), help="what to measure (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the figures")
    parser.add_argument(
        "--from",
        dest="files",
        type=Path,
        action="append",
        metavar="FILE",
        help="figures of runs before, put together; none is made",
    )
    parser.add_argument("--into", type=Path, metavar="FILE", help="put the table into this document, too")
    parser.add_argument("--table", default="before", metavar="NAME", help="its name there (%(default)s)")
    arguments = parser.parse_args(argv)
    checkout = arguments.checkout.resolve()
    figures: dict[str, Any] = {"host": facts(), "before": commit_of(checkout), "compared": []}
    if arguments.files:
        runs = [json.loads(file.read_text()) for file in arguments.files]
        figures = {**runs[-1], "compared": [row for run in runs for row in run["compared"]]}
    for row in arguments.rows.split(",") if not arguments.files else ():
        figures["compared"] += [asdict(each) for each in compare(row, checkout, arguments.pairs)]
    publish(arguments.table, summary(figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
