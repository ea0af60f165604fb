"""The cost of the program that keeps users apart on links: goodput with the program attached and without it.

`python -m tests.bench.apart [--turns N] [--json FILE] [--into DOCUMENT]`, as root. On root's unshaped testbed
a job of two workers sums, or streams over TCP, beside an idle job of another user. The program is detached
from the workers' interfaces and attached again by turns, in windows of a third of a second and in random
order. `redirect` is the rig of `python -m tests.bench.limit`: a sender's frames through XDP into a second
link. The figures are the median of the turns' ratios, and their middle half. On a machine that others keep
busy these say little; the table also has the time spent in the program, from the kernel's statistics, as a
share of one processor.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from testbed.client import rpc
from testbed.client.runtime import Runtime
from testbed.dataplanes.xdp.link_apart import PROGRAM, ApartProgram
from testbed.dataplanes.xdp.syscall import _attributes, _bpf
from testbed.emulation.namespaces import command, entered, private_mounts
from testbed.emulation.netlink import (
    APART_PRIORITY,
    EGRESS,
    RouteSocket,
    add_gate,
    add_program,
    delete_program,
)
from testbed.topology import addresses
from testbed.topology.units import Unit
from testbed.wire.links import HOST_IFINDEXES
from tests.bench import limit
from tests.bench.host import ROOT, facts
from tests.bench.rack import MARK
from tests.bench.tables import apart, publish
from tests.limits import CALL_S
from tests.privileged.commands import Testbed, environment, open_folder, pids_in_testbed, running, wait_for

USERS = (54331, 54332)
CONFIGURATION = "units: [{hosts: 4}]\nhost_rate_mbps: unshaped\n"
WORKER = Path(__file__).with_name("apart_worker.py")
WINDOW_S, WARM_S = 0.3, 0.03
SENDERS, MTU = 1, 1500
IDLE = "import time\ntime.sleep(3600)\n"
KINDS = ("sums", "tcp")
# of bpf(2), and of struct bpf_prog_info
_NEXT_NUMBER, _BY_NUMBER, _INFO, _ENABLE_STATS, _RUN_TIME = 11, 13, 15, 32, 0
_INFO_BYTES, _NAME_AT, _TIMES_AT = 216, 64, 192


class Job:
    """A running job of a user; `moved` has the times and byte counts that it reported."""

    def __init__(self, testbed: Testbed, folder: Path, uid: int, *words: str) -> None:
        argv = [sys.executable, "-P", "-u", "-m", "testbed.run", "--name", testbed.name, "--no-record"]
        env = environment({"SUDO_UID": str(uid), "SUDO_GID": str(uid), "PYTHONPATH": str(ROOT)})
        self._process = subprocess.Popen(
            [*argv, *words], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.moved: list[tuple[float, int]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            words = line.split()
            if "moved" in words:
                at = words.index("moved")
                self.moved.append((float(words[at + 1]), int(words[at + 2])))

    def has_moved(self) -> bool:
        return len(self.moved) > 1

    def rate_mbps(self, seconds: float) -> float:
        """Return the goodput of the next `seconds`, from the byte counts that the job reports."""
        began, count = time.monotonic(), len(self.moved)
        wait_for(lambda: self.moved[-1][0] >= began + seconds, "its bytes of the window")
        within = [each for each in self.moved[count - 1 :] if began <= each[0] <= began + seconds]
        (first, before), (last, after) = within[0], within[-1]
        return (after - before) * 8e-6 / (last - first)

    def end(self) -> None:
        self._process.kill()
        self._process.wait(CALL_S)
        self._reading.join(CALL_S)


def states(testbed: Testbed) -> list[str]:
    """Return the states of a testbed's jobs."""
    said = rpc.call(Runtime.of(testbed.name).socket, "status", timeout_s=CALL_S)
    return [job["state"] for job in said["jobs"]]


