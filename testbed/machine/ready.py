"""Waiting for descriptors of any number: select(2) takes none above 1023, which a daemon of many hosts and
jobs has.
"""

from __future__ import annotations

import select
from collections.abc import Iterable


def ready(reading: Iterable[int], timeout_s: float, writing: Iterable[int] = ()) -> set[int]:
    """Return those that can be read or written now, or whose other end is gone; none when the time is
    over.
    """
    poll = select.poll()
    for fd in reading:
        poll.register(fd, select.POLLIN)
    for fd in writing:
        poll.register(fd, select.POLLOUT)
    return {fd for fd, _ in poll.poll(max(0.0, timeout_s) * 1e3)}
