"""The maps of bpf/maps.h and of systems' programs as NumPy types: the contract's record for each key and
value.

`compiled.check_layout` compares each type here with the compiler's C struct, and refuses to start if they
differ.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from testbed.aggregation.program import ProgramSource
from testbed.client.environment import data_folder
from testbed.errors import RequestError
from testbed.wire import places, rings, verdicts

BPF_DIR = data_folder("bpf")

SIZES = {size.name: size.value for size in places.SIZES}
SLOTS, RING_SLOTS = places.SLOTS, places.JOB_SLOTS

PORT = places.PORT.dtype()
ENTRY_KEY = places.ENTRY_KEY.dtype()
ENTRY = places.ENTRY.dtype()
ROUTE_KEY = places.ROUTE_KEY.dtype()
ROUTE = places.ROUTE.dtype()
GROUP_WAY = places.GROUP_WAY.dtype()
CIRCUIT = places.CIRCUIT.dtype()
GLIMPSE = places.GLIMPSE.dtype()
TIMETABLE = places.TIMETABLE.dtype()
UNIT_SET = places.UNIT_SET.dtype()
MEETING_KEY = places.MEETING_KEY.dtype()
MEETING = places.MEETING.dtype()
CROSSINGS = places.CROSSINGS.dtype()
FLOW = places.FLOW.dtype()
FLOW_BYTES = np.dtype([("bytes", "=u8")])
COPY = places.COPY.dtype()
PULLER_KEY = places.PULLER_KEY.dtype()
PULLER = places.PULLER.dtype()
WAKE = rings.WAKE.dtype()
DEVICE = np.dtype([("ifindex", "=u4")])


def slot(lanes: int) -> np.dtype:
    """Return struct slot for a fabric with this many lanes per packet."""
    return places.SLOT.dtype(lanes)


def result(lanes: int) -> np.dtype:
    """Return struct result."""
    return rings.RESULT.dtype(lanes)


def maps(lanes: int, systems: Iterable[ProgramSource] = ()) -> dict[str, tuple[np.dtype, np.dtype]]:
    """Return the key and value types of each map, of the core and of systems' programs.

    RequestError for a program's map with a name in use.
    """
    every = _of_the_core(lanes)
    for each in systems:
        for name, record in each.maps.items():
            if name in every:
                raise RequestError(
                    f"program {each.name}: its map {name!r}: there is one of this name already"
                )
            every[name] = (DEVICE, record.dtype(lanes))
    return every


def _of_the_core(lanes: int) -> dict[str, tuple[np.dtype, np.dtype]]:
    return {
        "ports": (DEVICE, PORT),
        "entries": (DEVICE, ENTRY),
        "entry_index": (ENTRY_KEY, DEVICE),
        "routes": (ROUTE_KEY, ROUTE),
        "group_ways": (DEVICE, GROUP_WAY),
        "circuits": (DEVICE, CIRCUIT),
        "glimpses": (DEVICE, GLIMPSE),
        "timetables": (DEVICE, TIMETABLE),
        "meetings": (MEETING_KEY, MEETING),
        "unit_links": (DEVICE, DEVICE),
        "queued_trees": (ENTRY_KEY, UNIT_SET),
        "copies": (DEVICE, COPY),
        "pullers": (PULLER_KEY, PULLER),
        "slots_template": (DEVICE, slot(lanes)),
        "ring_template": (DEVICE, result(lanes)),
        "wake_template": (DEVICE, WAKE),
    }


def verdict_names() -> dict[int, str]:
    """Return the names of the counters in the map `verdicts`, by index."""
    return verdicts.names(verdicts.Engine.XDP)
