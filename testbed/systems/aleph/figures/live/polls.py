"""The CPU time that the kernel takes for each host of a testbed: a thread polls its link, in the place of
softirqs, which no host's name is on. XDP sums there, and TCP receives.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testbed.reproduction.live import TestbedOfFigures
from testbed.systems.aleph.figures.micro.clocks import kernel_threads_are_seen, polling_threads, thread_used
from testbed.topology import addresses

_PROC = Path("/proc")
_THREADED = (
    "mount -t sysfs sysfs /sys && echo 1 >/sys/class/net/eth0/threaded && "
    '[ "$(cat /sys/class/net/eth0/threaded)" = 1 ]'
)


class Polls:
    """The threads of a testbed's hosts: none where this PID namespace hides the kernel's threads."""

    def __init__(self, testbed: TestbedOfFigures) -> None:
        self._threads: dict[str, int] = {}
        if not kernel_threads_are_seen(_PROC):
            return
        for host in testbed.topology.hosts:
            name = addresses.host_name(*host)
            before = polling_threads(_PROC)
            testbed.command("exec", name, "--", "unshare", "--mount", "sh", "-c", _THREADED)
            (self._threads[name],) = polling_threads(_PROC) - before

    def used_s(self) -> Mapping[str, float]:
        """Return by host the seconds of CPU time of its thread by now."""
        return {name: thread_used(_PROC, pid).ran / 1e9 for name, pid in self._threads.items()}
