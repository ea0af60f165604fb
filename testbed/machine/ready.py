"""Wait for any number of descriptors. select(2) takes none above 1023, which a daemon with many hosts and
jobs exceeds.
"""

from __future__ import annotations

import select
from collections.abc import Iterable


def ready(reading: Iterable[int], timeout_s: float, writing: Iterable[int] = ()) -> set[int]:
    """Return the descriptors that can be read or written now, or that the other end has closed; none after
    the timeout.
    """
    poll = select.poll()
    for fd in reading:
        poll.register(fd, select.POLLIN)
    for fd in writing:
        poll.register(fd, select.POLLOUT)
    return {fd for fd, _ in poll.poll(max(0.0, timeout_s) * 1e3)}
