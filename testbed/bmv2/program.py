"""The compiled P4 programs of this checkout, and what their verdicts are called. Reads files, starts nothing."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.errors import HostError, RequestError
from testbed.wire import spec
from testbed.wire.emit import P4_LAYOUTS

P4_DIR = Path(__file__).resolve().parents[2] / "p4"
LAYOUTS = tuple(P4_LAYOUTS)
_VERDICT = re.compile(r"^const bit<32> V_([A-Z0-9_]+) = (\d+);", re.MULTILINE)


def compiled(layout: str, lanes: int, folder: Path = P4_DIR / "compiled") -> Path:
    """What `simple_switch` loads for packets of so many lanes.

    Raises RequestError for a layout or a number of lanes that there is no program for, HostError where there are none at all.
    """
    if layout not in LAYOUTS:
        raise RequestError(f"bmv2.layout: {layout!r}; accepted are {', '.join(LAYOUTS)}")
    path = folder / f"{layout}-{lanes}.json"
    if path.is_file():
        return path
    names = (re.fullmatch(rf"{layout}-(\d+)\.json", entry.name) for entry in folder.glob("*.json"))
    there = sorted(_mtu(int(found[1])) for found in names if found)
    if not there:
        raise HostError(f"{folder} holds no P4 program of the layout {layout}; check p4/ out again")
    raise RequestError(
        f"mtu: bmv2 has no program of the layout {layout} for an MTU of {_mtu(lanes)}, but for "
        f"{', '.join(map(str, there))}; with p4c installed, `python -m testbed.bmv2.compile --mtu {_mtu(lanes)}` makes one"
    )


def verdict_names(source: Path = P4_DIR / "verdicts.p4") -> dict[int, str]:
    """Index in the counter array `verdicts` -> name."""
    found = _VERDICT.findall(source.read_text())
    return {int(index): name.lower() for name, index in found if name != "COUNT"}  # that one says how many there are


def _mtu(lanes: int) -> int:
    """The smallest whose packets have so many lanes."""
    return 20 + 8 + spec.payload_bytes(lanes)
