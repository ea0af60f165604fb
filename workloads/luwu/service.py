"""Run a job's optimizer node: `python -m workloads.luwu.service DESCRIPTION`, a description in JSON
(testbed/wire/node_settings.py).
"""

from __future__ import annotations

import signal
import socket
import sys

from testbed.wire.node_settings import NodeSettings
from testbed.wire.settings import read
from workloads.luwu.errors import LuwuError
from workloads.luwu.owner import Owner
from workloads.luwu.sockets import end_of, udp_at


def serve(settings: NodeSettings) -> None:
    """Serve the job's workers until all have closed. Raises LuwuError."""
    described, (ip, port) = settings.tree, settings.listen
    try:
        listener = socket.create_server((ip, port), backlog=described.workers)
        udp = udp_at(ip, described.port)
    except OSError as problem:
        raise LuwuError(f"listen on {ip}: {problem}") from problem
    print(f"optimizer node of job {described.job}: ready on {ip} port {port}", flush=True)
    tree = end_of(described, udp, described.group)
    Owner(tree, udp, listener, settings.hosts, slate_fd=settings.slate).serve()


def main(argv: list[str] | None = None) -> None:
    """Serve, then wait for SIGTERM: the workers may still run code after training."""
    (description,) = argv or sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve(read(NodeSettings, description))
    except LuwuError as problem:
        sys.exit(f"optimizer node: {problem}")
    signal.pause()


if __name__ == "__main__":
    main()
