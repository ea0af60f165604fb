"""Measure the CPU cores that each host of a testbed uses: the processes in its network namespace, and the
kernel's work for its devices. The kernel's part includes XDP sums and TCP's receive path.

The kernel does that work in softirqs, which are charged to no host but to whatever process happens to run. So
the devices of hosts, links and switches are set to threaded NAPI, as in `micro`: a kernel thread polls each
device. A veth device polls only while GRO is on; GRO is set up here so that it merges nothing. Only the
shapers' timers stay outside: they send a link's packets, which the next device's thread then receives.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from reproductions.aleph.micro.clocks import kernel_threads_are_seen, polling_threads, thread_used
from reproductions.live import TestbedOfFigures
from testbed.client.runtime import Runtime
from testbed.emulation.links import WIRES, set_offloads
from testbed.emulation.namespaces import NETNS_DIR, entered
from testbed.emulation.netlink import RouteSocket, set_merging
from testbed.errors import TestbedError
from testbed.topology import addresses

_PROC = Path("/proc")
_EVERY_S = 0.25
_MERGE_NOTHING = 1  # largest merged packet, bytes
_GENERATIONS = 3  # from a testbed's main process to the first in its namespaces
_THREADED = (
    "mount -t sysfs sysfs /sys && cd /sys/class/net && "
    'for each in "$@"; do '
    # skip devices that are not one end of a veth pair
    '[ -d "$each/bridge" ] || [ "$(cat "$each/iflink")" = "$(cat "$each/ifindex")" ] && continue; '
    'echo 1 >"$each/threaded" && cat "$each/threaded" || exit 1; done'
)


@dataclass(frozen=True, slots=True)
class TakenCores:
    """The cores that a host used: its processes, and the kernel's threads for its devices."""

    process: float
    kernel: float


@dataclass(slots=True)
class _Meter:
    """Nanoseconds that a set of threads ran; the time of threads that have ended stays in the sum."""

    ran: dict[int, int] = field(default_factory=dict)
    ended: int = 0

    def read(self, folder: Path, pid: int) -> None:
        with suppress(OSError):  # it has ended
            now, before = thread_used(folder, pid).ran, self.ran.get(pid, 0)
            self.ended += before if now < before else 0  # a new thread reuses the number
            self.ran[pid] = now

    @property
    def seconds(self) -> float:
        return (self.ended + sum(self.ran.values())) / 1e9


