"""Networks, and the workers that a speed benchmark runs on them, in namespaces of their own.

`measure(SETUP, TRIALS)`, outside the namespaces, brings one network up and runs every trial on it, repeatedly
in turn; `python -m tests.bench.rack` is the inner process. A trial's workers alternate between the kinds that
it compares, so that the machine's state is the same for all kinds.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.dataplanes.bmv2.switch import Bmv2Switch
from testbed.emulation.namespaces import command, private_mounts
from testbed.wire.settings import written
from testbed.wire.spec import lanes_for
from tests.bench.host import ROOT

MARK = "result: "
KINDS = ("inc", "gloo")
SERVER, SWITCH = "server", "switch"  # the top of a tree across units
_LIMIT_S = 600
PS_JOB = "bench"
BUFFER_PACKETS = 512  # not the default, which tables of shaped links state
_PS_PORT = 5999
_END_S = 10
_ENVIRONMENT = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/usr/sbin"}


@dataclass(frozen=True, slots=True)
class Setup:
    """A network: hosts with workers by unit. With several units there is another unit for the job's PS, and
    its host is the top of the tree unless `top` is SWITCH. `rate_mbps` None: unshaped.

    The kind `ps` needs one unit with a spare host, where its server runs.
    """

    hosts: tuple[int, ...]
    rate_mbps: float | None = None
    mtu: int = 1500
    xdp: str | None = None  # the programs' mode; None: chosen by the testbed from the MTU
    engine: str = "xdp"
    layout: str = "wide"  # of BMv2's lanes
    programs: tuple[str, ...] | None = None  # the systems whose programs BMv2 runs; None: all
    spare: int = 0
    top: str = SERVER

    @property
    def workers(self) -> int:
        return sum(self.hosts)

    @property
    def framing(self) -> float:
        """Return the bytes on a link for each byte of gradients in a full packet."""
        return (14 + self.mtu) / (4 * lanes_for(self.mtu))


@dataclass(frozen=True, slots=True)
class Trial:
    """A group of workers that all-reduce: `turns` timed all-reduces of each kind in turn, `rounds` times."""

    name: str
    kinds: tuple[str, ...] = KINDS
    size_bytes: int = 16_000_000
    turns: int = 2
    rounds: int = 3
    segment: int | None = None  # slots; None: an equal share of the switch's
    library: str | None = None  # another compiled endpoint
    core: int | None = None  # where the workers run; None: anywhere
    fifo: bool = False  # SCHED_FIFO: before all ordinary processes; also for gloo's threads


def measure(setup: Setup, trials: Sequence[Trial], repeat: int = 1) -> list[dict[str, Any]]:
    """Bring the network up, from outside the namespaces, and run the trials in turn, `repeat` times. Return
    for each trial its `findings` of each time.
    """
    words = json.dumps(
        {"setup": asdict(setup), "trials": [asdict(trial) for trial in trials], "repeat": repeat}
    )
    argv = command([sys.executable, "-m", "tests.bench.rack", words], "bench")
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    if ended.returncode or not lines:
        raise SystemExit(f"{setup}: exit code {ended.returncode}\n{ended.stderr[-3000:]}")
    rows: list[dict[str, Any]] = json.loads(lines[-1].removeprefix(MARK))
    return rows


def findings(setup: Setup, trial: Trial, workers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return by kind the seconds of each all-reduce, from the first worker's start to the last one's end, and
    the resources that it used.
    """
    fragments = -(-trial.size_bytes // 4 // lanes_for(setup.mtu))
    by_kind: dict[str, Any] = {}
    for kind in trial.kinds:
        mine = [worker[kind] for worker in workers]
        starts = [min(times) for times in zip(*(w["starts"] for w in mine), strict=True)]
        ends = [max(times) for times in zip(*(w["ends"] for w in mine), strict=True)]
        seconds = [end - start for start, end in zip(starts, ends, strict=True)]
        pairs = fragments * setup.workers * len(seconds)
        by_kind[kind] = {
            "starts": starts,  # CLOCK_MONOTONIC
            "seconds": seconds,
            "pairs": pairs,
            "median_s": statistics.median(seconds),
            "goodput_mbps": trial.size_bytes * 8 / 1e6 / statistics.median(seconds),
            "spread": (max(seconds) - min(seconds)) / statistics.median(seconds),
            "workers_cpu_s": sum(w["cpu_s"] for w in mine),
            "machine_cpu_s": (machine_s := statistics.median(w["machine_s"] for w in mine)),
            "busy": machine_s / (os.cpu_count() or 1) / sum(seconds),  # share of all cores, by all programs
            "switches_cpu_s": statistics.median(w["switches_s"] for w in mine),  # BMv2's processes
            "counters": [w["counters"] for w in mine],
        }
        # gloo has no pairs of push and result: for it, a pair is as much of the vector as one carries
        by_kind[kind]["worker_us_per_pair"] = by_kind[kind]["workers_cpu_s"] * 1e6 / pairs
        by_kind[kind]["machine_us_per_pair"] = by_kind[kind]["machine_cpu_s"] * 1e6 / pairs
    return by_kind


def compiled(folder: Path, defines: dict[str, int], extra: Sequence[str] = ()) -> str:
    """Compile the endpoint with other values of its constants, as a shared object in `folder`. Return
    its path.
    """
    native = ROOT / "workloads/native"
    texts = {path: path.read_text() for path in sorted(native.glob("*.[ch]"))}
    for name, value in defines.items():
        definition = re.compile(rf"(?m)^#define {name}\s+\d+")
        count = sum(len(definition.findall(text)) for text in texts.values())
        if count != 1:
            raise SystemExit(f"{native}: {count} definitions of {name}; the benchmark changes the only one")
        texts = {path: definition.sub(f"#define {name} {value}", text) for path, text in texts.items()}
    name = "-".join(f"{key}{value}" for key, value in defines.items()) or "same"
    target = folder / f"{name}-{len(list(folder.iterdir()))}.so"
    copy = folder / target.stem / native.relative_to(ROOT)
    copy.mkdir(parents=True)
    for path, text in texts.items():
        (copy / path.name).write_text(text)
    (folder / target.stem / "bpf").symlink_to(ROOT / "bpf")
    match = re.search(r"extra_compile_args=(\[.*?\])", (ROOT / "setup.py").read_text(), re.DOTALL)
    assert match, "setup.py: no extra_compile_args"
    flags = [*eval(match[1], {"os": os}), "-shared", "-fPIC"]  # as set-up compiles it
    sources = [str(path) for path in sorted(copy.glob("*.c"))]
    subprocess.run(["gcc", *flags, "-o", str(target), *sources, *extra, "-lm"], check=True)
    return str(target)


def scheduled(trial: Trial) -> list[str]:
    """Return the words to put before a worker's command, so that it is scheduled as the trial says."""
    return [*pinned(trial.core), *(["chrt", "--fifo", "1"] if trial.fifo else [])]


def pinned(core: int | None) -> list[str]:
    """Return the words to put before a command, so that it runs on one core."""
    return [] if core is None else ["taskset", "-c", str(core)]


@contextmanager
def serving(network: Any, setup: Setup, trial: Trial, folder: Path) -> Iterator[tuple[str, int]]:
    """Run a parameter server, inside the namespaces, at the last host of the first unit during the block, and
    yield its address. Workers may connect before it is ready.
    """
    from testbed.topology import addresses

    host = setup.hosts[0] + setup.spare
    address = addresses.host_ip(1, host), _PS_PORT
    words = [
        "--bind",
        address[0],
        "--port",
        str(address[1]),
        "--workers",
        str(setup.workers),
        "--job",
        PS_JOB,
    ]
    with (folder / "ps.log").open("a") as log:
        process = network.machine.fabric.popen_in(
            addresses.host_name(1, host),
            [*pinned(trial.core), sys.executable, "-m", "workloads.parameter_server", *words],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            env=_ENVIRONMENT,
        )
    try:
        yield address
    finally:
        process.terminate()
        process.wait(_END_S)


def run(network: Any, setup: Setup, trial: Trial, number: int, folder: Path) -> dict[str, Any]:
    """Run one trial on a running network, inside the namespaces."""
    from testbed.topology import addresses
    from tests.forests import p4inc, switches

    places = [(unit, host) for unit, hosts in enumerate(setup.hosts, 1) for host in range(1, hosts + 1)]
    by_server = len(setup.hosts) > 1 and setup.top == SERVER
    forest = p4inc(places, (len(setup.hosts) + 1, 1)) if by_server else switches(places)
    if forest.demands():
        network.ask("request", demands=[list(map(addresses.unit_name, pair)) for pair in forest.demands()])
    admission = network.places.admit(number, number, forest, network.ways(forest), size=trial.segment)
    with ExitStack() as stack:
        stack.callback(network.places.release, number)
        server = stack.enter_context(serving(network, setup, trial, folder)) if "ps" in trial.kinds else None
        processes = []
        for worker, host in enumerate(places):
            settings = {
                "kinds": trial.kinds,
                "bytes": trial.size_bytes,
                "turns": trial.turns,
                "rounds": trial.rounds,
                "library": trial.library,
                "master": addresses.host_ip(*places[0]),
                "server": server,
                "server_job": PS_JOB,
                "switches": [
                    tor.pid
                    for tor in network.machine.switches.by_dpid.values()
                    if isinstance(tor, Bmv2Switch)
                ],
            }
            log = (folder / f"{number}-{worker}.log").open("w+")
            process = network.machine.fabric.popen_in(
                addresses.host_name(*host),
                [
                    *scheduled(trial),
                    sys.executable,
                    "-m",
                    "tests.bench.allreduce_worker",
                    written(admission.worker_env(worker)),
                    json.dumps(settings),
                ],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_ENVIRONMENT,
                pass_fds=admission.worker_fds(worker),
            )
            processes.append((process, log))
        reports = []
        for process, log in processes:
            output = process.communicate(timeout=_LIMIT_S)[0]
            if process.returncode:
                log.seek(0)
                raise SystemExit(
                    f"{trial.name}: a worker ended with {process.returncode}\n{log.read()[-2000:]}"
                )
            reports.append(json.loads(output))
        return findings(setup, trial, reports)


def described(setup: Setup) -> dict[str, Any]:
    """Return the configuration of a setup's testbed."""
    counts = [*setup.hosts, *((1,) if len(setup.hosts) > 1 else ())]
    counts[0] += setup.spare
    return {
        "units": [{"hosts": hosts, "engine": setup.engine} for hosts in counts],
        "host_rate_mbps": setup.rate_mbps or "unshaped",
        "scale": 1,
        "buffer_packets": BUFFER_PACKETS,
        "mtu": setup.mtu,
        "bmv2": {
            "layout": setup.layout,
            **({} if setup.programs is None else {"programs": list(setup.programs)}),
        },
    }


def main(words: str) -> None:
    """Make the network and run the trials, as the inner process."""
    private_mounts("bench")
    from testbed.daemon.network import Network
    from testbed.dataplanes.xdp import program
    from testbed.local.names import mount_names
    from testbed.topology.load import parse

    request = json.loads(words)
    setup = Setup(**{**request["setup"], "hosts": tuple(request["setup"]["hosts"])})
    trials = [Trial(**{**trial, "kinds": tuple(trial["kinds"])}) for trial in request["trials"]]
    if setup.xdp:
        program.mode_for = lambda _lanes, mode=setup.xdp: mode
    topology = parse(described(setup), "bench")
    folder = Path("/run/openvswitch/bench")
    folder.mkdir()
    mount_names(topology, folder)
    rows: list[dict[str, Any]] = [{"name": trial.name, "runs": []} for trial in trials]
    with Network(topology, folder) as network, tempfile.TemporaryDirectory() as logs:
        number = 0
        for _ in range(request["repeat"]):
            for trial, of in zip(trials, rows, strict=True):
                number += 1
                of["runs"].append(run(network, setup, trial, number, Path(logs)))
    print(MARK + json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1])
