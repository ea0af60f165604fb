"""One head and the hosts around it, in the caller's namespaces: veth pairs with a polling thread for each
end, XDP programs at the head's ends, frame sources at the hosts' ends, and socket programs.

Owns devices, programs, sources and processes; knows nothing of figures.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from reproductions.aleph.micro.clocks import Threads, Used, process_used, threaded
from reproductions.aleph.micro.native import HERE, compiled
from testbed.client.environment import CHECKOUT
from testbed.dataplanes.xdp.compiled import CompiledTables
from testbed.dataplanes.xdp.syscall import run_live
from testbed.emulation.links import (
    SYSCTLS,
    WIRES,
    HostAddress,
    WireEnd,
    Wires,
    WireSpec,
    set_offloads,
)
from testbed.emulation.namespaces import NetworkNamespaces, die_with_parent, entered
from testbed.emulation.netlink import RouteSocket, set_merging
from testbed.emulation.spawner import Spawner
from testbed.errors import TestbedError
from testbed.interpreters import isolated

PORT = 5998
MAGIC = 0x616C6570
PROGRAMS = ("make_frame", "sum_up", "take_only", "copy_out", "take")
TALLIES = ("received", "sums", "late", "duplicate", "incomplete", "busy", "taken", "wrong", "foreign")
NOBODY, BY_MAP, BACK = range(3)
SKB_MODE, DRIVER_MODE = 1 << 1, 1 << 2
FLAGS = {"native": DRIVER_MODE, "generic": SKB_MODE}
NOT_MERGED, MERGED = 1, 65536
AT_DEVMAP = 33  # BPF_XDP_DEVMAP, <linux/bpf.h>
_FOREVER = (1 << 32) - 1
_END_S = 5.0
READY_S = 20.0


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores for the head's queues, used in turn, and the cores for everything else."""

    head: tuple[int, ...]
    others: tuple[int, ...]


def cores(count: int, present: Sequence[int]) -> Cores:
    """Assign the last `count` of these cores to the head, and the rest to everything else. Where none is
    left, both share the same cores.
    """
    head, rest = tuple(present[len(present) - count :]), tuple(present[: len(present) - count])
    return Cores(head, rest or head)


class Tools:
    """The tools that all measurements share: the BPF programs and the compiled socket program."""

    def __init__(self, lanes: int, proc: Path) -> None:
        self.lanes, self.proc = lanes, proc
        self._folder = tempfile.TemporaryDirectory(prefix="micro-")
        self.folder = Path(self._folder.name)
        self.traffic = compiled(self.folder, lanes)
        text = (HERE / "micro.c").read_text().replace('#include "micro.h"', (HERE / "micro.h").read_text())
        flags = [f"-DLANES={lanes}"]
        self.compiled = CompiledTables("micro.c", text, dict.fromkeys(PROGRAMS, "XDP"), flags=flags)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.compiled.close()
        self._folder.cleanup()

    @property
    def packet_bytes(self) -> int:
        return 24 + 4 * self.lanes


