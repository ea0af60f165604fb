"""The fuzz on the XDP programs: at switches, a host and the optical switch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.cells import Cells
from testbed.dataplanes.xdp.program import Programs
from testbed.dataplanes.xdp.syscall import map_lookup, u32
from tests.privileged.observed import Observed
from tests.privileged.xdp_aggregator import XdpAggregator
from tests.privileged.xdp_optics import XdpOptics
from tests.vectors import block_fuzz, fuzz, owned_fuzz
from tests.vectors.build import SLOTS

SHARES = {"switch": 0.4, "host": 0.2, "blocks": 0.15, "owned": 0.15, "optics": 0.1}  # of the packets
SHOTS = {"switch": fuzz.switch, "host": fuzz.host, "blocks": block_fuzz.switch, "owned": owned_fuzz.switch}


def inside(programs: Programs, ports: dict[int, int], packets: str, seed: str) -> list[dict[str, Any]]:
    """Send random frames to each place and return a row for each. `uncounted`: counters that differ from the
    verdicts that the programs were observed to give.
    """
    rows = []
    with Observed(programs) as observed:
        for place, share in SHARES.items():
            began, count = time.monotonic(), round(int(packets) * share)
            if place == "optics":
                findings = fuzz.optics(
                    XdpOptics(programs, observed, {at: ports[at] for at in range(1, 9)}), int(seed), count
                )
                rows.append(
                    {
                        **asdict(findings),
                        "strangers": [],
                        "uncounted": {},
                        "seconds": time.monotonic() - began,
                    }
                )
                continue
            with XdpAggregator(Cells(programs), observed, ports, place == "host") as subject:
                before = subject.verdicts()
                findings = SHOTS[place](subject, int(seed), count)
                rises = {name: count - before[name] for name, count in subject.verdicts().items()}
                uncounted = {
                    name: rise - subject.noted[name]
                    for name, rise in rises.items()
                    if rise != subject.noted[name]
                }
                strangers = _used(subject, programs, range(SLOTS, layout.SIZES["MAX_SLOTS"]))
            seconds = time.monotonic() - began
            rows.append(
                {**asdict(findings), "strangers": strangers, "uncounted": uncounted, "seconds": seconds}
            )
    return rows


def _used(subject: XdpAggregator, programs: Programs, slots: Sequence[int]) -> list[int]:
    """Return the slots that are no longer as they were made."""
    size = layout.slot(programs.lanes).itemsize
    return [at for at in slots if map_lookup(subject.slots, u32(at), size) != bytes(size)]
