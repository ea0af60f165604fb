"""The two references of an owned tree's place say the same: by rules, and packet by packet."""

from __future__ import annotations

import random

import numpy as np
import pytest

from testbed.reference_model.slots import Slot
from testbed.systems.luwu.owned import OwnedPlace
from testbed.systems.luwu.reference import OwnedTree
from testbed.wire.codec import Header
from testbed.wire.frame import NO_LANES, Frame
from testbed.wire.spec import Op
from tests.vectors.build import BASE, GENERATION, JOB, SIZE
from tests.vectors.owned import PLACE, top

MEMBERS = (0, 1, PLACE)
STEPS, LANES = 4000, 64


def packet(op: Op, member: int, fragment: int, slot: int, lanes: np.ndarray = NO_LANES) -> Frame:
    header = Header(op, JOB, member, 1, GENERATION, slot, fragment, LANES, lanes=LANES)
    return Frame(header, lanes, "10.0.1.1", "10.0.1.254")


@pytest.mark.parametrize("seed", range(5))
def test_a_place_is_the_same_by_rules_and_by_packets(seed: int) -> None:
    chance = random.Random(seed)
    by_rules = OwnedPlace(MEMBERS, SIZE)
    by_packets = OwnedTree(top(lanes=LANES), [Slot() for _ in range(BASE + SIZE)])
    met = set()
    at, heard = 0, dict.fromkeys(MEMBERS, (0, 0))
    for _ in range(STEPS):
        at += chance.random() < 0.3
        member = chance.choice(MEMBERS)
        if chance.random() < 0.3:
            ack = max(0, at - chance.randrange(4))
            beat = ack, ack + chance.randrange(SIZE)
            heard[member] = beat
            verdict, sent = by_packets.hear(packet(Op.PARAMETER_BEAT, member, *beat))
            assert verdict == "beat"
            assert by_rules.hear(member, beat) == (sent and (sent.header.fragment, sent.header.slot))
            continue
        fragment = max(0, at + chance.choice((0, 0, 0, -1, 1, SIZE, -SIZE)))
        lanes = np.array([chance.randrange(2**24) for _ in range(LANES)], np.uint32)
        op = Op.PARTIAL if member == PLACE else Op.PUSH
        verdict, sent = by_packets.contribute(packet(op, member, fragment, BASE + fragment % SIZE, lanes))
        said, summed = by_rules.contribute(member, fragment, tuple(lanes.tolist()))
        met.add(said)
        assert verdict == said
        assert (sent and tuple(sent.lanes.tolist())) == (summed and tuple(lane % 2**32 for lane in summed))
    assert met == {"aggregated", "completed", "duplicate", "resent", "stale"}