class Rig:
    """A head with one link for each of `hosts`: a veth pair from device n in the host's namespace to device p
    of the head. A context manager.
    """

    def __init__(self, tools: Tools, hosts: Sequence[str], on: Cores, merging: int = NOT_MERGED) -> None:
        self.tools, self.hosts, self.on, self._merging = tools, tuple(hosts), on, merging
        tag = np.base_repr(int.from_bytes(os.urandom(2), "little"), 36).lower()
        self.head_device = {host: f"p{tag}{at}" for at, host in enumerate(hosts, 1)}
        self.device = {host: f"n{tag}{at}" for at, host in enumerate(hosts, 1)}
        self._namespaces, self._stack = NetworkNamespaces(), ExitStack()
        self._sources: list[int] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        with self._stack:
            self._up()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _up(self) -> None:
        for path, value in SYSCTLS.items():
            Path("/proc/sys", path).write_text(value)
        self._stack.callback(self._namespaces.remove_all)
        self._namespaces.add([WIRES, *self.hosts], SYSCTLS)
        specs = [
            WireSpec(
                host,
                WireEnd(self.device[host], host),
                WireEnd(self.head_device[host], ifindex=256 + at),
                None,
                1 << 20,
            )
            for at, host in enumerate(self.hosts, 1)
        ]
        wires = Wires(self._namespaces, specs)
        self._stack.callback(wires.close)
        wires.make(lambda *_: None)
        addresses = [
            HostAddress(host, self.device[host], f"10.0.{at}.1", 24, self.address(host), ())
            for at, host in enumerate(self.hosts, 1)
        ]
        wires.configure_hosts(addresses, lambda *_: None)
        self.spawner = Spawner()
        self._stack.callback(self.spawner.close)
        self._stack.callback(self._end)
        for host in self.hosts:
            p, n = self.head_device[host], self.device[host]
            argv = ["ip", "address", "add", f"{self.address(host)}/24", "dev", p]
            subprocess.run(argv, check=True)
            self._polled(p, None)
            with entered(self._namespaces[host]):
                self._polled(n, host)
        turn = {host: self.on.head[at % len(self.on.head)] for at, host in enumerate(self.hosts)}
        wanted = {self.head_device[host]: turn[host] for host in self.hosts}
        others = self.on.others
        wanted |= {self.device[host]: others[at % len(others)] for at, host in enumerate(self.hosts)}
        self.threads = Threads(self.tools.proc, wanted)

    def _polled(self, device: str, host: str | None) -> None:
        """Set a device of this thread's namespace to be polled by a thread; a veth device polls only while
        generic receive offload is on.
        """
        set_offloads(device, gro=True)
        with RouteSocket() as route:
            route.send([set_merging(route.devices()[device].ifindex, self._merging)])
        threaded(device, host)

    def address(self, host: str) -> str:
        """Return the head's address on a host's link."""
        return f"10.0.{self.hosts.index(host) + 1}.254"

    # ------------------------------------------------------------------ programs

    def attach(self, program: str, host: str, mode: str = "native", at_head: bool = True) -> int:
        """Attach an XDP program to one end of a host's link, and return that device's index. TestbedError if
        the kernel refuses.
        """
        device = self.head_device[host] if at_head else self.device[host]
        where = contextlib.nullcontext() if at_head else entered(self._namespaces[host])
        with where:
            try:
                self._bpf.attach_xdp(device, self.tools.compiled.functions[program], FLAGS[mode])
            except Exception as error:  # bcc raises a plain Exception
                raise TestbedError(f"attach {program} in {mode} XDP mode: {error}") from error
            set_offloads(device, gro=True)
            return socket.if_nametoindex(device)

    @property
    def _bpf(self) -> Any:
        return self.tools.compiled.bpf

    def reset(self, answer: int, passes: bool = False, receivers: int = 0) -> None:
        """Clear all counters and sums, and set how the programs answer."""
        bpf = self._bpf
        bpf["settings"][ctypes.c_int(0)] = bpf["settings"].Leaf(answer, int(passes), receivers, 0)
        for name in ("flows", "copied", "tally", "delay_count", "sources"):
            bpf[name].clear()
        bpf["receiver_of"].clear()
        with self._mapped("segments") as segments:
            segments[:] = bytes(len(segments))

    @contextlib.contextmanager
    def _mapped(self, name: str) -> Iterator[mmap.mmap]:
        """Map a BPF map's memory into this process for the duration of the block."""
        table = self._bpf[name]
        size = ctypes.sizeof(table.Leaf) * table.max_entries
        with mmap.mmap(table.map_fd, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE) as memory:
            yield memory

    def target(self, worker: int, host: str) -> None:
        """Send a worker's frames from a host's device."""
        with entered(self._namespaces[host]):  # a device's index is valid in its namespace
            index = socket.if_nametoindex(self.device[host])
            self._bpf["targets"][ctypes.c_int(worker)] = ctypes.c_int(index)

    def results_to(self, host: str) -> None:
        self._device_entry("results", 0, host, 0)

    def copies_to(self, hosts: Sequence[str], readdressing: int) -> None:
        for at, host in enumerate(hosts):
            self._device_entry("copies", at, host, readdressing)

    def _device_entry(self, table: str, at: int, host: str, program: int) -> None:
        entry = self._bpf[table].Leaf()
        entry.ifindex = socket.if_nametoindex(self.head_device[host])
        if program:
            entry.bpf_prog.fd = program
        self._bpf[table][ctypes.c_int(at)] = entry

    def readdressing(self) -> int:
        """Load the program that the kernel runs for each copy, and return its file descriptor."""
        return int(self._bpf.load_func("readdress", self._bpf.XDP, attach_type=AT_DEVMAP).fd)

    def receiver(self, index: int, ifindex: int) -> None:
        self._bpf["receiver_of"][ctypes.c_uint(ifindex)] = ctypes.c_uint(index)

    def tally(self) -> dict[str, int]:
        table = self._bpf["tally"]
        return {name: int(sum(table[ctypes.c_int(at)])) for at, name in enumerate(TALLIES)}

    def sent(self, workers: int) -> int:
        return sum(int(self._bpf["flows"][ctypes.c_int(worker)].sent) for worker in range(workers))

    def delays_ns(self) -> Any:
        """Return the round-trip times of answered packets, in ns; only the last ones if there were more than
        the map holds.
        """
        counted = int(self._bpf["delay_count"][ctypes.c_int(0)].value)
        with self._mapped("delays") as memory:
            return np.frombuffer(bytes(memory), np.uint32)[:counted]

    # ------------------------------------------------------------------ sources

    def source(self, workers: int, per_s: float = 0.0) -> None:
        """Start sending frames of `workers` workers, by a process on each core that is not the head's.
        `per_s` is the rate of all of them together; 0 is as many as are accepted.
        """
        count = min(len(self.on.others), workers)
        shares = [len(range(at, workers, count)) for at in range(count)]
        table, first = self._bpf["sources"], 0
        for core, share in zip(self.on.others, shares, strict=False):
            interval = int(1e9 * workers / share / per_s) if per_s else 0
            table[ctypes.c_int(core)] = table.Leaf(interval, 0, 0, 0, first, share, workers, 0)
            first += share
        frame = _frame(self.tools.packet_bytes)
        program = self.tools.compiled.program_fd("make_frame")
        for core in self.on.others[:count]:
            if pid := os.fork():
                self._sources.append(pid)
                continue
            try:
                die_with_parent()
                os.sched_setaffinity(0, {core})
                while True:
                    run_live(program, frame, 0, _FOREVER)
            except BaseException as error:
                os.write(2, f"frames: {error}\n".encode())
            finally:
                os._exit(1)

    def _end(self) -> None:
        for pid in self._sources:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._sources.clear()
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(_END_S)

    # ------------------------------------------------------------------ processes

    def start(self, core: int, host: str | None, *words: str) -> subprocess.Popen[bytes]:
        """Start a process on a core, at a host or (None) at the head: the socket program, or a Python module
        if the first word is -m.
        """
        program = isolated() if words[0] == "-m" else [str(self.tools.traffic)]
        namespace = None if host is None else self._namespaces[host]
        argv = ["taskset", "-c", str(core), *program, *words]
        process = self.spawner.popen(namespace, argv, stdout=subprocess.PIPE, cwd=CHECKOUT)
        self._processes.append(process)
        return process

    def ready(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until a server reports that it listens. TestbedError if it ends before."""
        assert process.stdout is not None
        if b"ready" not in process.stdout.readline():
            raise TestbedError(f"{process.args!r}: ended before it was ready")

    def used_by(self, processes: Sequence[subprocess.Popen[bytes]], ended: bool = False) -> Used:
        """Return the CPU time of these processes until now. TestbedError if any process of the rig has ended,
        unless `ended` allows that.
        """
        for process in self._processes:
            if not ended and process.poll() is not None:
                raise TestbedError(f"{process.args!r}: ended with {process.returncode}")
        return sum((process_used(process.pid) for process in processes), Used())

    def used_by_head(self) -> Used:
        """Return the CPU time, until now, of the threads that poll the head's ends of the links."""
        return self.threads.used(list(self.head_device.values()))


def counted(file: Path) -> int:
    """Read how many bytes a process has received or sent, from its file; 0 before it has written one."""
    try:
        return int(struct.unpack("=Q", file.read_bytes()[:8])[0])
    except (FileNotFoundError, struct.error):
        return 0


def awaited(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds. TestbedError after `READY_S` names what was awaited."""
    deadline = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > deadline:
            raise TestbedError(f"{what}: nothing in {READY_S:g} s")
        time.sleep(0.01)


def _frame(payload_bytes: int) -> bytes:
    """Return an Ethernet frame with a UDP packet to the head; make_frame fills its payload."""
    ethernet = bytes(12) + struct.pack("!H", 0x0800)
    udp_bytes = 8 + payload_bytes
    head = [
        0x45,
        0,
        20 + udp_bytes,
        0,
        0,
        64,
        socket.IPPROTO_UDP,
        0,
        b"\x0a\x00\x01\x01",
        b"\x0a\x00\x01\xfe",
    ]
    ip = struct.pack("!BBHHHBBH4s4s", *head)
    total = sum(struct.unpack("!10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    head[7] = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    ip = struct.pack("!BBHHHBBH4s4s", *head)
    return ethernet + ip + struct.pack("!HHHH", PORT, PORT, udp_bytes, 0) + bytes(payload_bytes)
