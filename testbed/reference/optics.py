"""The reference optical switch: what becomes of light that enters one of its ports. Pure: the time is an
argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from testbed.contract import spec
from testbed.contract.verdicts import Verdict
from testbed.reference.ways import Emission, Reaction, To, back

# ethertype of the agent's question whether a port is lit, which is no traffic and is not counted
PROBE = spec.PROBE_ETHERTYPE.to_bytes(2, "big")


@dataclass(slots=True)
class LitPort:
    """A port and the other end of its circuit: `before` the time `dark_at_ns`, and `peer` from `lit_at_ns`
    on. Light that arrives between the two is lost.
    """

    before: int | None = None
    peer: int | None = None
    dark_at_ns: int = 0
    lit_at_ns: int = 0


class CrossConnect:
    """An optical switch with these ports. Verdicts are those of the contract, `probe` for what is not
    counted.
    """

    def __init__(self, ports: Iterable[int]) -> None:
        self._ports = {port: LitPort() for port in ports}

    def turn(self, peers: Mapping[int, int | None], dark_at_ns: int, lit_at_ns: int) -> None:
        """Turns each of these ports to another peer (None: to nothing), dark from the one time to the other.

        What it was turned to last it keeps until it goes dark.
        """
        for port, peer in peers.items():
            self._ports[port] = LitPort(self._ports[port].peer, peer, dark_at_ns, lit_at_ns)

    def peer(self, port: int) -> int | None:
        """The other end of what a port was turned to last."""
        return self._ports[port].peer

    def receive(self, data: bytes, port: int, now_ns: int) -> Reaction:
        """The verdict on a frame that enters a port, and the frame that leaves. The frame stays as it is."""
        lit, is_probe = self._ports[port], data[12:14] == PROBE
        is_early = now_ns < lit.dark_at_ns
        if not is_early and now_ns < lit.lit_at_ns:
            return "probe" if is_probe else Verdict.DARK, []
        peer = lit.before if is_early else lit.peer
        if peer is None:
            return "probe" if is_probe else Verdict.UNLIT, []
        if is_probe:
            return "probe", [back(data, port)]
        return Verdict.LIT, [Emission(To.CIRCUIT, data, (peer,))]
