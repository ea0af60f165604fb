"""`apart_worker.py sums|tcp`: one of two workers, which sums vectors, or streams over TCP to the first.

The first worker repeatedly prints the time (CLOCK_MONOTONIC) and its byte count. Both run until they are
killed.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator

NUMBERS, CHUNK_BYTES, PORT = 250_000, 1 << 20, 5001
EVERY_S = 0.01


def sums() -> Iterator[int]:
    """Sum vectors for ever, and yield the bytes of each."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("inc")
    value = torch.zeros(NUMBERS)
    while True:
        dist.all_reduce(value)
        yield 4 * NUMBERS


def tcp() -> Iterator[int]:
    """As the first worker, receive for ever, and yield the bytes of each piece; as the second, send,
    and yield 0.
    """
    address, buffer = (os.environ["MASTER_ADDR"], PORT), bytearray(CHUNK_BYTES)
    if os.environ["RANK"] == "0":
        with socket.create_server(address) as listening:
            stream, _ = listening.accept()
        while True:
            yield stream.recv_into(buffer)
    while True:
        try:
            stream = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(EVERY_S)
    while True:
        stream.sendall(buffer)
        yield 0


def main() -> None:
    moved, said_at = 0, 0.0
    for count in {"sums": sums, "tcp": tcp}[sys.argv[1]]():
        moved += count
        now = time.monotonic()
        if now - said_at >= EVERY_S and os.environ["RANK"] == "0":
            said_at = now
            print(f"moved {now:.6f} {moved}", flush=True)


if __name__ == "__main__":
    main()