class Spent:
    """The kernel's statistics of all programs of bpf/link_apart.c, including those of other testbeds. A
    context manager: the kernel counts only meanwhile.
    """

    def __enter__(self) -> Spent:
        self._fd = _bpf(_ENABLE_STATS, _attributes("=I", _RUN_TIME), "enable statistics")
        self.windows: list[tuple[int, int, float]] = []  # time in the program in ns, its runs, seconds
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @contextlib.contextmanager
    def window(self) -> Iterator[None]:
        """Record the time spent during the block."""
        began, (time_ns, runs) = time.monotonic(), self._totals()
        yield
        seconds, (time_now_ns, runs_now) = time.monotonic() - began, self._totals()
        self.windows.append((time_now_ns - time_ns, runs_now - runs, seconds))

    def _totals(self) -> tuple[int, int]:
        number, time_ns, runs = 0, 0, 0
        while True:
            asked = _attributes("=II", number, 0)
            try:
                _bpf(_NEXT_NUMBER, asked, "the next program")
            except FileNotFoundError:
                return time_ns, runs
            number = struct.unpack_from("=I", asked, 4)[0]
            with contextlib.suppress(FileNotFoundError):  # the program was unloaded meanwhile
                fd, info = _bpf(_BY_NUMBER, _attributes("=I", number), "a program"), _buffer()
                _bpf(_INFO, _attributes("=IIQ", fd, len(info), ctypes.addressof(info)), "a program's facts")
                os.close(fd)
                if info.raw[_NAME_AT : _NAME_AT + 16].rstrip(b"\0") == PROGRAM.encode():
                    time_ns, runs = (sum(each) for each in zip((time_ns, runs), _times(info), strict=True))

    def summed_up(self) -> dict[str, float]:
        time_ns, runs, seconds = (sum(each) for each in zip(*self.windows, strict=True))
        return {
            "ns_a_run": time_ns / max(1, runs),
            "runs_per_s": runs / seconds,
            "share": time_ns * 1e-9 / seconds,
        }


def _buffer() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(_INFO_BYTES)


def _times(info: ctypes.Array[ctypes.c_char]) -> tuple[int, int]:
    time_ns, runs = struct.unpack_from("=QQ", info, _TIMES_AT)
    return int(time_ns), int(runs)


def measured(kind: str, unit: str, turns: int, gate: Gate, rate: Callable[[], float]) -> dict[str, Any]:
    """Return the medians with the program and without it, and the middle half of the turns' ratios."""
    order, rows = random.Random(1), []
    with Spent() as spent:
        for _ in range(turns):
            first, values = order.random() < 0.5, {}
            for is_attached in (first, not first):
                gate.set(is_attached)
                with spent.window() if is_attached else contextlib.nullcontext():
                    values[is_attached] = rate()
            rows.append((values[True], values[False]))
    gate.set(True)
    ratios = sorted(attached / without for attached, without in rows)
    quarters = statistics.quantiles(ratios, n=4)
    return {
        "kind": kind,
        "unit": unit,
        "turns": turns,
        "attached": statistics.median(attached for attached, _ in rows),
        "without": statistics.median(without for _, without in rows),
        "ratio": statistics.median(ratios),
        "low": quarters[0],
        "high": quarters[2],
        "all": rows,
        **spent.summed_up(),
    }


class Gate:
    """The program at the interfaces through which hosts send, in their network namespaces; it can be attached
    and detached.
    """

    def __init__(self, namespaces: Sequence[int], fd: int | None = None) -> None:
        """`fd` is the program's descriptor; None: the program that is attached there now."""
        self._places = []
        for namespace in namespaces:
            with entered(namespace), RouteSocket() as route:
                ifindex = socket.if_nametoindex("eth0")
                held = route.programs(ifindex, APART_PRIORITY, EGRESS)
                fd = _bpf(_BY_NUMBER, _attributes("=I", held[0]), "the program") if fd is None else fd
                self._places.append((namespace, ifindex, bool(held)))
        assert fd is not None
        self._fd = fd

    def set(self, is_attached: bool) -> None:
        for at, (namespace, ifindex, was_attached) in enumerate(self._places):
            if was_attached != is_attached:
                attach = add_program(ifindex, self._fd, PROGRAM, APART_PRIORITY, EGRESS)
                detach = delete_program(ifindex, APART_PRIORITY, EGRESS)
                with entered(namespace), RouteSocket() as route:
                    route.send([attach if is_attached else detach])
                self._places[at] = (namespace, ifindex, is_attached)
        time.sleep(WARM_S)


