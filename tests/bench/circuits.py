"""The gain of a job from two parallel circuits between two units instead of one.

    python -m tests.bench.circuits [--rate MBPS] [--turns N] [--pairs N] [--json FILE]

Needs root. A job of each kind all-reduces over one circuit and over two, in turn, in one testbed for each
engine: gradients that switches sum by XDP and then a server's host; gradients that no switch sums; a
parameter server's, over TCP with two connections for each worker. Links of hosts are four times as fast as a
circuit. Goodput counts the bytes of a worker's vectors; the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from testbed.emulation.namespaces import command, private_mounts
from testbed.topology import addresses
from testbed.topology.model import IncSpec, LinkSpec, Topology, UnitSpec
from testbed.topology.optical import OcsSpec
from testbed.topology.units import Unit
from testbed.wire.settings import written
from tests.bench.host import ROOT, facts
from tests.bench.tables import table

RATE_MBPS, TURNS, PAIRS, VECTOR_BYTES = 25.0, 3, 3, 2 << 20
LIMIT_S, PORT, JOB = 300.0, 5998, "bench"
ONE = [["u1o1", "u2o1"]]
TWO = [*ONE, ["u1o2", "u2o2"]]
# kind -> the units' engine, the hosts of the workers, and of the server
KINDS = {
    "gradients, summed by XDP": ("xdp", [(1, 1), (2, 1)], (2, 2)),
    "gradients, engine none": ("none", [(1, 1), (2, 1)], (2, 2)),
    "a parameter server's": ("none", [(1, 1), (1, 2)], (2, 1)),
}


def topology(engine: str, rate_mbps: float) -> Topology:
    """Return two units of two hosts, joined by up to two circuits."""
    units = tuple(UnitSpec(Unit(index), "gpu", 2, 2, engine=engine) for index in (1, 2))
    fast, circuit = LinkSpec(4 * rate_mbps), LinkSpec(rate_mbps)
    return Topology("circuits", units, fast, circuit, OcsSpec(circuits=tuple(map(tuple, ONE))), IncSpec())


def goodput_mbps(reports: list[dict[str, Any]], kind: str) -> float:
    """Return the median rate of a worker's vectors, each timed from the first worker's start to the last
    one's end.
    """
    starts, ends = ([report[kind][name] for report in reports] for name in ("starts", "ends"))
    times = [
        max(last) - min(first)
        for first, last in zip(zip(*starts, strict=True), zip(*ends, strict=True), strict=True)
    ]
    return 8 * VECTOR_BYTES / statistics.median(times) / 1e6


@contextmanager
def serving(network: Any, host: tuple[int, int], workers: int) -> Iterator[tuple[str, int]]:
    """Run a parameter server at a host during the block, and yield its address."""
    address = addresses.host_ip(*host), PORT
    words = ("--bind", address[0], "--port", str(PORT), "--workers", str(workers), "--job", JOB)
    process = network.machine.fabric.popen_in(
        addresses.host_name(*host),
        [sys.executable, "-m", "workloads.parameter_server", *words],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    try:
        yield address
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def measured(network: Any, number: int, name: str, turns: int) -> float:
    """Return a job's goodput over the present circuits."""
    from tests.forests import p4inc

    _, workers, server = KINDS[name]
    kind = "ps" if name == "a parameter server's" else "inc"
    forest = p4inc(workers, server)
    admission = network.places.admit(number, number, forest, network.ways(forest))
    with ExitStack() as stack:
        stack.callback(network.places.release, number)
        settings = {"kinds": [kind], "bytes": VECTOR_BYTES, "turns": turns, "rounds": 1, "library": ""}
        settings |= {"is_parallel": admission.is_parallel, "server_job": JOB, "switches": []}
        if kind == "ps":
            settings["server"] = stack.enter_context(serving(network, server, len(workers)))
        processes = [
            network.machine.fabric.popen_in(
                addresses.host_name(*host),
                [
                    sys.executable,
                    "-m",
                    "tests.bench.allreduce_worker",
                    written(admission.worker_env(worker)),
                    json.dumps(settings),
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                pass_fds=admission.worker_fds(worker),
            )
            for worker, host in enumerate(workers)
        ]
        said = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
        assert not any(process.returncode for process in processes), said
        return goodput_mbps([json.loads(line) for line in said], kind)


def inside(engine: str, rate_mbps: float, turns: int, pairs: int) -> None:
    """Print the goodput of each kind of an engine, by the number of circuits."""
    private_mounts("bench")
    from testbed.daemon.network import Network

    folder = Path("/run/openvswitch/bench")
    folder.mkdir()
    names = [name for name, (its, *_) in KINDS.items() if its == engine]
    figures: dict[str, dict[str, list[float]]] = {name: {"1": [], "2": []} for name in names}
    number = 0
    with Network(topology(engine, rate_mbps), folder) as network:
        for _ in range(pairs):
            for circuits in (ONE, TWO):
                network.ask("apply", circuits=circuits)
                for name in names:
                    number += 1
                    rate = measured(network, number, name, turns)
                    figures[name][str(len(circuits))].append(rate)
                    print(f"{name}, {len(circuits)}: {rate:.1f} Mb/s", file=sys.stderr, flush=True)
    print(json.dumps(figures))


def main() -> None:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=float, default=RATE_MBPS, help="of a circuit, in Mb/s")
    parser.add_argument("--turns", type=int, default=TURNS, help="vectors of a job that are timed")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="jobs over one circuit and over two, each")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside(arguments.inside, arguments.rate, arguments.turns, arguments.pairs)
        return
    figures: dict[str, dict[str, list[float]]] = {}
    words = (
        "--rate",
        f"{arguments.rate:g}",
        "--turns",
        f"{arguments.turns}",
        "--pairs",
        f"{arguments.pairs}",
    )
    for engine in dict.fromkeys(engine for engine, *_ in KINDS.values()):
        with tempfile.TemporaryFile("w+") as log:
            argv = [sys.executable, "-m", "tests.bench.circuits", "--inside", engine, *words]
            done = subprocess.run(
                command(argv, "bench"), stdout=subprocess.PIPE, stderr=log, text=True, check=False
            )
            if done.returncode != 0:
                log.seek(0)
                raise SystemExit(f"circuits: exit status {done.returncode}: {log.read().strip()[-2000:]}")
        figures |= json.loads(done.stdout.splitlines()[-1])
    rows = []
    for name, rates in figures.items():
        single, double = (statistics.median(rates[circuits]) for circuits in ("1", "2"))
        spread = ", ".join(f"{b / a:.2f}" for a, b in zip(rates["1"], rates["2"], strict=True))
        rows.append([name, f"{single:.1f}", f"{double:.1f}", f"{double / single:.3f}", spread])
    print(table(["a job's", "one circuit, Mb/s", "two", "ratio", "by pair"], rows))
    if arguments.json:
        content = {"host": facts(), "rate_mbps": arguments.rate, "figures": figures}
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
