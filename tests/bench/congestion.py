"""Congestion: retransmissions, times of sums, and shares of a link between jobs, by depth of the links'
queues. No fault is set.

`python -m tests.bench.congestion [--json FILE] [--cases NAMES] [--buffers N,N] [--seconds S]`, as root. Each
case has a network of its own for each depth; the others' times are compared with the deepest's, in the same
run. Workers sum vector after vector; counting begins after a second. "again" is the retransmitted share of
all workers' packets. Shares of a link are compared by Jain's index (R. Jain et al., DEC TR-301, 1984), over
the time in which all jobs ran.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.emulation.namespaces import command, private_mounts
from testbed.wire.settings import written
from testbed.wire.spec import lanes_for
from tests.bench.congestion_worker import UNDER_WAY
from tests.bench.host import ROOT, facts

MARK = "result: "
DEEP = 4096
BUFFERS = (16, 32, 64, 256, DEEP)
WARM_S = 1.0
VECTOR_BYTES = 250 * 1440
_LIMIT_S = 120
Host = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Job:
    """The hosts of a job's workers, and the host that sums its units' partial sums."""

    members: tuple[Host, ...]
    ps: Host | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A network and its jobs. Rates in Mb/s; `streams` is how many frames the busiest link carries for a
    fragment of each job.
    """

    name: str
    hosts: tuple[int, ...]
    jobs: tuple[Job, ...]
    ports: tuple[int, ...] = ()
    rate: float = 200.0
    optical_rate: float = 200.0
    streams: int = 1
    engine: str = "xdp"


def rack(workers: int) -> Case:
    """Return a case of one job in one unit."""
    return Case(
        f"{workers} workers in a unit", (workers,), (Job(tuple((1, host) for host in range(1, workers + 1))),)
    )


def star(units: int) -> Case:
    """Return a case of one job with a worker in each of `units` units, each with a circuit to the PS's
    unit.
    """
    job = Job(tuple((unit, 1) for unit in range(1, units + 1)), (units + 1, 1))
    return Case(f"{units} units and a PS", (1,) * (units + 1), (job,), (1,) * units + (units,), streams=units)


def chain(units: int) -> Case:
    """Return `star` with two optical ports for each unit and circuits in a ring, as by default: the traffic
    of some units crosses others.
    """
    job = Job(tuple((unit, 1) for unit in range(1, units + 1)), (units + 1, 1))
    return Case(
        f"{units} units and a PS in a ring", (1,) * (units + 1), (job,), (2,) * (units + 1), streams=units
    )


def shared(jobs: int) -> Case:
    """Return a case of jobs that share two optical links, which are slower than the hosts' links."""
    across = tuple(Job(((1, job), (2, job)), (3, job)) for job in range(1, jobs + 1))
    return Case(
        f"{jobs} jobs on a link", (jobs, jobs, jobs), across, (1, 1, 2), rate=400.0, optical_rate=100.0
    )


CASES = {
    "rack4": rack(4),
    "rack8": rack(8),
    "star2": star(2),
    "star3": star(3),
    "star8": star(8),
    "chain3": chain(3),
    "chain8": chain(8),
    "shared2": shared(2),
    "shared4": shared(4),
}


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index: 1 if all shares are equal, 1 / n if one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def described(case: Case, buffer_packets: int) -> dict[str, Any]:
    """Return the configuration of a case's testbed."""
    ports = case.ports or (0,) * len(case.hosts)
    return {
        "units": [
            {"hosts": hosts, "optical_ports": count, "engine": case.engine}
            for hosts, count in zip(case.hosts, ports, strict=True)
        ],
        "host_rate_mbps": case.rate,
        "optical_rate_mbps": case.optical_rate,
        "scale": 1,
        "buffer_packets": buffer_packets,
        "inc": {"jobs": max(4, len(case.jobs))},
    }


def measure(case: Case, buffer_packets: int, seconds: float, library: str | None = None) -> dict[str, Any]:
    """Bring the network up and run the case once, from outside the namespaces. Return `findings`."""
    words = json.dumps(
        {"case": asdict(case), "buffer": buffer_packets, "seconds": seconds, "library": library}
    )
    argv = command([sys.executable, "-m", "tests.bench.congestion", "--inside", words], "bench")
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    if ended.returncode or not lines:
        raise SystemExit(
            f"{case.name}, {buffer_packets} packets: exit code {ended.returncode}\n{ended.stderr[-3000:]}"
        )
    figures: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    return figures


def findings(case: Case, jobs: Sequence[Sequence[dict[str, Any]]], drops: int) -> dict[str, Any]:
    """Compute the figures of all jobs from their workers' outputs: goodput by job, the used share of the
    busiest link, fairness, retransmissions.
    """
    begin = max(worker["counted_s"] for job in jobs for worker in job)
    end = min(job[0]["ends"][-UNDER_WAY - 1] for job in jobs)
    goodputs = []
    for job in jobs:
        ends = [time_s for time_s in job[0]["ends"] if begin <= time_s <= end]
        goodputs.append((len(ends) - 1) * VECTOR_BYTES * 8e-6 / (ends[-1] - ends[0]))
    counters = [worker["counters"] for job in jobs for worker in job]
    total = {name: sum(of[name] for of in counters) for name in counters[0]}
    framing = 1514 / (4 * lanes_for(1500))
    slowest = min(case.rate, case.optical_rate) if len(case.hosts) > 1 else case.rate
    return {
        "goodput_mbps": goodputs,
        "used": sum(goodputs) * framing * case.streams / slowest,
        "jain": jain(goodputs),
        "again": total["retransmitted"] / (total["pushed"] + total["retransmitted"]),
        "window": total["window_sum"] / max(1, total["window_samples"]),
        "marked": total["marked"] / max(1, total["pushed"]),
        "timeouts": total["timeouts"],
        "drops": drops,
    }


