"""Faults on links: loss, duplication, reordering and corruption of the frames of a direction, at given rates.

A fault stage is a BPF program at the ingress of an inner end of a shaped wire, before the redirect. It is
attached at its first use and detached when it is cleared, so that a link without faults pays nothing. Owns
names, attaching and reading back; testbed/dataplanes/xdp/link_faults.py owns the program.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from testbed.dataplanes.xdp.link_faults import PROGRAM, FaultProgram
from testbed.emulation.ingress import attach, detach
from testbed.emulation.links import WireSpec, inner_devices
from testbed.emulation.namespaces import entered
from testbed.emulation.netlink import FAULT_PRIORITY, RouteSocket
from testbed.errors import RequestError, TestbedError
from testbed.machine.links import DIRECTIONS, LinkDisturbance, LinkFault
from testbed.messages.links import FaultStatus

MOST_ENDED = 4_096  # ended faults that are remembered, the newest ones
_ETHERNET_BYTES = 18  # with a VLAN tag


@dataclass(frozen=True, slots=True)
class _Stage:
    fault: LinkFault
    ifindex: int  # the inner end where the frames arrive


class LinkFaults:
    """The fault stages of a fabric's links. Thread-safe.

    While a link has a stage, `make_checksums` (`Wires.make_checksums`) lets its hosts compute the checksums
    of what they send: a checksum computed after the stage would be correct for a corrupted frame.
    """

    def __init__(
        self, namespace: int, wires: Sequence[WireSpec], make_checksums: Callable[[str, bool], None]
    ) -> None:
        self._wires = {wire.name: wire for wire in wires}
        self._make_checksums = make_checksums
        self._longest = max((wire.mtu for wire in wires), default=0) + _ETHERNET_BYTES
        with entered(namespace):
            self._route = RouteSocket()
        self._program: FaultProgram | None = None
        self._stages: dict[tuple[str, str], _Stage] = {}
        self._delayed: set[int] = set()  # inner ends whose frames a thread delays
        self._ended: deque[tuple[float, LinkDisturbance]] = deque(maxlen=MOST_ENDED)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Detach every stage and release the program."""
        with self._route, self._lock:
            self._end_stages(list(self._stages))

    def set(self, link: str, fault: LinkFault, direction: str = "both") -> None:
        """Set a link's fault in place of its present one; counters restart at 0, and held frames are lost.

        RequestError for a link that does not exist or has no rate.
        """
        if direction not in (*DIRECTIONS, "both"):
            raise RequestError(f"direction: {direction!r}; up, down or both is accepted")
        wire = self._wire(link)
        with self._lock:
            devices = self._route.devices()
            a, b = (devices[device].ifindex for device in inner_devices(wire))
            for towards, ifindex, other in (("up", a, b), ("down", b, a)):
                if direction in (towards, "both"):
                    self._set(link, towards, ifindex, ifindex if wire.is_bridged else other, fault)

    def clear(self, link: str | None = None) -> None:
        """End the faults of a link, or of all links."""
        if link is not None:
            self._wire(link)
        with self._lock:
            keys = [key for key in self._stages if link in (None, key[0])]
            self._end_stages(keys)
            for name in dict.fromkeys(name for name, _ in keys):
                self._make_checksums(name, False)

    def follow_delay(self, ifindex: int, is_delayed: bool) -> None:
        """Let copies that faults make of frames at an inner end be delayed as the frames are (DelayStage)."""
        with self._lock:
            if is_delayed == (ifindex in self._delayed):
                return
            self._delayed ^= {ifindex}
            if self._program is not None:
                self._program.recirculate(ifindex, is_delayed)

    def states(self) -> tuple[FaultStatus, ...]:
        """Return the fault of every direction, in the order of the links."""
        with self._lock:
            if self._program is None:
                return ()
            return tuple(
                FaultStatus(
                    link, towards, **asdict(stage.fault), counters=self._program.counters(stage.ifindex)
                )
                for (link, towards), stage in self._in_order()
            )

    def now(self) -> list[LinkDisturbance]:
        """Return the fault of every direction, without counters."""
        with self._lock:
            return [LinkDisturbance(*key, stage.fault) for key, stage in self._in_order()]

    def ended(self, since_s: float) -> list[LinkDisturbance]:
        """Return the faults that were cleared or replaced since a time of the monotonic clock."""
        with self._lock:
            return [fault for at_s, fault in self._ended if at_s >= since_s]

    def _note_end(self, key: tuple[str, str]) -> None:
        self._ended.append((time.monotonic(), LinkDisturbance(*key, self._stages[key].fault)))

    def counters(self, link: str, direction: str) -> dict[str, int]:
        """Return testbed.dataplanes.xdp.link_faults.COUNTERS of one direction. RequestError if it has no
        fault.
        """
        with self._lock:
            stage = self._stages.get((link, direction))
            if stage is None or self._program is None:
                raise RequestError(f"link {link}, {direction}: it has no fault")
            return self._program.counters(stage.ifindex)

    def _in_order(self) -> list[tuple[tuple[str, str], _Stage]]:
        return sorted(self._stages.items(), key=lambda item: self._place(*item[0]))

    def _place(self, link: str, towards: str) -> tuple[int, int]:
        return list(self._wires).index(link), DIRECTIONS.index(towards)

    def require(self, link: str) -> None:
        """Raise RequestError if the link does not exist, or has no room for a stage."""
        self._wire(link)

    def _wire(self, link: str) -> WireSpec:
        wire = self._wires.get(link)
        shaped = self.shaped()
        accepted = f"accepted are {', '.join(shaped)}" if shaped else "this testbed has no link with a rate"
        if wire is None:
            raise RequestError(f"link {link}: there is none; {accepted}")
        if wire.rate_mbps is None:
            raise RequestError(
                f"link {link}: it has no rate, and a fault stage only fits into a link that has; {accepted}"
            )
        return wire

    def shaped(self) -> list[str]:
        """Return the links that have a rate, and so room for a stage, in their order."""
        return [name for name, wire in self._wires.items() if wire.rate_mbps is not None]

    # ---- under the lock ----

    def _set(self, link: str, towards: str, ifindex: int, egress: int, fault: LinkFault) -> None:
        if self._program is None:
            self._program = FaultProgram(self._longest)
            for end in self._delayed:
                self._program.recirculate(end, True)
        own = hashlib.blake2b(f"{fault.seed}/{link}/{towards}".encode(), digest_size=8).digest()
        self._program.set_stage(
            ifindex,
            egress,
            (fault.loss, fault.duplicate, fault.reorder, fault.corrupt),
            fault.distance,
            fault.cells,
            int.from_bytes(own, "little"),
        )
        if (link, towards) not in self._stages:
            self._make_checksums(link, True)
            try:
                attach(
                    self._route, [ifindex], self._program, PROGRAM, FAULT_PRIORITY, f"link {link}: its fault"
                )
            except TestbedError:
                self._program.drop_stage(ifindex)
                if not any(name == link for name, _ in self._stages):
                    self._make_checksums(link, False)
                raise
        if (link, towards) in self._stages:
            self._note_end((link, towards))
        self._stages[link, towards] = _Stage(fault, ifindex)

    def _end_stages(self, keys: Sequence[tuple[str, str]]) -> None:
        for key in keys:
            assert self._program is not None
            self._note_end(key)
            stage = self._stages.pop(key)
            detach(self._route, [stage.ifindex], FAULT_PRIORITY)
            self._program.drop_stage(stage.ifindex)
        if not self._stages and self._program is not None:
            self._program.__exit__(None, None, None)
            self._program = None
