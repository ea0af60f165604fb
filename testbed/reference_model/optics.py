"""The reference optical switch: what happens to a frame that enters a port. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from testbed.ocs.timetable import Timetable
from testbed.reference_model.output_ports import Emission, Reaction, To, back
from testbed.wire import spec
from testbed.wire.verdicts import Verdict

# EtherType of probes whether a port is lit; these are no traffic and not counted
PROBE = spec.PROBE_ETHERTYPE.to_bytes(2, "big")


@dataclass(slots=True)
class LitPort:
    """A port and the other end of its circuit: `before` until `dark_at_ns`, and `peer` from `lit_at_ns` on.
    Frames that arrive in between are lost.
    """

    before: int | None = None
    peer: int | None = None
    dark_at_ns: int = 0
    lit_at_ns: int = 0


class CrossConnect:
    """An optical switch with these ports. Verdicts are the contract's, and `probe` for uncounted probes."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._ports = {port: LitPort() for port in ports}
        self._kept: tuple[Timetable, Sequence[Mapping[int, int]], int] | None = None

    def turn(self, peers: Mapping[int, int | None], dark_at_ns: int, lit_at_ns: int) -> None:
        """Switch each of these ports to another peer (None: to none), dark from `dark_at_ns` to `lit_at_ns`.

        Until it goes dark, a port keeps its present peer.
        """
        for port, peer in peers.items():
            self._ports[port] = LitPort(self._ports[port].peer, peer, dark_at_ns, lit_at_ns)

    def peer(self, port: int) -> int | None:
        """Return the peer to which a port was last switched."""
        return self._ports[port].peer

    def keep(self, table: Timetable, peers: Sequence[Mapping[int, int]], start_ns: int) -> None:
        """Start a timetable at a time; `peers` are each matching's, by port."""
        self._kept = (table, peers, start_ns)

    def leave(self) -> None:
        """End the timetable."""
        self._kept = None

    def _met(self, port: int, now_ns: int) -> tuple[bool, int | None]:
        """Return whether a port is dark, and its peer."""
        if self._kept and now_ns >= self._kept[2]:
            table, peers, start_ns = self._kept
            phase_ns = (now_ns - start_ns) % table.period_ns
            number = max(n for n, each in enumerate(table.matchings) if each.start_ns <= phase_ns)
            peer = peers[number].get(port)
            stays = peers[number - 1].get(port) == peer and now_ns - self._kept[2] >= table.guard_ns
            is_guard = phase_ns - table.matchings[number].start_ns < table.guard_ns
            return is_guard and not (stays and peer), peer
        lit = self._ports[port]
        is_early = now_ns < lit.dark_at_ns
        return not is_early and now_ns < lit.lit_at_ns, lit.before if is_early else lit.peer

    def receive(self, data: bytes, port: int, now_ns: int) -> Reaction:
        """Return the verdict on a frame that enters a port, and the frame that leaves, unchanged."""
        is_probe = data[12:14] == PROBE
        is_dark, peer = self._met(port, now_ns)
        if is_dark:
            return "probe" if is_probe else Verdict.DARK, []
        if peer is None:
            return "probe" if is_probe else Verdict.UNLIT, []
        if is_probe:
            return "probe", [back(data, port)]
        return Verdict.LIT, [Emission(To.CIRCUIT, data, (peer,))]
