"""Attach an XDP program that passes every frame, in place of the attached one: `python other_program.py
DEVICE`, in the device's network namespace.
"""

from __future__ import annotations

import ctypes
import os
import sys

from bcc import BPF
from bcc.libbcc import lib

PASS_ALL = bytes.fromhex("b7000000020000009500000000000000")  # r0 = XDP_PASS; exit


def main(device: str) -> None:
    fd = lib.bcc_prog_load(
        ctypes.c_int(BPF.XDP), b"pass_all", PASS_ALL, len(PASS_ALL), b"GPL", ctypes.c_uint(0), 0, None, 0
    )
    if fd < 0 or lib.bpf_attach_xdp(device.encode(), fd, 0) < 0:
        sys.exit(os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    main(*sys.argv[1:])
