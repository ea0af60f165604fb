"""Isolate users' jobs on the links: a host of one user's job cannot reach a host of another's. Hosts without
a job reach all, and jobs of one user reach each other.

A BPF program (bpf/link_apart.c) filters what each host sends, in the host's own network namespace, which is
root's. It is attached at hosts with jobs as long as these are of two users or more, so that a testbed of one
user's jobs pays nothing. Owns attaching, reading back, and the user of each host;
testbed/dataplanes/xdp/link_apart.py owns the program.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from testbed.dataplanes.xdp.link_apart import PROGRAM, ApartProgram
from testbed.emulation.ingress import attach, detach
from testbed.emulation.namespaces import entered
from testbed.emulation.netlink import APART_PRIORITY, EGRESS, RouteSocket, add_gate
from testbed.emulation.parts import HOST_DEVICE
from testbed.errors import TestbedError


class HostsApart:
    """A context manager: entering starts compiling the program on a thread, `prepare` waits for it, and
    leaving releases it. `namespace` returns a descriptor of a host's network namespace. Thread-safe.
    """

    def __init__(self, namespace: Callable[[str], int]) -> None:
        self._namespace = namespace
        self._compiler = ThreadPoolExecutor(1, "apart")
        self._interfaces: dict[str, int] = {}
        self._attached: set[str] = set()
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
                pass  # leaving the program's block releases it

    def prepare(self, interfaces: Mapping[str, int]) -> None:
        """Add the attachment point for the program where each host sends; `interfaces` are by host.
        TestbedError if this kernel has no such point, or does not load the program.
        """
        program = self._loaded.result()
        for host, ifindex in interfaces.items():
            program.set_user(ifindex, None)
            with entered(self._namespace(host)), RouteSocket() as route:
                route.send([add_gate(ifindex)])
        self._interfaces = dict(interfaces)

    def set_users(self, users: Mapping[str, int]) -> None:
        """Set the user of each host with a job; the others have none. Raises TestbedError if the hosts cannot
        be isolated.
        """
        program = self._loaded.result()
        with self._lock:
            for host, ifindex in self._interfaces.items():
                program.set_user(ifindex, users.get(host))
            wanted = set(users) if len(set(users.values())) > 1 else set()
            for host in wanted - self._attached:
                with entered(self._namespace(host)), RouteSocket() as route:
                    what = f"{host}'s {HOST_DEVICE} keeps users apart"
                    attach(route, [self._interfaces[host]], program, PROGRAM, APART_PRIORITY, what, EGRESS)
                self._attached.add(host)
            for host in self._attached - wanted:
                with contextlib.suppress(
                    TestbedError
                ):  # a program that stays attached lets everything through
                    with entered(self._namespace(host)), RouteSocket() as route:
                        detach(route, [self._interfaces[host]], APART_PRIORITY, EGRESS)
                    self._attached.discard(host)

    def dropped(self) -> dict[str, int]:
        """Return the dropped frames by sending host, for hosts with any."""
        program = self._loaded.result()
        counts = {host: program.dropped(ifindex) for host, ifindex in self._interfaces.items()}
        return {host: count for host, count in counts.items() if count}