class _Polled:
    """A network namespace whose devices are to be polled by kernel threads."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path = path
        self._namespace = stack.enter_context(path.open("rb")).fileno()
        self.inode = os.fstat(self._namespace).st_ino
        with entered(self._namespace):
            self._route = stack.enter_context(RouteSocket())
        self.threads: set[int] = set()
        self._devices: set[tuple[str, int]] = set()
        self._before: set[tuple[str, int]] = set()  # that were up

    def take(self) -> bool:
        """Set new devices to threaded polling, and return whether there were any.

        A device counts as new once it was up in the previous call too: then its creator has finished with it.
        Raises TestbedError where a device cannot be set; the next call tries it again.
        """
        present = {
            (name, each.ifindex) for name, each in self._route.devices().items() if name != "lo" and each.up
        }
        new = sorted((present & self._before) - self._devices)
        self._before = present
        if new:
            for name, ifindex in new:
                set_offloads(name, gro=True, namespace=self._namespace)
                self._route.send([set_merging(ifindex, _MERGE_NOTHING)])
            self.threads |= self._threads([name for name, _ in new])
        self._devices = (self._devices & present) | set(new)
        return bool(new)

    def _threads(self, names: list[str]) -> set[int]:
        """Set these devices to threaded polling, and return the threads that poll them. TestbedError if any
        has none.
        """
        before = polling_threads(_PROC)
        enter = ["nsenter", f"--net={self._path}", "unshare", "--mount", "sh", "-c", _THREADED, "sh"]
        done = subprocess.run([*enter, *names], capture_output=True, text=True, check=False)
        prefixes = tuple(f"napi/{name}-"[:15] for name in names)
        appeared = {
            pid
            for pid in polling_threads(_PROC) - before
            if (_PROC / str(pid) / "comm").read_text().startswith(prefixes)
        }
        if done.returncode or ["1"] * len(appeared) != done.stdout.split():
            reason = (
                done.stderr.strip() or f"{len(appeared)} threads came, and they read {done.stdout.split()}"
            )
            raise TestbedError(f"{self._path.name}: threads for {', '.join(names)}: {reason}")
        return appeared


class HostCores:
    """Meters of a testbed's hosts; a context manager. `unknown` is the reason why there are none: this PID
    namespace hides the kernel's threads. They are visible outside of containers, or in one with the host's
    PIDs.
    """

    def __init__(self, testbed: TestbedOfFigures) -> None:
        self._testbed, self._stack = testbed, ExitStack()
        self.unknown = (
            None if kernel_threads_are_seen(_PROC) else "this PID namespace hides the kernel's threads"
        )
        self._hosts: dict[str, _Polled] = {}
        self._others: list[_Polled] = []
        self._processes: dict[str, _Meter] = {}
        self._kernels: dict[str, _Meter] = {}

    def __enter__(self) -> Self:
        if self.unknown is None:
            with self._stack as stack:
                main = Runtime.of(self._testbed.name).read_main()
                if main is None:
                    raise TestbedError(f"testbed {self._testbed.name!r} is not running")
                process = _within(main.pid)
                folder = _netns(process)
                self._others = [_Polled(path, stack) for path in (process / "ns" / "net", folder / WIRES)]
                for host in self._testbed.topology.hosts:
                    name = addresses.host_name(*host)
                    self._hosts[name] = _Polled(folder / name, stack)
                    self._processes[name], self._kernels[name] = _Meter(), _Meter()
                self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def sampled(self) -> Iterator[CoreSamples]:
        """Sample while the body runs; the samples are complete after the block."""
        samples = CoreSamples(tuple(self._hosts), self.unknown)
        if self.unknown is not None:
            yield samples
            return
        is_over = threading.Event()

        def sample() -> None:
            wait_s = 0.0
            while not is_over.wait(wait_s):
                self._sample(samples)
                wait_s = _EVERY_S

        thread = threading.Thread(target=sample, name="cores")
        thread.start()
        try:
            yield samples
        finally:
            is_over.set()
            thread.join()
        self._sample(samples)

    def _sample(self, samples: CoreSamples) -> None:
        at = time.monotonic()
        try:
            if any([each.take() for each in (*self._others, *self._hosts.values())]):
                samples.changed_s, samples.failed = time.monotonic(), None
            self._read()
        except (TestbedError, OSError) as error:  # for example a device that is still being created
            samples.changed_s, samples.failed = time.monotonic(), str(error)
            return
        samples.add(
            at, [(self._processes[name].seconds, self._kernels[name].seconds) for name in self._hosts]
        )

    def _read(self) -> None:
        processes: dict[int, list[int]] = {each.inode: [] for each in self._hosts.values()}
        for entry in _PROC.iterdir():
            if entry.name.isdecimal():
                with suppress(OSError):  # it has ended
                    processes.get((entry / "ns" / "net").stat().st_ino, []).append(int(entry.name))
        polling: Set[int] = polling_threads(_PROC)
        for name, polled in self._hosts.items():
            for pid in processes[polled.inode]:
                tasks = _PROC / str(pid) / "task"
                with suppress(OSError):
                    for task in tasks.iterdir():
                        self._processes[name].read(tasks, int(task.name))
            polled.threads &= polling  # a removed device's thread ends
            for pid in polled.threads:
                self._kernels[name].read(_PROC, pid)


@dataclass(slots=True)
class CoreSamples:
    """CPU time that hosts had used at each sample: `at` in seconds of CLOCK_MONOTONIC; `taken[sample][host]`
    is a pair of seconds (processes, kernel). `changed_s`: when the last new device began to be polled, or
    when polling could not be set up, for the reason `failed`.
    """

    hosts: tuple[str, ...]
    unknown: str | None
    changed_s: float = 0.0
    failed: str | None = None
    at: list[float] = field(default_factory=list)
    taken: list[list[tuple[float, float]]] = field(default_factory=list)

    def add(self, at: float, taken: list[tuple[float, float]]) -> None:
        self.at.append(at)
        self.taken.append(taken)

    def between(self, start_s: float, end_s: float) -> Mapping[str, TakenCores] | str:
        """Return the cores that each host used between two times, interpolated between samples; or the reason
        why they are not known.
        """
        if self.unknown is not None:
            return self.unknown
        if start_s < self.changed_s:
            return self.failed or "a device came that no thread polled yet"
        if not self.at or not self.at[0] <= start_s < end_s <= self.at[-1]:
            return "there are no samples of that time"
        taken = np.asarray(self.taken)
        cores = {}
        for number, name in enumerate(self.hosts):
            parts = [np.interp([start_s, end_s], self.at, taken[:, number, part]) for part in (0, 1)]
            cores[name] = TakenCores(*(float(end - start) / (end_s - start_s) for start, end in parts))
        return cores


def _within(main: int) -> Path:
    """Find the /proc entry of the first process in a testbed's namespaces, among descendants of its main
    process. TestbedError if there is none.
    """
    generation = [main]
    for _ in range(_GENERATIONS):
        for pid in generation:
            process = _PROC / str(pid)
            if (_netns(process) / WIRES).exists():
                return process
        generation = [child for pid in generation for child in _children(pid)]
    raise TestbedError("the testbed's network namespaces are not found")


def _netns(process: Path) -> Path:
    """Return the folder of a testbed's network namespaces, as a path in this mount namespace."""
    return process / "root" / NETNS_DIR.relative_to("/")


def _children(pid: int) -> list[int]:
    children = []
    for task in (_PROC / str(pid) / "task").iterdir():
        with suppress(OSError):  # it has ended
            children += [int(child) for child in (task / "children").read_text().split()]
    return children
