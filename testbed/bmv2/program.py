"""The compiled P4 programs of this checkout, and what their numbers are called. Reads files, starts
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from testbed.contract import spec
from testbed.contract.emit import P4_LAYOUTS
from testbed.environment import data_folder
from testbed.errors import HostError, RequestError

P4_DIR = data_folder("p4")
COMPILED = P4_DIR / "compiled"
_CONSTANT = re.compile(r"^const bit<\d+> ([A-Z0-9_]+) = (\w+);", re.MULTILINE)


def target(layout: str, lanes: int, folder: Path = COMPILED) -> Path:
    """Where the program for packets of so many lanes is, once it is compiled."""
    return folder / f"{layout}-{lanes}.json"


def compiled(layout: str, mtu: int, folder: Path = COMPILED) -> Path:
    """What `simple_switch` loads on a fabric of this MTU in bytes.

    Raises RequestError for a layout or an MTU that there is no program for, HostError where there are none at
    all.
    """
    if layout not in P4_LAYOUTS:
        raise RequestError(f"bmv2.layout: {layout!r}; accepted are {', '.join(P4_LAYOUTS)}")
    path = target(layout, spec.lanes_for(mtu), folder)
    if path.is_file():
        return path
    names = (re.fullmatch(rf"{layout}-(\d+)\.json", entry.name) for entry in folder.glob("*.json"))
    there = sorted(_mtu(int(found[1])) for found in names if found)
    if not there:
        raise HostError(f"{folder} holds no P4 program of the layout {layout}; check p4/ out again")
    raise RequestError(
        f"mtu: bmv2 has no program of the layout {layout} for an MTU of {mtu}, but for "
        f"{', '.join(map(str, there))}; with p4c installed, `python -m testbed.bmv2.compile --mtu {mtu}` "
        f"makes one"
    )


def verdict_names(source: Path = P4_DIR / "verdicts.p4") -> dict[int, str]:
    """Index in the counter array `verdicts` -> name."""
    found = numbers("V_", source)
    del found["count"]  # says how many there are
    return {index: name for name, index in found.items()}


def numbers(prefix: str, source: Path = P4_DIR / "headers.p4") -> dict[str, int]:
    """The constants of a source whose names begin so: the rest of the name, in small letters -> value."""
    said = dict(_CONSTANT.findall(source.read_text()))
    return {name.removeprefix(prefix).lower(): _value(name, said) for name in said if name.startswith(prefix)}


def _value(name: str, said: Mapping[str, str]) -> int:
    """A constant may be another one's."""
    text = said[name]
    return _value(text, said) if text in said else int(text, 0)


def _mtu(lanes: int) -> int:
    """The smallest whose packets have so many lanes."""
    return 20 + 8 + spec.payload_bytes(lanes)