def of_workers(testbed: Testbed) -> list[int]:
    """Return descriptors of the network namespaces of the hosts whose workers send."""
    pids = [
        pid for pid in pids_in_testbed(testbed.pid) if WORKER.name in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    return [os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC) for pid in pids]


def of_jobs(turns: int, kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the figures of a job that sums and of one that streams, each beside another user's idle job."""
    with open_folder() as folder:
        (folder / "idle.py").write_text(IDLE)
        (folder / WORKER.name).write_text(WORKER.read_text())
        (folder / "c.yaml").write_text(CONFIGURATION)
        with running(str(folder / "c.yaml")) as testbed, contextlib.ExitStack() as ending:
            idle = ("--place", "u1:1", "--timeout", "1200", str(folder / "idle.py"))
            ending.callback(Job(testbed, folder, USERS[1], *idle).end)
            wait_for(lambda: states(testbed) == ["running"], "the idle job runs")
            for kind in kinds:
                words = ("--place", "u1:2", "--timeout", "1200", str(folder / WORKER.name), kind)
                job = Job(testbed, folder, USERS[0], *words)
                try:
                    wait_for(job.has_moved, "its first bytes")
                    gate = Gate(of_workers(testbed))
                    yield measured(kind, "Mb/s", turns, gate, partial(job.rate_mbps, WINDOW_S))
                finally:
                    job.end()
                wait_for(lambda: len(states(testbed)) == 1, "it has ended")


def redirected(turns: int) -> dict[str, Any]:
    """Measure, inside the namespaces, how many of a sender's frames are redirected a second, with the program
    at the sender's interface and without it.
    """
    private_mounts("bench")
    with limit.moving("redirect", SENDERS, MTU) as (rig, bpf), ApartProgram() as program:
        with entered(rig.namespaces["s1"]), RouteSocket() as route:
            ifindex = socket.if_nametoindex("eth0")
            route.send([add_gate(ifindex)])
        program.set_user(ifindex, USERS[0])
        tor = addresses.tor_ip(addresses.tor_dpid(Unit(1)))
        program.set_user(interface_of(tor), USERS[0])  # so that both of the program's lookups succeed

        def frames_per_s() -> float:
            began, before = time.monotonic(), limit.count(bpf)
            time.sleep(WINDOW_S)
            return (limit.count(bpf) - before) / (time.monotonic() - began)

        return measured("redirect", "frames/s", turns, Gate([rig.namespaces["s1"]], program.fd), frames_per_s)


def interface_of(ip: str) -> int:
    """Return the key that bpf/link_apart.c computes from an address in 10.0.0.0/16."""
    *_, unit, host = map(int, ip.split("."))
    return HOST_IFINDEXES + (unit << 8) + host


def outside(turns: int) -> dict[str, Any]:
    argv = command([sys.executable, "-m", "tests.bench.apart", "--inside", f"{turns}"], "bench")
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    lines = [line for line in ended.stdout.splitlines() if line.startswith(MARK)]
    if ended.returncode or not lines:
        raise SystemExit(f"apart: exit code {ended.returncode}\n{ended.stderr[-2000:]}")
    return dict(json.loads(lines[-1].removeprefix(MARK)))


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.apart", description=__doc__)
    parser.add_argument("--turns", type=int, default=120, help="of each kind (120)")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS, help="of jobs (both)")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--into", type=Path, help="the document whose table to replace")
    parser.add_argument("--inside", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.inside:
        print(MARK + json.dumps(redirected(arguments.inside)))
        return 0
    rows = []
    load = os.getloadavg()[0]
    for row in (outside(arguments.turns), *of_jobs(arguments.turns, arguments.kinds)):
        print(f"{row['kind']}: {row['ratio']:.3f} ({row['low']:.3f} to {row['high']:.3f})", file=sys.stderr)
        rows.append(row)
    figures = {"host": facts(), "load": load, "rows": rows}
    publish("apart", apart(figures), figures, arguments.json, arguments.into)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
