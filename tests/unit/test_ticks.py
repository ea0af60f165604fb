"""The control packet of a tick: the one that the vectors send, for the entry that it is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.aggregation.entries import Tick
from testbed.aggregation.ticks import tick_frame
from testbed.wire import spec
from testbed.wire.frame import Frame
from tests.vectors.build import BASE, GENERATION, JOB, PS_IP, compared, job_in_unit, tick

OF_THE_LINK = {"destination_mac"}  # a control port is a link of its own


@pytest.mark.parametrize("age_ms", [0, 37, 0xFFFF, 0x10000, 0x1FFFE])
@pytest.mark.parametrize(("tree", "lanes"), [(0, spec.LANES), (3, 64)])
def test_a_tick_is_the_vectors(tree: int, lanes: int, age_ms: int) -> None:
    entry = replace(job_in_unit(2), tree=tree, lanes=lanes)
    mine = Frame.parse(tick_frame(Tick(JOB, GENERATION, tree, BASE + 5, 517, age_ms), entry))
    theirs = Frame.parse(tick(517, slot=BASE + 5, tree=tree, lanes=lanes, age=min(age_ms, 0xFFFF)))
    fields, expected = compared(mine), compared(theirs)
    assert {name for name in fields if fields[name] != expected[name]} <= OF_THE_LINK
    assert mine.header == theirs.header
    assert not mine.lanes.any()


def test_a_tick_is_for_the_entrys_place_in_the_generation_that_it_was_made_in() -> None:
    entry, made = replace(job_in_unit(2), self_ip=PS_IP), Tick(JOB, GENERATION + 9, 0, BASE, 1, 2)
    frame = Frame.parse(tick_frame(made, entry))
    assert (frame.source_ip, frame.destination_ip) == (PS_IP, PS_IP)
    assert (entry.generation, frame.header.generation) == (GENERATION, GENERATION + 9)
    assert tick_frame(made, entry)[40:42] != b"\0\0", "with a checksum"
