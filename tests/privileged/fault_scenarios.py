"""Jobs under faults on a running network. Each function returns its findings; test_faults.py judges them, and
tests/bench/faults.py prints them as a table.

The scenarios are the same for every engine; the topology (`described`) says which engine a ToR has. A job's
workers sum round after round. Time without progress is the longest time between two consecutive results at
any worker.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.client import rpc
from testbed.daemon.network import Network
from testbed.emulation.offloads import FeatureControl, wire_features
from testbed.machine.links import LinkFault
from testbed.topology import addresses
from testbed.topology.places import Host
from testbed.wire.settings import written
from tests.forests import p4inc
from tests.limits import CALL_S
from tests.privileged.reload import reload

ROOT = Path(__file__).resolve().parents[2]
FRAGMENTS = 61  # in a round
TIMES = "FAULT_ROUNDS_TIMES"  # a variable that multiplies the number of rounds, for more reliable figures
# by engine; a BMv2 switch sums less than a tenth of what XDP does
ROUNDS = {"xdp": 211, "bmv2": 13, "mixed": 13}
ROUNDS_OF_EIGHT = {"xdp": 53, "bmv2": 5}
ONE_UNIT = [(1, 1), (1, 2), (1, 3)]
TWO_UNITS = [(1, 1), (1, 2), (2, 1)]
PS = (3, 1)
TIME_LIMIT_S = 5.0
ENDS_S = 180.0
BETWEEN_S = 0.05  # between two changes, so that the job is seen to continue

# a generation for each job, so that packets of an earlier job of the same number are not taken for its own
_generations = itertools.count(1)
_HOSTS = {"rack": (3,), "eight": (16,), "units": (2, 1, 1, 1)}
_ENGINES = {"xdp": ["xdp"] * 4, "bmv2": ["bmv2"] * 4, "mixed": ["xdp", "bmv2", "bmv2", "bmv2"]}

LOSS = LinkFault(loss=0.01)
FAULTS: dict[str, LinkFault | None] = {
    "none": None,
    "loss 0.01 %": LinkFault(loss=0.0001),
    "loss 0.1 %": LinkFault(loss=0.001),
    "loss 1 %": LOSS,
    "loss 10 %": LinkFault(loss=0.1),
    "duplication 1 %": LinkFault(duplicate=0.01),
    "reordering 1 % by 50": LinkFault(reorder=0.01, distance=50),
    "corruption 0.1 %": LinkFault(corrupt=0.001),
}


def described(shape: str, engine: str) -> str:
    """Return a topology: "rack" and "eight" are one ToR, for three workers and for eight jobs; "units" has
    four, and optical links.
    """
    units = [
        {"hosts": hosts, "engine": kind} for hosts, kind in zip(_HOSTS[shape], _ENGINES[engine], strict=False)
    ]
    rates = {"host_rate_mbps": 40_000, "optical_rate_mbps": 40_000, "scale": 200}
    return json.dumps({"units": units, **rates, "inc": {"jobs": 8 if shape == "eight" else 4}})


def _engine(network: Network) -> str:
    """Return the network's key in ROUNDS."""
    kinds = {unit.engine for unit in network.topology.units}
    return kinds.pop() if len(kinds) == 1 else "mixed"


def _rounds(network: Network) -> int:
    return int(os.environ.get(TIMES, "1")) * ROUNDS[_engine(network)]


