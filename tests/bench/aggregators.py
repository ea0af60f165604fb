"""Gradients summed per CPU second by the XDP aggregator and by TCP aggregator processes, on one core, in
packets of MTU size.

`python -m tests.bench.aggregators [--json FILE]`, as root. ALEPH (section 6.2, figure 5) reports the traffic
received for aggregation on one core: 17 Gb/s for XDP in a network card's driver and 1.6 Gb/s for a TCP
program. Here gradients are counted per CPU second of everything that the aggregator does:

- the kernel threads that poll its side of each link (threaded NAPI). For XDP that is the poll, the copy into
  a page, the program, the redirect and handing the frames over; for TCP the poll and the TCP stack up to the
  socket;
- a TCP aggregator's process: its reads, sums and sends.

Workers, and the threads that poll their ends of the links, do not count. All run on one core, since softirqs
run on the core that sent the frame: waking another core goes through the hypervisor, and would cost more than
the work. The MTU is 1500. Offloads are off, so that nothing merges or cuts segments, except in the GRO case.
All aggregators send the sums back to every worker. A separate run, with the kernel's BPF statistics on,
measures the time in the XDP program alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from testbed.emulation.namespaces import command, private_mounts
from testbed.wire.spec import LANES
from tests.bench.host import ROOT, facts
from tests.bench.rack import MARK, Setup, Trial, described, pinned, run

CORE, OTHER_CORE = 0, 1
READY, GO, DONE = "ready", "go\n", "done"
CHUNK_BYTES = {"tcp": 65536, "tcp-gro": 65536, "tcp-fragment": 4 * LANES, "ps": 4}
TURNS = 4  # vectors
PORT = 5999
NOT_MERGED, MERGED = 1, 65536
_BPF_ENABLE_STATS = 32
_BIT_PER_GRADIENT = 32

CASES = {
    "xdp": "XDP, the testbed's program",
    "tcp-fragment": "TCP, a process in C, 360 gradients at a time as the switch",
    "tcp": "TCP, the process in C, 16384 gradients at a time",
    "tcp-gro": "TCP, the process in C, 16384 at a time, segments merged first (GRO)",
    "ps": "TCP, workloads/parameter_server.py (NumPy)",
}


# ---------------------------------------------------------------- inside


def threaded(device: str, namespace: str | None = None) -> None:
    """Set a device to be polled by a kernel thread of its own, and read the setting back."""
    enter = ["ip", "netns", "exec", namespace] if namespace else []
    path = f"/sys/class/net/{device}/threaded"
    script = f"echo 1 > {path} && cat {path}"
    said = subprocess.run([*enter, "sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "1", f"{device}: threaded reads {said!r}"


def wait_for_leave() -> None:
    """Wait until the outer process has read its clocks."""
    print(READY, flush=True)
    assert sys.stdin.readline() == GO


def xdp(workers: int, size_bytes: int, with_statistics: bool) -> dict[str, Any]:
    """Measure the testbed's own network and endpoints."""
    from testbed.daemon.network import Network
    from testbed.dataplanes.xdp import syscall
    from testbed.topology import addresses
    from testbed.topology.load import parse

    folder = Path("/run/openvswitch/bench")
    folder.mkdir()
    setup, trial = Setup((workers,)), Trial("xdp", ("inc",), size_bytes, turns=TURNS - 1, rounds=1, core=CORE)
    with Network(parse(described(setup), "bench"), folder) as network, tempfile.TemporaryDirectory() as logs:
        for host in range(1, workers + 1):
            threaded(addresses.tor_port_device(1, host))
            threaded("eth0", addresses.host_name(1, host))
        descriptors = {
            name: network.machine.plane.programs.program_fd(name) for name in ("tor_port", "host_port")
        }
        if with_statistics:  # the kernel counts while this descriptor is open
            syscall._bpf(_BPF_ENABLE_STATS, syscall._attributes("=I", 0), "enable BPF statistics")
        wait_for_leave()
        inc = run(network, setup, trial, 1, Path(logs))["inc"]
        print(DONE, flush=True)
        sys.stdin.readline()
        return {
            "gradients": workers * (size_bytes // 4) * TURNS,
            "goodput_mbps": inc["goodput_mbps"],
            "programs": {name: _run_time(fd) for name, fd in descriptors.items()},
            "verdicts": {name: count for name, count in network.machine.verdicts().items() if count},
        }


def _run_time(fd: int) -> dict[str, float]:
    lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
    values = {line.split()[0].rstrip(":"): line.split()[1] for line in lines}
    return {"runs": int(values["run_cnt"]), "ns": int(values["run_time_ns"])}


def tcp(workers: int, size_bytes: int, kind: str, core: int) -> dict[str, Any]:
    """Measure aggregator processes: hosts and switch ports are set up as in the testbed, but without
    programs, and the aggregator runs where the XDP programs would.
    """
    from testbed.emulation.links import SYSCTLS, WIRES, HostAddress, WireEnd, Wires, WireSpec, set_offloads
    from testbed.emulation.namespaces import NetworkNamespaces, entered
    from testbed.emulation.netlink import RouteSocket, set_merging

    names = [f"w{worker}" for worker in range(1, workers + 1)]
    with ExitStack() as stack:
        namespaces = NetworkNamespaces()
        stack.callback(namespaces.remove_all)
        for path, value in SYSCTLS.items():
            Path("/proc/sys", path).write_text(value)
        namespaces.add([WIRES, *names], SYSCTLS)
        specs = [WireSpec(name, WireEnd("eth0", name), WireEnd(f"s{name}"), None, 1 << 20) for name in names]
        wires = Wires(namespaces, specs)
        stack.callback(wires.close)
        wires.make(lambda *_: None)
        hosts = [
            HostAddress(name, "eth0", f"10.0.{at}.1", 24, f"10.0.{at}.254", ())
            for at, name in enumerate(names, 1)
        ]
        wires.configure_hosts(hosts, lambda *_: None)
        merging = MERGED if kind == "tcp-gro" else NOT_MERGED
        for at, name in enumerate(names, 1):
            subprocess.run(["ip", "address", "add", f"10.0.{at}.254/24", "dev", f"s{name}"], check=True)
            set_offloads(f"s{name}", gro=True)  # veth polls only with GRO; set_merging limits what it merges
            set_offloads("eth0", gro=True, namespace=namespaces[name])
            with RouteSocket() as route:
                route.send([set_merging(route.devices()[f"s{name}"].ifindex, merging)])
            with entered(namespaces[name]):
                inner = RouteSocket()
            with inner:
                inner.send([set_merging(inner.devices()["eth0"].ifindex, merging)])
            threaded(f"s{name}")
            threaded("eth0", name)
        return _tcp_job(workers, size_bytes, kind, names, core)


def _tcp_job(workers: int, size_bytes: int, kind: str, names: list[str], core: int) -> dict[str, Any]:
    chunk = CHUNK_BYTES[kind]
    chunks = TURNS * size_bytes // chunk
    with tempfile.TemporaryDirectory() as folder:
        binary = f"{folder}/tcp_sum"
        source = str(ROOT / "tests/bench/tcp_sum.c")
        subprocess.run(["gcc", "-O3", "-march=native", "-Wall", "-o", binary, source], check=True)
        if kind == "ps":
            words = ["--bind", "0.0.0.0", "--port", str(PORT), "--workers", str(workers), "--job", "bench"]
            argv = [sys.executable, "-m", "workloads.parameter_server", *words]
        else:
            argv = [binary, "sum", "0.0.0.0", str(PORT), str(workers), str(chunk)]
        aggregator = subprocess.Popen([*pinned(core), *argv], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert aggregator.stdout is not None
        assert "ready" in aggregator.stdout.readline()
        wait_for_leave()
        before = _process_ns(aggregator.pid)
        jobs = []
        for worker, name in enumerate(names):
            address = f"10.0.{worker + 1}.254"
            if kind == "ps":
                words = [sys.executable, "-m", "tests.bench.aggregators", "--worker"]
                words.append(f"{address},{worker},{workers},{size_bytes}")
            else:
                words = [binary, "work", address, str(PORT), str(workers), str(chunk), str(chunks)]
            argv = ["ip", "netns", "exec", name, *pinned(CORE), *words]
            jobs.append(subprocess.Popen(argv, cwd=ROOT))
        assert [job.wait() for job in jobs] == [0] * workers
        used_ns = _process_ns(aggregator.pid) - before if kind == "ps" else 0
        print(DONE, flush=True)
        sys.stdin.readline()
        if kind == "ps":
            aggregator.terminate()
        output = aggregator.communicate(timeout=20)[0]
        gradients = workers * chunks * chunk // 4
        if kind != "ps":
            seconds, received = output.split()
            assert int(received) == gradients
            used_ns = int(float(seconds) * 1e9)
        return {"gradients": gradients, "process_s": used_ns / 1e9}


def _process_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def ps_worker(words: str) -> None:
    """Run a worker of the parameter server."""
    import numpy as np

    from workloads.ps_client import PsClient

    address, worker, workers, size_bytes = words.split(",")
    array = np.ones(int(size_bytes) // 4, np.float32)
    with PsClient((address, PORT), int(worker), int(workers), 60.0, "bench") as client:
        for _ in range(TURNS):
            client.allreduce_(array)
    assert (array == int(workers) ** TURNS).all()


def inside(words: str) -> None:
    kind, workers, size_bytes, core = words.split(",")
    private_mounts("bench")
    if kind.startswith("xdp"):
        figures = xdp(int(workers), int(size_bytes), kind == "xdp-statistics")
    else:
        figures = tcp(int(workers), int(size_bytes), kind, int(core))
    print(MARK + json.dumps(figures), flush=True)


# ---------------------------------------------------------------- outside


def polling_threads() -> dict[int, str]:
    """Return the kernel threads that poll devices: pid -> device."""
    devices = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            name = (entry / "comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name.startswith("napi/"):
            devices[int(entry.name)] = name.removeprefix("napi/").rsplit("-", 1)[0]
    return devices


def measure(kind: str, workers: int, size_bytes: int, core: int) -> dict[str, Any]:
    """Measure one case: the results of the inner process, and the CPU time of the polling threads on the
    aggregator's side.
    """
    others = polling_threads()
    argv = command(
        [
            sys.executable,
            "-m",
            "tests.bench.aggregators",
            "--inside",
            f"{kind},{workers},{size_bytes},{core}",
        ],
        "bench",
    )
    with subprocess.Popen(
        argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        sides: dict[bool, list[int]] = {True: [], False: []}  # the aggregator's, the workers'
        before: dict[int, int] = {}
        polled: dict[bool, float] = {}
        figures: dict[str, Any] | None = None
        for line in process.stdout:
            if line.strip() == READY:
                for pid, device in polling_threads().items():
                    if pid not in others:
                        sides[device != "eth0"].append(pid)
                        os.sched_setaffinity(pid, {CORE if device == "eth0" else core})
                before = {pid: _process_ns(pid) for side in sides.values() for pid in side}
            elif line.strip() == DONE:
                polled = {
                    at: sum(_process_ns(pid) - before[pid] for pid in side) / 1e9
                    for at, side in sides.items()
                }
            elif line.startswith(MARK):
                figures = json.loads(line.removeprefix(MARK))
            if line.strip() in (READY, DONE):
                process.stdin.write(GO)
                process.stdin.flush()
    if process.returncode or figures is None:
        raise SystemExit(f"aggregators {kind}: exit code {process.returncode}")
    assert [len(side) for side in sides.values()] == [workers, workers], f"{kind}: threads {sides}"
    cpu_s = polled[True] + figures.get("process_s", 0.0)
    rate = figures["gradients"] / cpu_s
    return figures | {
        "kind": kind,
        "workers": workers,
        "polling_s": polled[True],
        "gradients_per_cpu_s": rate,
        "gbps_per_core": rate * _BIT_PER_GRADIENT / 1e9,
    }


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.aggregators", description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--mbytes", type=float, default=32.0, help="from each worker (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often all cases take turns (%(default)s)")
    parser.add_argument("--apart", action="store_true", help="the aggregator on a core of its own")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.inside:
        inside(arguments.inside)
        return 0
    if arguments.worker:
        ps_worker(arguments.worker)
        return 0
    size = int(arguments.mbytes * 1e6) // 4 * 4
    core = OTHER_CORE if arguments.apart else CORE
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in CASES}
    for _ in range(arguments.rounds):
        for kind in CASES:
            rows[kind].append(measure(kind, arguments.workers, size, core))
    medians = {kind: statistics.median(row["gbps_per_core"] for row in runs) for kind, runs in rows.items()}
    print(
        f"{'Gb/s of gradients received and summed per CPU second':<60} {'median':>7} {'least, most':>12} "
        f"{'XDP is':>7}"
    )
    for kind, runs in rows.items():
        rates = [row["gbps_per_core"] for row in runs]
        ratio = f"{medians['xdp'] / medians[kind]:.1f}x"
        print(f"{CASES[kind]:<60} {medians[kind]:>7.2f} {min(rates):>5.2f} {max(rates):>6.2f} {ratio:>7}")
    alone = measure("xdp-statistics", arguments.workers, size, core)["programs"]
    for name, program in alone.items():
        each = program["ns"] / max(1, program["runs"])
        program["gbps"] = LANES * _BIT_PER_GRADIENT / each
        print(
            f"{name}: {program['runs']} runs of {each:.0f} ns: {program['gbps']:.1f} Gb/s "
            "in the program alone"
        )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        figures = {"host": facts(), "cases": rows, "names": CASES, "programs": alone}
        arguments.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
