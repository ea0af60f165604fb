"""The optical switch's program, run on the scenes of light; circuits are made and darkened as by the
controller.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.plane import PINNED_MAPS, PinnedMaps, PinnedPlane, set_port
from testbed.dataplanes.xdp.program import Programs
from testbed.ocs.timetable import Timetable
from testbed.reference_model.output_ports import Emission, To
from testbed.wire.places import Frames, Port
from tests.privileged.observed import Observed
from tests.privileged.xdp_aggregator import departures

_VERDICTS = layout.verdict_names()


class XdpOptics:
    """An optical switch whose ports (number -> ifindex) start lit and without circuits."""

    def __init__(self, programs: Programs, observed: Observed, ports: Mapping[int, int]) -> None:
        self._observed, self._ports = observed, ports
        self._program = programs.program_fd("oxc_port")
        self._numbers = {ifindex: port for port, ifindex in ports.items()}
        maps = PinnedMaps(*(programs.map_fd(name) for name in PINNED_MAPS))
        devices = {port: socket.if_indextoname(ifindex) for port, ifindex in ports.items()}
        self._plane = PinnedPlane(maps, self._program, devices)
        for port, ifindex in ports.items():
            set_port(programs, ifindex, None, port, Port.FABRIC)
        self.turn(dict.fromkeys(ports), 0, 0)
        self.leave()

    def turn(self, peers: Mapping[int, int | None], dark_at_ns: int, lit_at_ns: int) -> None:
        self._plane.turn(peers, dark_at_ns, lit_at_ns)

    def keep(self, table: Timetable, peers: Sequence[Mapping[int, int]], start_ns: int) -> None:
        self._plane.keep(table, peers, {Frames.OWN: [{} for _ in peers]}, lambda: start_ns)

    def leave(self) -> None:
        self._plane.leave()

    def receive(self, data: bytes, port: int, now_ns: int) -> tuple[str, list[Emission]]:
        self._observed.set_clock(now_ns)
        run = self._observed.run(self._program, data, self._ports[port])
        left = departures(run, self._ports[port], self._numbers)
        if not run.verdicts:
            return "probe", left
        return " and ".join(_VERDICTS[index] for index in run.verdicts), [
            Emission(To.CIRCUIT, emission.data, emission.ports) for emission in left
        ]
