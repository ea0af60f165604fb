"""A push to a slot whose lock another CPU has: how long the program waits for the lock, and the outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping

from testbed.aggregation.entries import Sender
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.program import Programs
from testbed.dataplanes.xdp.syscall import map_lookup, map_update, u32
from tests.privileged.observed import Observed
from tests.privileged.xdp_aggregator import XdpAggregator
from tests.vectors.build import JOB, job_in_unit, push

TRIES = 20


def inside(programs: Programs, ports: Mapping[int, int]) -> dict[str, object]:
    """Return the verdicts on pushes while the slot is locked, the verdict after it is unlocked, and the
    shortest time in seconds that a push waited.
    """
    with (
        Observed(programs) as observed,
        XdpAggregator(Cells(programs), observed, dict(ports), is_host=False) as switch,
    ):
        switch.bind(1, [Sender(JOB, 0)])
        switch.set_group(JOB, 0, [1, 2])
        job = job_in_unit(2)
        switch.admit(JOB, job)
        _lock(switch, programs.lanes, job.base, 1)
        verdicts, waited_s = set(), []
        for _ in range(TRIES):
            began_s = time.perf_counter()
            verdicts.add(switch.receive(push(0, 0), 1)[0])
            waited_s.append(time.perf_counter() - began_s)
        _lock(switch, programs.lanes, job.base, 0)
        after = switch.receive(push(0, 0), 1)[0]
        return {"locked": sorted(verdicts), "waited_s": min(waited_s), "after": after}


def _lock(switch: XdpAggregator, lanes: int, slot: int, value: int) -> None:
    kind = layout.slot(lanes)
    raw = bytearray(map_lookup(switch.slots, u32(slot), kind.itemsize) or b"")
    at = kind.fields["lock"][1]
    raw[at : at + 8] = value.to_bytes(8, "little")
    map_update(switch.slots, u32(slot), bytes(raw))
