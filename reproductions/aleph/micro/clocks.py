"""CPU time of a network's own work: the kernel threads that poll one device each (threaded NAPI), and
processes. Namespaces that hide the kernel's threads read them through the outer /proc.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import HostError, SettingError, TestbedError

PINS, DONE = "pins ", "done"
_APPEAR_S = 5.0


@dataclass(frozen=True, slots=True)
class Used:
    """Nanoseconds on a core, and nanoseconds ready to run without one."""

    ran: int = 0
    waited: int = 0

    def __add__(self, other: Used) -> Used:
        return Used(self.ran + other.ran, self.waited + other.waited)

    def __sub__(self, other: Used) -> Used:
        return Used(self.ran - other.ran, self.waited - other.waited)


def threaded(device: str, namespace: str | None = None) -> None:
    """Set a device to be polled by a thread of its own (threaded NAPI). SettingError if that did not
    take effect.
    """
    enter = ["ip", "netns", "exec", namespace] if namespace else []
    path = f"/sys/class/net/{device}/threaded"
    argv = [*enter, "sh", "-c", f"echo 1 > {path} && cat {path}"]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    if ended.stdout.strip() != "1":
        raise SettingError(f"{device}: threaded reads {ended.stdout.strip()!r}: {ended.stderr.strip()}")


def kernel_threads_are_seen(proc: Path) -> bool:
    """Return whether this /proc shows the kernel's threads; only that of the outermost PID namespace does."""
    try:
        return (proc / "2" / "comm").read_text().strip() == "kthreadd"
    except OSError:
        return False


class Threads:
    """The polling threads of the devices `cores`: device -> the core that its thread is to run on. `proc` is
    the outer /proc. Only the outer process can pin these threads: it is asked to on standard output, and
    answers on standard input. HostError where /proc hides the threads, TestbedError where one does not
    appear.
    """

    def __init__(self, proc: Path, cores: Mapping[str, int]) -> None:
        self._proc = proc
        if not kernel_threads_are_seen(proc):
            raise HostError(
                "the kernel's threads that poll devices are measured, and this PID namespace hides them: "
                "outside of a container, or with the host's PIDs, they are seen"
            )
        deadline = time.monotonic() + _APPEAR_S
        while missing := set(cores) - set(pids := self._present(cores)):
            if time.monotonic() > deadline:
                raise TestbedError(f"no thread polls {', '.join(sorted(missing))} after {_APPEAR_S:g} s")
            time.sleep(0.02)
        self._pids = pids
        pins = {str(pid): cores[device] for device, pid in pids.items()}
        print(PINS + json.dumps(pins), flush=True)
        if sys.stdin.readline().strip() != DONE:
            raise TestbedError("who started the microbenchmark has gone")

    def _present(self, devices: Mapping[str, int]) -> dict[str, int]:
        by_name = {f"napi/{device}-": device for device in devices}
        pids = {}
        for pid in polling_threads(self._proc):
            name = _read(self._proc / str(pid) / "comm")  # the kernel truncates it to 15 characters
            device = next((device for prefix, device in by_name.items() if name.startswith(prefix)), None)
            if device:
                pids[device] = pid
        return pids

    def used(self, devices: list[str]) -> Used:
        """Return the CPU time of these devices' threads until now."""
        return sum((thread_used(self._proc, self._pids[device]) for device in devices), Used())


def polling_threads(proc: Path) -> set[int]:
    """Return the PIDs of all kernel threads that poll devices."""
    return {int(comm.parent.name) for comm in proc.glob("[0-9]*/comm") if _read(comm).startswith("napi/")}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""


def process_used(pid: int) -> Used:
    """Return the CPU time, until now, of all threads of a process in this PID namespace."""
    tasks = Path(f"/proc/{pid}/task")
    return sum((thread_used(tasks, int(task.name)) for task in tasks.iterdir()), Used())


def thread_used(folder: Path, pid: int) -> Used:
    """Return the CPU time of a thread until now. `folder` has an entry for the thread: it is a /proc or a
    process's task folder.
    """
    ran, waited, _ = (folder / str(pid) / "schedstat").read_text().split()
    return Used(int(ran), int(waited))
