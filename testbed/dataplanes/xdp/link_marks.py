"""The program of bpf/link_marks.c, loaded, and its map: a queue for each direction of a wire.

testbed/wire/links.py has the record that both sides share; testbed/emulation/congestion_marks.py attaches the
program to devices.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.dataplanes.xdp.compiled import MapLayout
from testbed.dataplanes.xdp.layout import DEVICE
from testbed.dataplanes.xdp.link_program import LinkProgram
from testbed.wire import links

PROGRAM, MAPS = "link_mark", ("queues",)
COUNTERS = tuple(counter.name for counter in links.MARK_COUNTERS)
_QUEUE = links.QUEUE.dtype()


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A direction's token bucket and queue in bytes, and the number of waiting bytes from which frames are
    marked.
    """

    rate_bytes_per_s: int
    bucket_bytes: int
    limit_bytes: int
    threshold_bytes: int

    def words(self) -> dict[str, int]:
        """Return these as fields of struct queue, with times in ns."""

        def time_ns(size: int) -> int:
            return round(size * 1e9 / self.rate_bytes_per_s)

        return {
            "byte_time": round((1 << links.FRACTION_BITS) * 1e9 / self.rate_bytes_per_s),
            "bucket": time_ns(self.bucket_bytes),
            "threshold": time_ns(self.threshold_bytes),
            "limit": time_ns(self.limit_bytes),
        }


class MarkProgram(LinkProgram):
    """The marking program, with a queue for each direction."""

    def __init__(self) -> None:
        queues = MapLayout(MAPS[0], DEVICE, _QUEUE, "testbed/wire/links.py")
        super().__init__("marking queue", "link_marks.c", PROGRAM, queues)

    def set_queue(self, ifindex: int, spec: QueueSpec) -> None:
        """Make a direction's queue, or change its parameters; it then counts as empty, with a full bucket,
        for a moment.
        """
        self._set(ifindex, spec.words())

    def counters(self, ifindex: int) -> dict[str, int]:
        """Return the COUNTERS of a direction since its queue was set."""
        queue = self._get(ifindex)
        return {name: int(queue[name]) for name in COUNTERS}
