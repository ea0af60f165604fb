"""`side.py ADDRESS PORT BYTES FILE`: two workers with a TCP connection of the script's own beside their sums.
The first listens on PORT; the second sends BYTES to ADDRESS after each sum, until FILE exists.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

PAUSE_S = 0.1


def main() -> None:
    dist.init_process_group("inc")
    address, port, size, file = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    rank, is_over = dist.get_rank(), torch.zeros(1000)
    with socket.socket() as listening:
        if rank == 0:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((address, port))
            listening.listen()
        dist.barrier()
        end = listening.accept()[0] if rank == 0 else socket.create_connection((address, port))
    if rank == 0:
        print("connected", flush=True)
    with end:
        while not is_over.any():
            is_over.fill_(float(file.exists()))
            dist.all_reduce(is_over)
            if rank == 1:
                end.sendall(bytes(size))
            left = size if rank == 0 else 0
            while left:
                left -= len(end.recv(left))
            time.sleep(PAUSE_S)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
