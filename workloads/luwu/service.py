"""The optimizer node's process of a job: `python -m workloads.luwu.service DESCRIPTION`, where that is JSON
(testbed/jobs/services.py, `owner_description`).
"""

from __future__ import annotations

import json
import signal
import socket
import sys
from typing import Any

from workloads.luwu.errors import LuwuError
from workloads.luwu.owner import Owner
from workloads.luwu.sockets import end_of, udp_at


def serve(described: dict[str, Any]) -> None:
    """Serve the job's workers until they have closed. Raises LuwuError."""
    ip, port = described["listen"]
    try:
        listener = socket.create_server((ip, port), backlog=int(described["workers"]))
        udp = udp_at(ip, int(described["port"]))
    except OSError as problem:
        raise LuwuError(f"listen on {ip}: {problem}") from problem
    print(f"optimizer node of job {described['job']}: ready on {ip} port {port}", flush=True)
    slate_fd = int(described.get("slate", -1))
    tree = end_of(described, udp, described["group"])
    Owner(tree, udp, listener, described["hosts"], slate_fd=slate_fd).serve()


def main(argv: list[str] | None = None) -> None:
    """Serve, and then wait to be ended: the workers are still at work on what comes after training."""
    (description,) = argv or sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve(json.loads(description))
    except LuwuError as problem:
        sys.exit(f"optimizer node: {problem}")
    signal.pause()


if __name__ == "__main__":
    main()
