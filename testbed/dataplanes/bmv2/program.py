"""The compiled P4 programs of this checkout, and what their numbers are called. Reads files, starts
nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

from testbed.client.environment import data_folder
from testbed.errors import HostError, RequestError
from testbed.wire import spec, verdicts
from testbed.wire.render_p4 import P4_LAYOUTS

P4_DIR = data_folder("p4")
COMPILED = P4_DIR / "compiled"


def target(layout: str, lanes: int, folder: Path = COMPILED) -> Path:
    """Return the path of the program for packets of so many lanes, once it is compiled."""
    return folder / f"{layout}-{lanes}.json"


def lanes_of(program: Path) -> int:
    """Return how many lanes the packets of a compiled program have."""
    return int(program.stem.rpartition("-")[2])


def compiled(layout: str, mtu: int, folder: Path = COMPILED) -> Path:
    """Return what `simple_switch` loads on a fabric of this MTU in bytes.

    Raises RequestError for a layout or an MTU that there is no program for, HostError where there are none at
    all.
    """
    if layout not in P4_LAYOUTS:
        raise RequestError(f"bmv2.layout: {layout!r}; accepted are {', '.join(P4_LAYOUTS)}")
    path = target(layout, spec.lanes_for(mtu), folder)
    if path.is_file():
        return path
    names = (re.fullmatch(rf"{layout}-(\d+)\.json", entry.name) for entry in folder.glob("*.json"))
    mtus = sorted(_mtu(int(name[1])) for name in names if name)
    if not mtus:
        raise HostError(f"{folder} holds no P4 program of the layout {layout}; check p4/ out again")
    raise RequestError(
        f"mtu: bmv2 has no program of the layout {layout} for an MTU of {mtu}, but for "
        f"{', '.join(map(str, mtus))}; with p4c installed, `python -m testbed.dataplanes.bmv2.compile --mtu "
        f"{mtu}` "
        f"makes one"
    )


def verdict_names() -> dict[int, str]:
    """Return the names of the counters in the array `verdicts`, by index."""
    return verdicts.names(verdicts.Engine.P4)


def _mtu(lanes: int) -> int:
    """Return the smallest MTU whose packets have so many lanes."""
    return 20 + 8 + spec.payload_bytes(lanes)
