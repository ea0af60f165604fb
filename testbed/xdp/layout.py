"""What user space must know of the maps in bpf/maps.h: sizes given to the compiler, and the structs as NumPy
types.

`program.load` compares each type here with what the compiler made of the C struct and refuses to start on a
difference.
"""

from __future__ import annotations

import re

import numpy as np

from testbed.environment import data_folder

BPF_DIR = data_folder("bpf")

PORT_FABRIC, PORT_HOST, PORT_WORKER, PORT_PS = range(4)
ROLE_NONE, ROLE_FINAL, ROLE_PARTIAL, ROLE_TRANSIT = range(4)

SIZES = {
    "MAX_PORTS": 8192,
    "MAX_JOBS": 4096,
    "MAX_SLOTS": 1024,
    "MAX_AGGREGATORS": 1024,
    "MAX_GROUPS": 1024,
    "MAX_ROUTES": 32768,
    "MAX_OPTICAL_PORTS": 16384,
    "MAX_HOSTS": 4096,
    "MAX_FAULTS": 4096,
}

SLOTS = SIZES["MAX_SLOTS"]  # of a switch

PORT = np.dtype(
    [
        *((name, "=u4") for name in ("owner", "number")),
        ("self_ip", ">u4"),
        *((name, "=u4") for name in ("kind", "job", "worker", "index", "pad")),
    ]
)
JOB_KEY = np.dtype([("owner", "=u4"), ("job", "=u4")])
JOB = np.dtype(
    [
        ("members", "=u8"),
        *(
            (name, "=u4")
            for name in (
                *("id", "generation", "role", "aggregator", "base", "size"),
                *("group", "total", "local", "unit", "up_base"),
            )
        ),
        *((name, ">u4") for name in ("self_ip", "up_ip", "group_ip")),
    ]
)
ROUTE_KEY = np.dtype([("owner", "=u4"), ("ip", ">u4"), ("prefix", "=u4")])
ROUTE = np.dtype([("ifindex", "=u4"), ("mac", "u1", (6,)), ("pad", "=u2")])
CIRCUIT = np.dtype([("lit_at_ns", "=u8"), ("peer", "=u4"), ("ifindex", "=u4")])
PULLER = np.dtype(
    [
        *((name, "=u4") for name in ("job", "generation", "ring", "base", "size")),
        ("ip", ">u4"),
        ("mac", "u1", (6,)),
        ("pad", "=u2"),
    ]
)
WAKE = np.dtype([(name, "=u4") for name in ("received", "wake_at", "notices", "attached")])
FAULT_KEY = np.dtype([("ifindex", "=u4"), ("fragment", "=u4")])
DEVICE = np.dtype([("ifindex", "=u4")])
COUNTER = np.dtype([("count", "=u8")])


def slot(lanes: int) -> np.dtype:
    """struct slot on a fabric with so many lanes a packet."""
    words = [
        ("lock", "=u8"),
        ("bitmap", "=u8"),
        *((name, "=u4") for name in ("generation", "fragment", "state", "count", "marked", "pad")),
    ]
    return np.dtype([*words, ("pairs", "=u8", (lanes // 2,))])


def result(lanes: int) -> np.dtype:
    """struct result."""
    return np.dtype(
        [("sequence", "=u8"), ("contributors", "=u4"), ("flags", "=u4"), ("lanes", ">u4", (lanes,))]
    )


def maps(lanes: int) -> dict[str, tuple[np.dtype, np.dtype]]:
    """Map name -> (key, value)."""
    return {
        "ports": (DEVICE, PORT),
        "jobs": (DEVICE, JOB),
        "job_index": (JOB_KEY, DEVICE),
        "routes": (ROUTE_KEY, ROUTE),
        "circuits": (DEVICE, CIRCUIT),
        "pullers": (DEVICE, PULLER),
        "faults": (FAULT_KEY, DEVICE),
        "slots_template": (DEVICE, slot(lanes)),
        "ring_template": (DEVICE, result(lanes)),
        "wake_template": (DEVICE, WAKE),
    }


def verdict_names() -> tuple[str, ...]:
    """Names of the verdict counters in their order, read from the enum in bpf/maps.h, lower case without the
    prefix.
    """
    text = (BPF_DIR / "maps.h").read_text()
    body = re.search(r"enum verdict \{(.*?)\};", text, re.DOTALL)
    assert body, "bpf/maps.h has an enum verdict"
    names = re.findall(r"\bV_([A-Z_]+)\b", re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL))
    return tuple(name.lower() for name in names if name != "COUNT")
