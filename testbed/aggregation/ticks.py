"""Make the control packet that completes a sum which has waited too long. Pure."""

from __future__ import annotations

import numpy as np

from testbed.aggregation.entries import Entry, Tick
from testbed.topology import addresses
from testbed.wire import spec
from testbed.wire.codec import Header
from testbed.wire.frame import Frame

_OLDEST_MS = 0xFFFF  # the largest value of the header's field


def tick_frame(tick: Tick, entry: Entry) -> bytes:
    """Make the frame that asks the place of this entry to send the sum of a fragment in a slot as it is.

    The generation is the tick's, not the entry's: a tick made before the job was admitted again has no
    effect. An age beyond the header's field becomes the field's maximum.
    """
    header = Header(
        op=spec.Op.TICK, job=tick.job, worker=0, contributors=tick.sources, generation=tick.generation,
        slot=tick.slot, fragment=tick.fragment, count=0, tree=tick.tree,
        age=min(tick.age_ms, _OLDEST_MS), lanes=entry.lanes,
    )  # fmt: skip
    mac = addresses.mac_of(entry.self_ip)
    return Frame(header, np.zeros(entry.lanes, np.uint32), entry.self_ip, entry.self_ip, mac, mac).pack()
