"""Numbered UDP datagrams between hosts: `rx PORT IDLE_S` prints the numbers that came, the bytes of ECN, and
how long each was under way; `tx IP PORT COUNT GAP_MS TOS` sends.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

BYTES = 1400
_HEAD = struct.Struct("!IQ")  # the number, and when it was sent


def receive(port: int, idle_s: float) -> None:
    """Print what came, once nothing did for so long. The first line says that it listens."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        opened.bind(("", port))
        print("listens", flush=True)
        numbers, ecn, ms = [], [], []
        opened.settimeout(60.0)
        try:
            while True:
                data, controls, _, _ = opened.recvmsg(2048, 64)
                opened.settimeout(idle_s)
                number, sent_ns = _HEAD.unpack(data[: _HEAD.size])
                numbers.append(number)
                ms.append((time.monotonic_ns() - sent_ns) / 1e6)
                ecn.append(controls[0][2][0] & 3)
        except TimeoutError:
            pass
    print(json.dumps({"numbers": numbers, "ecn": ecn, "ms": ms}))


def send(ip: str, port: int, count: int, gap_ms: float, tos: int) -> None:
    """Send so many, at these times."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        began_s = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began_s + number * gap_ms / 1e3 - time.monotonic()))
            opened.sendto(_HEAD.pack(number, time.monotonic_ns()) + bytes(BYTES - _HEAD.size), (ip, port))


if __name__ == "__main__":
    if sys.argv[1] == "rx":
        receive(int(sys.argv[2]), float(sys.argv[3]))
    else:
        send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6]))
