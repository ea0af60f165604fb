"""The data planes that a unit may have, by engine, with the facts that other packages need. Pure.

A further engine is an entry here and a folder of testbed/dataplanes/, with the modules that
testbed/dataplanes/folders.py names.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.wire.spec import ONE_BUFFER_MTU, lanes_for


@dataclass(frozen=True, slots=True)
class DataPlane:
    """The facts about units with this engine that matter outside its own folder."""

    engine: str
    folder: str  # the folder of testbed/dataplanes/ that makes its switches
    sums: bool  # whether its ToR sums for jobs whose programs have sources for it
    takes_fewer: bool  # whether its programs accept packets with fewer lanes than the MTU holds
    takes_empties: bool  # whether its ToR accepts pushes without lanes, as zeros
    passes_copies: bool  # whether its ToR forwards results that a host sends to another host's address
    answers: bool  # whether its ToR answers questions (wire/recovery.py)
    is_bridge: bool  # the ToR is a bridge of Open vSwitch, with OpenFlow, and has XDP programs at its ports
    # what a frame costs its ToR at most, in what it costs one of xdp (docs/studies/performance.md, "Five ways
    # to sum")
    frame_times: float = 1.0

    def has_room_for(self, lanes: int) -> bool:
        """Return whether its ToR can make a sum of that many lanes from a push without any. No program can
        lengthen a frame beyond one buffer.
        """
        return self.takes_empties and lanes <= lanes_for(ONE_BUFFER_MTU)


DATA_PLANES = {
    plane.engine: plane
    for plane in (
        DataPlane(
            "xdp",
            folder="xdp",
            sums=True,
            takes_fewer=True,
            takes_empties=True,
            passes_copies=True,
            answers=True,
            is_bridge=True,
        ),
        DataPlane(
            "bmv2",
            folder="bmv2",
            sums=True,
            takes_fewer=False,
            takes_empties=False,
            passes_copies=False,
            answers=False,
            is_bridge=False,
            frame_times=49.0,
        ),
        DataPlane(
            "none",
            folder="xdp",
            sums=False,
            takes_fewer=True,
            takes_empties=True,
            passes_copies=True,
            answers=True,
            is_bridge=True,
        ),
    )
}
ENGINES = tuple(DATA_PLANES)
HOSTS = "xdp"  # the engine of all hosts that are places
