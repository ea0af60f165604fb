"""Users' jobs apart on the links: a host of one user's job reaches no host of another's. Hosts without a job
reach all, and jobs of one user each other.

A BPF program where each host sends (bpf/link_apart.c), in the host's own network namespace, which is root's.
Owns attaching, reading back, and whose each host is; testbed/dataplanes/xdp/link_apart.py owns the program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from testbed.dataplanes.xdp.link_apart import PROGRAM, ApartProgram
from testbed.emulation.ingress import attach_egress
from testbed.emulation.namespaces import entered
from testbed.emulation.netlink import RouteSocket
from testbed.emulation.parts import HOST_DEVICE


class HostsApart:
    """A context manager: entering begins to compile the program on a thread, `attach` waits for it, and
    leaving lets go of it. Thread-safe from then on.
    """

    def __init__(self) -> None:
        self._compiler = ThreadPoolExecutor(1, "apart")
        self._interfaces: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._loaded = self._compiler.submit(ApartProgram)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._compiler.shutdown()
        if not self._loaded.exception():
            with self._loaded.result():
                pass  # its end lets go of it

    def attach(self, interfaces: Mapping[str, int], namespace: Callable[[str], int]) -> None:
        """Put the program where each host sends; `interfaces` are by host. HostError where this kernel has no
        such filters.
        """
        program = self._loaded.result()
        for host, ifindex in interfaces.items():
            program.set_user(ifindex, None)
            with entered(namespace(host)), RouteSocket() as route:
                attach_egress(route, ifindex, program, PROGRAM, f"{host}'s {HOST_DEVICE} keeps users apart")
        self._interfaces = dict(interfaces)

    def set_users(self, users: Mapping[str, int]) -> None:
        """Say whose job each host is that is one's; no other is."""
        program = self._loaded.result()
        with self._lock:
            for host in {*users, *self._users}:
                if users.get(host) != self._users.get(host):
                    program.set_user(self._interfaces[host], users.get(host))
            self._users = dict(users)

    def dropped(self) -> dict[str, int]:
        """Return the frames that were dropped, by the host that sent them, of those that did."""
        program = self._loaded.result()
        counts = {host: program.dropped(ifindex) for host, ifindex in self._interfaces.items()}
        return {host: count for host, count in counts.items() if count}
