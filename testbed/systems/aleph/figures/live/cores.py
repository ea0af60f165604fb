"""The cores that each host of a testbed takes: the processes in its network namespace, and the kernel's
work for its devices. XDP sums in the latter, and TCP receives.

That work is done in softirqs, which no host's name is on, and within whatever process runs just then. So a
thread of the kernel polls each device here, at both ends of each link, as in `figures/micro`: devices poll
while GRO is on, which here merges nothing.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from testbed.client.runtime import Runtime
from testbed.emulation.links import WIRES, set_offloads
from testbed.emulation.namespaces import NETNS_DIR, entered
from testbed.emulation.netlink import RouteSocket, set_merging
from testbed.errors import TestbedError
from testbed.reproduction.live import TestbedOfFigures
from testbed.systems.aleph.figures.micro.clocks import kernel_threads_are_seen, polling_threads, thread_used
from testbed.topology import addresses

_PROC = Path("/proc")
_EVERY_S = 0.25
_MERGE_NOTHING = 1  # byte
_GENERATIONS = 3  # from a testbed's main process to the first in its namespaces
_THREADED = (
    "mount -t sysfs sysfs /sys && cd /sys/class/net && "
    'for each in "$@"; do [ -d "$each/bridge" ] && continue; '  # which polls nothing
    'echo 1 >"$each/threaded" && cat "$each/threaded" || exit 1; done'
)


@dataclass(frozen=True, slots=True)
class TakenCores:
    """The cores that a host took: its processes, and the kernel's threads for its devices."""

    process: float
    kernel: float


@dataclass(slots=True)
class _Meter:
    """Nanoseconds of threads; those of one that has ended stay in the sum."""

    ran: dict[int, int] = field(default_factory=dict)

    def read(self, folder: Path, pid: int) -> None:
        with suppress(OSError):  # it has ended
            self.ran[pid] = thread_used(folder, pid).ran

    @property
    def seconds(self) -> float:
        return sum(self.ran.values()) / 1e9


