"""The reference optical switch: what becomes of light that enters one of its ports. Pure: the time is an
argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.contract import spec
from testbed.contract.verdicts import Verdict
from testbed.reference.ways import Emission, Reaction, To, back

# ethertype of the agent's question whether a port is lit, which is no traffic and is not counted
PROBE = spec.PROBE_ETHERTYPE.to_bytes(2, "big")


@dataclass(slots=True)
class LitPort:
    """A port and the other end of its circuit: light that arrives before `lit_at_ns` is lost."""

    peer: int | None = None
    lit_at_ns: int = 0


class CrossConnect:
    """An optical switch with these ports. Verdicts are those of the contract, `probe` for what is not
    counted.
    """

    def __init__(self, ports: Iterable[int]) -> None:
        self._ports = {port: LitPort() for port in ports}

    def darken(self, ports: Sequence[int], until_ns: int) -> None:
        """Loses all light that enters these ports before `until_ns`."""
        for port in ports:
            self._ports[port].lit_at_ns = until_ns

    def connect(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Makes circuits, both ways; their ports stay dark until their time."""
        for a, b in pairs:
            self._ports[a].peer, self._ports[b].peer = b, a

    def disconnect(self, ports: Sequence[int]) -> None:
        """Ends the circuits at these ports (name both ends)."""
        for port in ports:
            self._ports[port].peer = None

    def peer(self, port: int) -> int | None:
        """The other end of a port's circuit."""
        return self._ports[port].peer

    def receive(self, data: bytes, port: int, now_ns: int) -> Reaction:
        """The verdict on a frame that enters a port, and the frame that leaves. The frame stays as it is."""
        lit, is_probe = self._ports[port], data[12:14] == PROBE
        if now_ns < lit.lit_at_ns:
            return "probe" if is_probe else Verdict.DARK, []
        if lit.peer is None:
            return "probe" if is_probe else Verdict.UNLIT, []
        if is_probe:
            return "probe", [back(data, port)]
        return Verdict.LIT, [Emission(To.CIRCUIT, data, (lit.peer,))]
