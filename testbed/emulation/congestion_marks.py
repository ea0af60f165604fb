"""Mark congestion on links: explicit congestion notification (RFC 3168) at the queue of the token bucket, in
each direction of a shaped wire.

A BPF program at the ingress of the inner ends, between the fault stage and the redirect, marks a frame if too
many bytes wait before it. It marks only frames whose sender declared that it reacts to marks: gradients, and
TCP if net.ipv4.tcp_ecn enables it. Owns thresholds, attaching and reading back;
testbed/dataplanes/xdp/link_marks.py owns the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from testbed.dataplanes.xdp.link_marks import PROGRAM, MarkProgram, QueueSpec
from testbed.emulation.ingress import attach
from testbed.emulation.links import WireSpec, inner_devices
from testbed.emulation.namespaces import entered
from testbed.emulation.netlink import MARK_PRIORITY, RouteSocket
from testbed.machine.links import burst_bytes, rate_bytes_per_s

_ETHERNET_BYTES = 14
# A quarter of the queue: a sender that doubles its window learns of it in time. Less of a deep queue:
# `_LONGEST_S` of the rate, which late processes may use up without loss.
_SHARE = 4
_LONGEST_S = 0.002
_LEAST_FRAMES = 4


def threshold_bytes(wire: WireSpec) -> int:
    """Return the number of waiting bytes from which frames are marked."""
    deep = max(
        _LEAST_FRAMES * (wire.mtu + _ETHERNET_BYTES),
        round(rate_bytes_per_s(wire.rate_mbps or 0.0) * _LONGEST_S),
    )
    return min(wire.buffer_bytes // _SHARE, deep)


def queue_of(wire: WireSpec) -> QueueSpec:
    """Return a shaped wire's queue, as its program simulates it."""
    rate_mbps = wire.rate_mbps or 0.0
    return QueueSpec(
        rate_bytes_per_s(rate_mbps),
        burst_bytes(rate_mbps, wire.mtu),
        wire.buffer_bytes,
        threshold_bytes(wire),
    )


class LinkMarks:
    """The marking on a fabric's shaped links. A context manager: entering starts compiling the program on a
    thread, while devices are made; `attach` waits for it; leaving releases the program. Without shaped links
    there is none.
    """

    def __init__(self, wires: Sequence[WireSpec]) -> None:
        self._wires = {wire.name: wire for wire in wires if wire.rate_mbps is not None}
        self._inner: dict[str, tuple[int, int]] = {}
        self._compiler = ThreadPoolExecutor(1, "marks")
        self._loaded: Future[MarkProgram] | None = None

    def __enter__(self) -> LinkMarks:
        if self._wires:
            self._loaded = self._compiler.submit(MarkProgram)
        return self

    def __exit__(self, *_: object) -> None:
        self._compiler.shutdown()
        if self._loaded and not self._loaded.exception():
            with self._loaded.result():
                pass  # leaving the program's block releases it

    @property
    def _program(self) -> MarkProgram:
        assert self._loaded is not None, "links without a rate have no marks"
        return self._loaded.result()

    def attach(self, namespace: int) -> None:
        """Attach the program before each shaped link's queues, in the namespace of their inner ends."""
        if not self._wires:
            return
        program = self._program
        with entered(namespace):
            opened = RouteSocket()
        with opened as route:
            devices = route.devices()
            for name, wire in self._wires.items():
                a, b = (devices[device].ifindex for device in inner_devices(wire))
                self._inner[name] = a, b
            self.set_rates({name: wire.rate_mbps or 0.0 for name, wire in self._wires.items()})
            ends = [ifindex for pair in self._inner.values() for ifindex in pair]
            attach(route, ends, program, PROGRAM, MARK_PRIORITY, "links mark what waits in them")

    def set_rates(self, rates_mbps: Mapping[str, float]) -> None:
        """Update the links' rates, by name."""
        for name, rate_mbps in rates_mbps.items():
            wire = self._wires[name] = replace(self._wires[name], rate_mbps=rate_mbps)
            for ifindex in self._inner[name]:
                self._program.set_queue(ifindex, queue_of(wire))

    def counters(self, link: str) -> list[dict[str, int]]:
        """Return the frames seen and marked: from end a to b, and back."""
        return [self._program.counters(ifindex) for ifindex in self._inner[link]]