class _Polled:
    """A network namespace all of whose devices are polled by threads of the kernel."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path = path
        self._namespace = stack.enter_context(path.open("rb")).fileno()
        self.inode = os.fstat(self._namespace).st_ino
        with entered(self._namespace):
            self._route = stack.enter_context(RouteSocket())
        self.threads: set[int] = set()
        self._devices: set[tuple[str, int]] = set()

    def take(self) -> bool:
        """Have devices that are new polled; return whether there were any. TestbedError where one is not."""
        present = {(name, each.ifindex) for name, each in self._route.devices().items() if name != "lo"}
        new = sorted(present - self._devices)
        self._devices = present
        if not new:
            return False
        names = [name for name, _ in new]
        for name, ifindex in new:
            set_offloads(name, gro=True, namespace=self._namespace)
            self._route.send([set_merging(ifindex, _MERGE_NOTHING)])
        before = polling_threads(_PROC)
        enter = ["nsenter", f"--net={self._path}", "unshare", "--mount", "sh", "-c", _THREADED, "sh"]
        done = subprocess.run([*enter, *names], capture_output=True, text=True, check=False)
        appeared = polling_threads(_PROC) - before
        if done.returncode or ["1"] * len(appeared) != done.stdout.split():
            said = done.stderr.strip() or f"{len(appeared)} threads came, and they read {done.stdout.split()}"
            raise TestbedError(f"{self._path.name}: threads for {', '.join(names)}: {said}")
        self.threads |= appeared
        return True


class HostCores:
    """The meters of a testbed's hosts; a context manager. `unknown` says why there are none: where this PID
    namespace hides the kernel's threads, which is not so outside of a container or with the host's PIDs.
    """

    def __init__(self, testbed: TestbedOfFigures) -> None:
        self._testbed, self._stack = testbed, ExitStack()
        self.unknown = (
            None if kernel_threads_are_seen(_PROC) else "this PID namespace hides the kernel's threads"
        )
        self._hosts: dict[str, _Polled] = {}
        self._wires: _Polled | None = None
        self._processes: dict[str, _Meter] = {}
        self._kernels: dict[str, _Meter] = {}

    def __enter__(self) -> Self:
        if self.unknown is None:
            with self._stack as stack:
                folder = _namespaces(int(Runtime.of(self._testbed.name).read_main()["pid"]))
                self._wires = _Polled(folder / WIRES, stack)
                for host in self._testbed.topology.hosts:
                    name = addresses.host_name(*host)
                    self._hosts[name] = _Polled(folder / name, stack)
                    self._processes[name], self._kernels[name] = _Meter(), _Meter()
                self._take()
                self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def sampled(self) -> Iterator[CoreSamples]:
        """Sample while the body runs; what it took is known behind it."""
        samples = CoreSamples(tuple(self._hosts), self.unknown)
        if self.unknown is not None:
            yield samples
            return
        is_over = threading.Event()

        def sample() -> None:
            try:
                while not is_over.wait(_EVERY_S):
                    self._sample(samples)
            except (TestbedError, OSError) as error:
                samples.unknown = str(error)

        self._sample(samples)
        thread = threading.Thread(target=sample, name="cores")
        thread.start()
        try:
            yield samples
        finally:
            is_over.set()
            thread.join()
        self._sample(samples)

    def _take(self) -> bool:
        """Have every device polled; return whether one was not yet."""
        assert self._wires is not None
        return any([each.take() for each in (self._wires, *self._hosts.values())])

    def _sample(self, samples: CoreSamples) -> None:
        at = time.monotonic()
        if self._take():
            samples.changed_s = time.monotonic()
        processes: dict[int, list[int]] = {each.inode: [] for each in self._hosts.values()}
        for entry in _PROC.iterdir():
            if entry.name.isdecimal():
                try:
                    inode = (entry / "ns" / "net").stat().st_ino
                except OSError:
                    continue
                processes.get(inode, []).append(int(entry.name))
        for name, polled in self._hosts.items():
            for pid in processes[polled.inode]:
                tasks = _PROC / str(pid) / "task"
                for task in tasks.iterdir() if tasks.exists() else ():
                    self._processes[name].read(tasks, int(task.name))
            for pid in polled.threads:
                self._kernels[name].read(_PROC, pid)
        samples.add(
            at,
            [(self._processes[name].seconds, self._kernels[name].seconds) for name in self._hosts],
        )


@dataclass(slots=True)
class CoreSamples:
    """The time that hosts had taken by when: `at` in seconds of CLOCK_MONOTONIC, `taken` in seconds, for
    each sample and host that of its processes and that of the kernel. `changed_s`: when the last device began
    to be polled.
    """

    hosts: tuple[str, ...]
    unknown: str | None
    changed_s: float = 0.0
    at: list[float] = field(default_factory=list)
    taken: list[list[tuple[float, float]]] = field(default_factory=list)

    def add(self, at: float, taken: list[tuple[float, float]]) -> None:
        self.at.append(at)
        self.taken.append(taken)

    def between(self, start_s: float, end_s: float) -> Mapping[str, TakenCores] | str:
        """Return what each host took in this time, its ends between samples in proportion; or why that is
        not known.
        """
        if self.unknown is not None:
            return self.unknown
        if self.changed_s > start_s:
            return "a device came that no thread polled yet"
        if not self.at or not self.at[0] <= start_s < end_s <= self.at[-1]:
            return "there are no samples of that time"
        taken = np.asarray(self.taken)
        ends = np.array(
            [
                [
                    [np.interp(at, self.at, taken[:, host, part]) for part in (0, 1)]
                    for host in range(len(self.hosts))
                ]
                for at in (start_s, end_s)
            ]
        )
        cores = (ends[1] - ends[0]) / (end_s - start_s)
        return {name: TakenCores(*map(float, cores[at])) for at, name in enumerate(self.hosts)}


def _namespaces(main: int) -> Path:
    """Return the folder of a testbed's network namespaces, by its main process, as seen from here."""
    generation = [main]
    for _ in range(_GENERATIONS):
        for pid in generation:
            folder = _PROC / str(pid) / "root" / NETNS_DIR.relative_to("/")
            if (folder / WIRES).exists():
                return folder
        generation = [child for pid in generation for child in _children(pid)]
    raise TestbedError("the testbed's network namespaces are not found")


def _children(pid: int) -> list[int]:
    lists = (task / "children" for task in (_PROC / str(pid) / "task").iterdir())
    return [int(child) for each in lists for child in each.read_text().split()]
