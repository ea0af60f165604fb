"""What user space must know of the maps in bpf/maps.h: sizes given to the compiler, and the structs as NumPy types.

`program.load` compares each type here with what the compiler made of the C struct and refuses to start on a difference.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from testbed.wire.spec import LANES, MAX_WORKERS

BPF_DIR = Path(__file__).resolve().parents[2] / "bpf"

ROLE_FINAL, ROLE_PARTIAL, ROLE_TRANSIT = 0, 1, 2

SIZES = {
    "MAX_PORTS": 8192,
    "MAX_JOBS": 1024,
    "SLOT_ENTRIES": 1024,  # two for each of 512 slots
    "MAX_AGGREGATORS": 1024,
    "MAX_GROUP_PORTS": MAX_WORKERS + 64,
    "MAX_GROUPS": 1024,
    "MAX_ROUTES": 32768,
    "MAX_OPTICAL_PORTS": 16384,
    "MAX_HOSTS": 4096,
    "RING_ENTRIES": 512,
    "MAX_FAULTS": 4096,
}

SLOTS = SIZES["SLOT_ENTRIES"] // 2
RING_ENTRIES = SIZES["RING_ENTRIES"]

PORT = np.dtype([("owner", "=u4"), ("number", "=u4"), ("self_ip", ">u4"), ("pad", "=u4")])
JOB_KEY = np.dtype([("owner", "=u4"), ("job", "=u4")])
JOB = np.dtype(
    [
        ("members", "=u8"),
        *(
            (name, "=u4")
            for name in ("generation", "role", "base", "size", "group", "total", "local", "index", "up_base")
        ),
        *((name, ">u4") for name in ("self_ip", "up_ip", "group_ip")),
    ]
)
SLOT = np.dtype(
    [
        ("lock", "=u8"),
        ("bitmap", "=u8"),
        *((name, "=u4") for name in ("generation", "fragment", "state", "count")),
        ("lanes", "=u4", (LANES,)),
    ]
)
ROUTE_KEY = np.dtype([("owner", "=u4"), ("ip", ">u4"), ("prefix", "=u4")])
ROUTE = np.dtype([("ifindex", "=u4"), ("mac", "u1", (6,)), ("pad", "=u2")])
CIRCUIT = np.dtype([("lit_at_ns", "=u8"), ("peer", "=u4"), ("ifindex", "=u4")])
PULLER = np.dtype(
    [("job", "=u4"), ("generation", "=u4"), ("ring", "=u4"), ("ip", ">u4"), ("mac", "u1", (6,)), ("pad", "=u2")]
)
RESULT = np.dtype([("sequence", "=u8"), ("contributors", "=u4"), ("flags", "=u4"), ("lanes", ">u4", (LANES,))])
WAKE = np.dtype([("received", "=u4"), ("wake_at", "=u4")])
FAULT_KEY = np.dtype([("ifindex", "=u4"), ("fragment", "=u4")])
DEVICE = np.dtype([("ifindex", "=u4")])
COUNTER = np.dtype([("count", "=u8")])

# map name -> (key, value)
MAPS: dict[str, tuple[np.dtype, np.dtype]] = {
    "ports": (DEVICE, PORT),
    "jobs": (JOB_KEY, JOB),
    "routes": (ROUTE_KEY, ROUTE),
    "circuits": (DEVICE, CIRCUIT),
    "pullers": (DEVICE, PULLER),
    "faults": (FAULT_KEY, DEVICE),
    "slots_template": (DEVICE, SLOT),
    "ring_template": (DEVICE, RESULT),
    "wake_template": (DEVICE, WAKE),
}


def verdict_names() -> tuple[str, ...]:
    """Names of the verdict counters in their order, read from the enum in bpf/maps.h, lower case without the prefix."""
    text = (BPF_DIR / "maps.h").read_text()
    body = re.search(r"enum verdict \{(.*?)\};", text, re.DOTALL)
    assert body, "bpf/maps.h has an enum verdict"
    names = re.findall(r"\bV_([A-Z_]+)\b", re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL))
    return tuple(name.lower() for name in names if name != "COUNT")