@dataclass(slots=True)
class Running:
    """A job's processes, by worker."""

    network: Network
    number: int
    hosts: Sequence[Host]
    processes: list[subprocess.Popen[bytes]]
    admission: Any
    settings: dict[str, Any]

    def start(self, worker: int) -> subprocess.Popen[bytes]:
        words = written(self.admission.worker_env(worker)), json.dumps(self.settings)
        return self.network.machine.fabric.popen_in(
            addresses.host_name(*self.hosts[worker]),
            [sys.executable, "-m", "tests.privileged.fault_worker", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=self.admission.worker_fds(worker),
        )

    def _expect(self, expected: bytes) -> None:
        for process in self.processes:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line == expected, line

    def ready(self) -> None:
        """Wait until every worker is ready to begin, so that a late start is not taken for a silent peer."""
        self._expect(b"ready\n")

    def go(self, held: bool = False) -> None:
        """Let all begin. If `held`, they continue until `reports` is called, however many rounds that
        takes.
        """
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(b"+")
            process.stdin.flush()
        if not held:
            self._let_end()

    def _let_end(self) -> None:
        for process in self.processes:
            if process.stdin:
                process.stdin.close()
                process.stdin = None

    def first(self) -> None:
        """Wait until every worker has its first result."""
        self._expect(b"first\n")

    def reports(self) -> list[dict[str, Any]]:
        """Return the last report of each worker; {} for a worker that was killed."""
        self._let_end()
        said = [process.communicate(timeout=ENDS_S)[0].splitlines() for process in self.processes]
        self.network.places.release(self.number)
        return [json.loads(lines[-1]) if lines and lines[-1].startswith(b"{") else {} for lines in said]


def begin(
    network: Network,
    number: int,
    hosts: Sequence[tuple[int, int]],
    ps: tuple[int, int] | None = None,
    timeout_s: float = 30.0,
    held: bool = False,
) -> Running:
    """Start a job that sums; if `held`, until `reports` is called."""
    running = prepare(network, number, hosts, ps, timeout_s=timeout_s)
    running.ready()
    running.go(held)
    return running


def prepare(
    network: Network,
    number: int,
    hosts: Sequence[tuple[int, int]],
    ps: tuple[int, int] | None = None,
    rounds: int | None = None,
    timeout_s: float = 30.0,
) -> Running:
    """Admit a job and start its workers, which wait for `go`. `rounds` None: as in ROUNDS."""
    rounds = rounds or _rounds(network)
    forest = p4inc(hosts, ps)
    if forest.demands():
        network.ask("request", demands=[list(map(addresses.unit_name, pair)) for pair in forest.demands()])
    admission = network.places.admit(number, next(_generations), forest, network.ways(forest))
    settings = {"rounds": rounds, "fragments": FRAGMENTS, "timeout_s": timeout_s}
    settings["is_parallel"] = admission.is_parallel
    running = Running(network, number, hosts, [], admission, settings)
    running.processes = [running.start(worker) for worker in range(len(hosts))]
    return running


def figures(
    workers: Sequence[dict[str, Any]], since: float | None = None, until: float | None = None
) -> dict[str, Any]:
    """Return a job's figures for the table: rounds a second, median and longest time between two results,
    retransmissions, errors.

    The longest time is over the gaps that overlap the time from `since` to `until`.
    """
    gaps = [pair for worker in workers for pair in itertools.pairwise(worker["ends"])]
    first, last = max(w["ends"][0] for w in workers), max(w["ends"][-1] for w in workers)
    touched = [b - a for a, b in gaps if (since is None or b >= since) and (until is None or a <= until)]
    return {
        "wrong": sum(worker["wrong"] for worker in workers),
        "rounds": [len(worker["ends"]) for worker in workers],
        "rounds_per_s": (len(workers[0]["ends"]) - 1) / (last - first),
        "median_ms": 1000 * statistics.median(b - a for a, b in gaps),
        "longest_ms": 1000 * max(touched),
        "pushed": sum(worker["counters"]["pushed"] for worker in workers),
        "retransmitted": sum(worker["counters"]["retransmitted"] for worker in workers),
        "errors": [worker["error"] for worker in workers if worker["error"]],
    }


def _totals(network: Network) -> dict[str, int]:
    states = network.machine.fabric.faults.states()
    return (
        {name: sum(state.counters[name] for state in states) for name in states[0].counters} if states else {}
    )


def rates(network: Network) -> dict[str, Any]:
    """Run one job in a unit for each fault, which is set on its workers' links in both directions."""
    cases = {}
    for number, (name, fault) in enumerate(FAULTS.items(), 1):
        for unit, host in ONE_UNIT:
            if fault:
                network.machine.fabric.faults.set(addresses.host_name(unit, host), fault)
        before = network.machine.verdicts()
        job = figures(begin(network, number, ONE_UNIT).reports())
        after = network.machine.verdicts()
        verdicts = {
            verdict: after[verdict] - before[verdict]
            for verdict in after
            if after[verdict] != before[verdict]
        }
        cases[name] = {**job, "links": _totals(network), "verdicts": verdicts}
        network.machine.fabric.faults.clear()
    return cases


def rates_across(network: Network) -> dict[str, Any]:
    """Run a job over two units with 1 % loss on every link that it uses: of hosts, of the PS host, and of
    optical ports.
    """
    for link in ("u1h1", "u1h2", "u2h1", "u3h1", "u1o1", "u1o2", "u2o1", "u2o2", "u3o1", "u3o2"):
        network.machine.fabric.faults.set(link, LOSS)
    outcome = {**figures(begin(network, 1, TWO_UNITS, PS).reports()), "links": _totals(network)}
    network.machine.fabric.faults.clear()
    return outcome


def reloaded(network: Network) -> dict[str, Any]:
    """Load the XDP programs, of hosts and of the ports that have one, again five times under a job over
    two units.
    """
    running = begin(network, 1, TWO_UNITS, PS, held=True)
    running.first()
    before = reload(network)
    started, took = time.monotonic(), []
    for _ in range(5):
        begun = time.monotonic()
        after = reload(network)
        took.append(1000 * (time.monotonic() - begun))
        time.sleep(0.1)
    ended = time.monotonic()
    with FeatureControl() as control:
        for device in network.machine.fabric.switch_devices():
            control.check(device.device, wire_features(gro=False))
    outcome = figures(running.reports(), started, ended)
    return {**outcome, "took_ms": took, "new": [after[name] != before[name] for name in before]}


def reconfigured(network: Network) -> dict[str, Any]:
    """Change circuits under a job over two units, and back, so that both of its paths are cut in mid-round.
    The job's results are rerouted in the dark, as by the daemon. `after_light_ms`: when each worker has its
    next result, by the slowest.
    """
    running = begin(network, 1, TWO_UNITS, PS, held=True)
    running.first()
    turns = network.ask("turned", other_than=-1)
    follower = threading.Thread(target=follow, args=(network, running, turns, 6))
    follower.start()
    started, events, lit = time.monotonic(), [], []
    for turn in range(6):
        wirings = (
            [["u1o1", "u4o1"], ["u4o2", "u3o1"], ["u2o1", "u3o2"]],
            [["u1o1", "u3o1"], ["u2o1", "u3o2"]],
        )
        asked = time.monotonic()
        events.append(network.ask("apply", circuits=wirings[turn % 2]))
        lit.append(asked + events[-1]["since_asked_ms"]["lit"] / 1000)
        time.sleep(BETWEEN_S)
    follower.join()
    ended = time.monotonic()
    workers = running.reports()
    after = [max(min(end for end in w["ends"] if end > at) for w in workers) - at for at in lit]
    return {
        **figures(workers, started, ended),
        "dark_ms": [event["measured_ms"] for event in events if event],
        "after_light_ms": [1000 * seconds for seconds in after],
    }


def follow(network: Network, running: Running, turns: int, times: int) -> None:
    """Reroute a job's results after each of `times` changes of circuits, as the daemon does."""
    for _ in range(times):
        turns = rpc.call(network.controller_socket, "turned", other_than=turns)
        network.places.reroute(running.number, network.ways(running.admission.forest))


def ps_host_cut_off(network: Network) -> dict[str, Any]:
    """Lose everything on the link of a job's PS host for half a second or more; results continue after it."""
    network.machine.fabric.faults.set(
        "u4h1", LinkFault(loss=1.0)
    )  # an unused link: compiles the fault stage before the measured time
    running = begin(network, 1, TWO_UNITS, PS, held=True)
    running.first()
    network.machine.fabric.faults.set("u3h1", LinkFault(loss=1.0))
    cut = time.monotonic()
    time.sleep(0.5)
    while not (lost := _lost(network, "u3h1")):
        assert time.monotonic() < cut + ENDS_S, "nothing came to the link that loses everything"
        time.sleep(0.01)
    until = time.monotonic()
    network.machine.fabric.faults.clear("u3h1")
    back = time.monotonic()
    workers = running.reports()
    network.machine.fabric.faults.clear()
    after = [min((end for end in worker["ends"] if end > back), default=None) for worker in workers]
    return {
        **figures(workers, cut, back),
        "lost": lost,
        "results": [sum(cut < end < until for end in worker["ends"]) for worker in workers],
        "cut_ms": 1000 * (back - cut),
        "recovery_ms": 1000 * (max(end for end in after if end is not None) - back) if all(after) else None,
    }


def _lost(network: Network, link: str) -> int:
    return sum(
        network.machine.fabric.faults.counters(link, direction)["lost"] for direction in ("up", "down")
    )


def killed(network: Network) -> dict[str, Any]:
    """Kill a worker in mid-job: the others' errors, and after how many seconds they are raised."""
    running = begin(network, 1, ONE_UNIT, timeout_s=TIME_LIMIT_S, held=True)
    running.first()
    fault = time.monotonic()
    running.processes[1].kill()
    running.processes[1].wait(CALL_S)  # otherwise it might still agree to end
    others = [worker for worker in running.reports() if worker]
    return {
        "others": [[worker["error"][0] - fault, *worker["error"][1:]] for worker in others],
        "wrong": sum(worker["wrong"] for worker in others),
    }


def restarted(network: Network) -> list[dict[str, Any]]:
    """Kill a worker in mid-job and start it again in the same generation: how each worker ended."""
    running = begin(network, 1, ONE_UNIT, timeout_s=TIME_LIMIT_S, held=True)
    running.first()
    running.processes[1].kill()
    running.processes[1].communicate(timeout=CALL_S)
    running.processes[1] = running.start(1)
    return [
        {"wrong": worker["wrong"], "rounds": len(worker["ends"]), "error": worker["error"]}
        for worker in running.reports()
    ]


def eight_jobs(network: Network) -> list[dict[str, Any]]:
    """Run eight jobs of two workers on one ToR, with 1 % loss on every link."""
    for host in range(1, 17):
        network.machine.fabric.faults.set(addresses.host_name(1, host), LOSS)
    rounds = ROUNDS_OF_EIGHT[_engine(network)]
    jobs = [
        prepare(network, 1 + job, [(1, 1 + 2 * job), (1, 2 + 2 * job)], rounds=rounds) for job in range(8)
    ]
    for job in jobs:
        job.ready()
    for job in jobs:
        job.go()
    return [figures(job.reports()) for job in jobs]


def rack(network: Network) -> dict[str, Any]:
    """Run all scenarios of a rack, one after the other."""
    return {scenario.__name__: scenario(network) for scenario in (rates, killed, restarted)}


def units(network: Network) -> dict[str, Any]:
    """Run all scenarios of several units, one after the other."""
    scenarios = (rates_across, reloaded, reconfigured, ps_host_cut_off)
    return {scenario.__name__: scenario(network) for scenario in scenarios}


def eight(network: Network) -> dict[str, Any]:
    """Run eight jobs."""
    return {"eight_jobs": eight_jobs(network)}
