"""Try XDP in the current namespaces: `python -m testbed.dataplanes.xdp.probe`, run by
testbed/host_checks/kernel.py.

Leaves its veth pairs behind, since these namespaces end with it. Prints a JSON object: feature -> [works,
detail].
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import struct
import sys
from typing import Any

from testbed.dataplanes.xdp.layout import BPF_DIR
from testbed.errors import HostError
from testbed.host_checks.features import ProbeFailure
from testbed.host_checks.frames import FRAME, arrives, make_veth, send, tool
from testbed.host_checks.headers import kernel_headers
from testbed.wire.spec import MAX_MTU

GENERIC_MODE, DRIVER_MODE = 1 << 1, 1 << 2  # XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE
_ETHERNET_BYTES = 14


def probe() -> dict[str, tuple[bool, str]]:
    """Send a frame to a program that counts it in a memory-mapped array and copies it to two devices."""
    os.environ["BCC_KERNEL_SOURCE"] = str(kernel_headers())
    from bcc import BPF

    bpf: Any = BPF(text=(BPF_DIR / "doctor_probe.c").read_text(), cflags=["-w"])
    count_and_copy, take = (bpf.load_func(name, BPF.XDP) for name in ("count_and_copy", "take"))
    pairs = ["probe-in", "probe-a", "probe-b"]
    for name in pairs:
        make_veth(name, f"{name}2")
    bpf.attach_xdp("probe-in2", count_and_copy, DRIVER_MODE)
    for index, name in enumerate(pairs[1:]):
        bpf.attach_xdp(f"{name}2", take, DRIVER_MODE)
        _fill(bpf["copies"], index, socket.if_nametoindex(name))
    listeners = [f"{name}2" for name in pairs[1:]]
    reached = arrives(listeners, lambda: send("probe-in", FRAME))
    findings = {
        "broadcast": (
            len(reached) == len(listeners),
            f"{len(reached)} of {len(listeners)} devices got the frame",
        )
    }
    try:
        with mmap.mmap(bpf["seen"].map_fd, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ) as array:
            seen = struct.unpack_from("=Q", array)[0]
    except OSError as error:
        findings["mmap"] = (False, f"mmap of the array: {error.strerror}")
        seen = bpf["seen"][0].frames
    else:
        findings["mmap"] = (seen > 0, f"{seen} frames counted, read through mmap")
    findings["xdp"] = (
        seen > 0,
        "compiled, attached, and saw the frame" if seen else "attached, and the frame never came",
    )
    try:
        findings["jumbo"] = _jumbo(bpf)
    except Exception as error:
        if not is_lack(error):
            raise
        findings["jumbo"] = (False, str(error).splitlines()[0])
    return findings


def _jumbo(bpf: Any) -> tuple[bool, str]:
    """Send a frame of the largest MTU over two pairs joined by a bridge, as in a shaped link of that MTU."""
    measure = bpf.load_func("measure", bpf.XDP)
    tool("ip", "link", "add", "jumbo", "mtu", str(MAX_MTU), "type", "bridge")
    for side in "ab":
        make_veth(f"jumbo-{side}", f"jumbo-{side}2")
        for device in (f"jumbo-{side}", f"jumbo-{side}2"):
            tool("ip", "link", "set", device, "mtu", str(MAX_MTU))
        tool("ip", "link", "set", f"jumbo-{side}2", "master", "jumbo")
    tool("ip", "link", "set", "jumbo", "up")
    bpf.attach_xdp("jumbo-b", measure, GENERIC_MODE)
    frame = FRAME.ljust(_ETHERNET_BYTES + MAX_MTU, b".")
    arrives(["jumbo-b"], lambda: send("jumbo-a", frame))
    length = int(bpf["longest"][0].value)
    said = f"of a frame of {len(frame)} bytes behind a bridge a generic program reads {length}"
    return length == len(frame), said


def _fill(table: Any, index: int, device: int) -> None:
    entry = table.Leaf()
    entry.ifindex = device
    table[ctypes.c_int(index)] = entry


def is_lack(error: Exception) -> bool:
    """Return whether an error shows a lack of the host: a refusal by the kernel, a tool or BCC (a bare
    Exception), or BCC missing.
    """
    lacks = (HostError, ProbeFailure, OSError)
    return type(error) is Exception or isinstance(error, lacks) or getattr(error, "name", "") == "bcc"


def main() -> int:
    try:
        findings = probe()
    except Exception as error:
        if not is_lack(error):
            raise
        findings = {"xdp": (False, str(error).splitlines()[0])}
    print(json.dumps(findings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
