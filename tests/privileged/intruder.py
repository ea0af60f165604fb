"""A process beside a worker that sends as that worker and breaks the rules: it pushes fragments whose slot is
still in use.
"""

from __future__ import annotations

import socket
import sys
import time

from testbed.wire import mapping, spec
from testbed.wire.codec import Header
from testbed.wire.settings import EndpointSettings, read


def main() -> None:
    settings, count = read(EndpointSettings, sys.argv[1]), int(sys.argv[2])
    way = settings.trees[0]
    header = Header(
        op=spec.Op.PUSH,
        job=settings.job,
        worker=settings.worker,
        contributors=1,
        generation=settings.generation,
        slot=way.slot_base + settings.slots - mapping.VOTE_SLOTS,
        fragment=mapping.FIRST_VOTE + mapping.VOTE_SLOTS,
        count=spec.LANES,
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for _ in range(count):
            udp.sendto(header.pack() + bytes(4 * spec.LANES), (way.address, settings.port))
            time.sleep(0.02)


if __name__ == "__main__":
    main()
