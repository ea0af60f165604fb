"""The control packet by which whoever runs a place completes a sum that waits too long. Pure."""

from __future__ import annotations

import numpy as np

from testbed.aggregation.entries import Entry, Tick
from testbed.topology import addresses
from testbed.wire import spec
from testbed.wire.codec import Header
from testbed.wire.frame import Frame

_OLDEST_MS = 0xFFFF  # of the header's field


def tick_frame(tick: Tick, entry: Entry) -> bytes:
    """Return the frame that asks the place whose entry it is to send what a slot has of a fragment.

    The generation is the tick's, not the entry's: one made before the job was admitted anew counts for
    nothing. A fragment that has waited for longer than the header's field holds says the most that it holds.
    """
    header = Header(
        op=spec.Op.TICK, job=tick.job, worker=0, contributors=tick.sources, generation=tick.generation,
        slot=tick.slot, fragment=tick.fragment, count=0, tree=tick.tree,
        age=min(tick.age_ms, _OLDEST_MS), lanes=entry.lanes,
    )  # fmt: skip
    mac = addresses.mac_of(entry.self_ip)
    return Frame(header, np.zeros(entry.lanes, np.uint32), entry.self_ip, entry.self_ip, mac, mac).pack()