def inside(words: str) -> dict[str, Any]:
    """Make a case's network in the namespaces, and run its jobs at the same time."""
    private_mounts("bench")
    from testbed.daemon.network import Network
    from testbed.local.names import mount_names
    from testbed.topology import addresses
    from testbed.topology.load import parse
    from tests.forests import p4inc

    request = json.loads(words)
    jobs = [
        Job(
            tuple((unit, host) for unit, host in job["members"]),
            (job["ps"][0], job["ps"][1]) if job["ps"] else None,
        )
        for job in request["case"].pop("jobs")
    ]
    case = Case(**request["case"], jobs=tuple(jobs))
    topology = parse(described(case, request["buffer"]), "bench")
    folder = Path("/run/openvswitch/bench")
    folder.mkdir()
    mount_names(topology, folder)
    with Network(topology, folder) as network, ExitStack() as stack:
        pairs = sorted({(unit, job.ps[0]) for job in jobs if job.ps for unit, _ in job.members})
        if pairs and all(sum(pair[1] == unit for pair in pairs) <= case.ports[unit - 1] for _, unit in pairs):
            network.ask("request", demands=[[addresses.unit_name(unit) for unit in pair] for pair in pairs])
        running = []
        for number, job in enumerate(jobs, 1):
            forest = p4inc(job.members, job.ps)
            admission = network.places.admit(number, number, forest, network.ways(forest))
            stack.callback(network.places.release, number)
            settings = {"bytes": VECTOR_BYTES, "library": request["library"]}
            running.append(
                [
                    network.machine.fabric.popen_in(
                        addresses.host_name(*host),
                        [
                            sys.executable,
                            "-m",
                            "tests.bench.congestion_worker",
                            written(admission.worker_env(worker)),
                            json.dumps(settings),
                        ],
                        cwd=ROOT,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        pass_fds=admission.worker_fds(worker),
                    )
                    for worker, host in enumerate(job.members)
                ]
            )
        processes = [process for job_processes in running for process in job_processes]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", "a worker did not come up"
        before = sum(wire.drops for wire in network.machine.fabric.statistics().values())
        counted_s = time.monotonic() + WARM_S
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"{counted_s} {counted_s + request['seconds']}\n".encode())
            process.stdin.flush()
        outputs = [
            [
                {**json.loads(process.communicate(timeout=_LIMIT_S)[0]), "counted_s": counted_s}
                for process in job
            ]
            for job in running
        ]
        drops = sum(wire.drops for wire in network.machine.fabric.statistics().values()) - before
    return findings(case, outputs, drops)


HEAD = (
    f"{'':<40} {'buffer':>6} {'Mb/s':>22} {'of the link':>11} {'longer':>7} {'again':>8} {'Jain':>6} "
    f"{'window':>7} "
    f"{'timers':>6} {'drops':>6}"
)


def line(case: Case, buffer_packets: int, figures: dict[str, Any], deep: dict[str, Any] | None) -> str:
    """Return a row of the table."""
    rates = " ".join(f"{rate:.1f}" for rate in figures["goodput_mbps"])
    longer = f"{100 * (deep['used'] / figures['used'] - 1):+.1f} %" if deep else ""
    return (
        f"{case.name:<40} {buffer_packets:>6} {rates:>22} {100 * figures['used']:>9.1f} % {longer:>7} "
        f"{100 * figures['again']:>6.2f} % "
        f"{figures['jain']:>6.3f} {figures['window']:>7.1f} {figures['timeouts']:>6.0f} {figures['drops']:>6}"
    )


def main(argv: Sequence[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.congestion", description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--cases", default=",".join(CASES), help="what to measure (%(default)s)")
    parser.add_argument("--buffers", default=",".join(map(str, BUFFERS)), help="packets (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run that count (%(default)s)")
    parser.add_argument("--library", help="another compiled endpoint")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.inside:
        print(MARK + json.dumps(inside(arguments.inside)))
        return 0
    rows = []
    print(HEAD, flush=True)
    for name in arguments.cases.split(","):
        case, deep = CASES[name], None
        for buffer_packets in sorted(map(int, arguments.buffers.split(",")), reverse=True):
            figures = measure(case, buffer_packets, arguments.seconds, arguments.library)
            deep = figures if buffer_packets == DEEP else deep
            print(line(case, buffer_packets, figures, deep), flush=True)
            rows.append({"case": name, "title": case.name, "buffer_packets": buffer_packets, **figures})
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"host": facts(), "congestion": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
