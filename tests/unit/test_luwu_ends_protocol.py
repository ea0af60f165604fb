"""One compiled end of an owned tree, and a peer that speaks packet by packet."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed.wire import spec
from tests.limits import CALL_S
from tests.unit import owned_wire as wire
from tests.unit.owned_wire import GENERATION, JOB, LANES, TREE
from workloads.luwu.contract import Format, Role
from workloads.luwu.nic import Nic, scale_of

END, RETRANSMIT = 16, 8
LIMIT_S = 30.0
NEVER_US = 1_000_000_000
DEPTH = TREE.depth


class Peer:
    """The switch, as a test plays it, to a worker or an owner."""

    def __init__(self, role: Role, workers: int = 3, **settings: int) -> None:
        self.udp = wire.udp()
        self.udp.settimeout(LIMIT_S)
        own = wire.udp()
        self.to = own.getsockname()
        self.role = role
        tree = replace(
            TREE, role=role, worker=1, workers=workers, port=self.udp.getsockname()[1], slot_base=1000
        )
        self.nic = Nic(replace(tree, **settings), own, 1 << 16, host=True)  # type: ignore[arg-type]

    def next(self, op: int) -> list[int]:
        """The header of the next packet with this operation."""
        while True:
            fields = list(wire.HEADER.unpack_from(self.udp.recv(65535)))
            if fields[wire.OP] == op:
                return fields

    def is_silent(self, op: int, limit_s: float = 0.05) -> bool:
        self.udp.settimeout(limit_s)
        try:
            self.next(op)
        except TimeoutError:
            return True
        finally:
            self.udp.settimeout(LIMIT_S)
        return False

    def beat(self, ack: int, credit: int, **other: Any) -> None:
        op = wire.GRADIENT_BEAT if self.role is Role.WORKER else wire.PARAMETER_BEAT
        self.send(op, ack, slot=credit, **other)

    def fragment(self, number: int, count: int = LANES, flags: int = 0, **other: Any) -> None:
        op = wire.PARAMETERS if self.role is Role.WORKER else wire.SUM
        self.send(op, number, count=count, flags=flags, body=struct.pack("!I", number) * LANES, **other)

    def send(
        self,
        op: int,
        fragment: int,
        slot: int = 0,
        count: int = 0,
        flags: int = 0,
        body: bytes = b"",
        job: int = JOB,
        generation: int = GENERATION,
        tree: int = 0,
        lanes: int = LANES,
    ) -> None:
        header = wire.HEADER.pack(
            *(spec.MAGIC, spec.VERSION, op, flags, tree, job, spec.NO_WORKER, 1, generation),
            *(slot, fragment, count, 0, lanes, 0),
        )
        self.udp.sendto(header + body, self.to)

    def wait(self, name: str, way: str, value: int) -> None:
        end = time.monotonic() + LIMIT_S
        while getattr(self.nic.facts, way)[name] != value:
            assert time.monotonic() < end, (name, value, self.nic.facts)
            time.sleep(0.001)


@pytest.fixture
def worker() -> Iterator[Peer]:
    """One that says and repeats nothing by itself after its first beat."""
    peer = Peer(Role.WORKER, beat_us=NEVER_US // 10, detect_us=NEVER_US)
    with peer.nic:
        yield peer


def given(peer: Peer, fragments: int) -> None:
    count = fragments * LANES - 1
    peer.nic.memory[: 4 * count] = np.ones(count, np.float32).tobytes()
    request = peer.nic.give_numbers("push", 0, count)
    request.scale(scale_of(request.measured(), 3))


def test_a_push_is_as_the_protocol_has_it(worker: Peer) -> None:
    given(worker, 2)
    assert worker.is_silent(wire.PUSH)  # without a beat, no credit is known
    worker.beat(0, DEPTH)
    lanes = []
    for number, (count, flags) in enumerate(((LANES, 0), (LANES - 1, END))):
        packet = worker.udp.recv(65535)
        assert wire.HEADER.unpack_from(packet) == (
            *(spec.MAGIC, spec.VERSION, wire.PUSH, flags, 0, JOB, 1, 1, GENERATION, 1000 + number, number),
            *(count, 0, LANES, 0),
        )
        lanes += np.frombuffer(packet, ">u4", offset=spec.HEADER_BYTES).tolist()
    value = spec.bias(3) + 2 ** scale_of(127, 3)
    assert lanes == [value] * (2 * LANES - 1) + [0]
    assert value - spec.bias(3) == 1 << 27


def test_beats_that_were_overtaken_change_nothing(worker: Peer) -> None:
    given(worker, 12)
    worker.beat(0, 6)
    assert [worker.next(wire.PUSH)[wire.FRAGMENT] for _ in range(6)] == list(range(6))
    worker.beat(3, 8)
    assert [worker.next(wire.PUSH)[wire.FRAGMENT] for _ in range(2)] == [6, 7]
    worker.beat(2, 5)
    worker.wait("beats", "given", 3)
    assert worker.nic.facts.given["ack"] == 3
    assert worker.nic.facts.given["credit"] == 8
    worker.beat(3, 9)
    assert worker.next(wire.PUSH)[wire.FRAGMENT] == 8
    worker.beat(13, 30)  # of what was never sent
    worker.beat(4, 10)
    assert worker.next(wire.PUSH)[wire.FRAGMENT] == 9
    assert worker.nic.facts.given["ack"] == 4
    assert worker.nic.facts.refused == 1


def test_packets_of_others_are_refused(worker: Peer) -> None:
    given(worker, 1)
    for other in ({"job": JOB + 1}, {"generation": GENERATION + 1}, {"tree": 1}):
        worker.beat(0, DEPTH, **other)
        worker.fragment(0, **other)
    worker.fragment(0, lanes=LANES - 2)
    worker.fragment(0, count=LANES + 1)
    worker.send(wire.PUSH, 0, body=bytes(4 * LANES))
    worker.send(wire.PARAMETERS, 0, body=bytes(4 * LANES - 4))
    worker.send(wire.PARAMETERS, 0, body=bytes(4 * LANES + 4))
    end = time.monotonic() + LIMIT_S
    while worker.nic.facts.refused < 11:
        assert time.monotonic() < end, worker.nic.facts
    assert worker.nic.facts.gotten["packets"] == 0
    assert worker.is_silent(wire.PUSH)


def test_what_is_here_already_is_answered_at_once(worker: Peer) -> None:
    first = worker.next(wire.PARAMETER_BEAT)
    assert (first[wire.FRAGMENT], first[wire.SLOT], first[wire.WORKER]) == (0, DEPTH, 1)
    worker.fragment(0)
    worker.fragment(2)
    worker.wait("ack", "gotten", 1)
    for again in (0, 2):
        worker.fragment(again)
        beat = worker.next(wire.PARAMETER_BEAT)
        assert (beat[wire.FRAGMENT], beat[wire.SLOT]) == (1, DEPTH)
    worker.fragment(1)
    worker.wait("ack", "gotten", 3)
    assert worker.nic.facts.gotten["again"] == 2


def test_fragments_without_room_are_counted_and_not_kept(worker: Peer) -> None:
    worker.fragment(DEPTH)
    worker.wait("overflowed", "gotten", 1)
    for number in range(DEPTH):
        worker.fragment(number)
    worker.wait("ack", "gotten", DEPTH)


def test_room_that_becomes_free_is_told_at_once(worker: Peer) -> None:
    worker.next(wire.PARAMETER_BEAT)
    for number in range(DEPTH):
        worker.fragment(number, flags=END)
    worker.wait("ack", "gotten", DEPTH)
    worker.fragment(0)  # a beat says that there is none
    assert worker.next(wire.PARAMETER_BEAT)[wire.SLOT] == DEPTH
    worker.nic.get("pull", 0, 4 * LANES).wait(CALL_S)
    beat = worker.next(wire.PARAMETER_BEAT)
    assert (beat[wire.FRAGMENT], beat[wire.SLOT]) == (DEPTH, DEPTH + 1)


@pytest.mark.parametrize(
    ("count", "flags", "theirs"), [(5, 0, 0), (5, END, 5), (LANES, END, LANES), (6, 0, 0), (0, END, 0)]
)
def test_an_end_elsewhere_fails_the_request(worker: Peer, count: int, flags: int, theirs: int) -> None:
    pull = worker.nic.get("pull", 0, 24)
    worker.fragment(0, count, flags)
    with pytest.raises(Exception, match=f"^pull: 6 lanes were asked for, {theirs or 'more'}"):
        pull.wait(CALL_S)


def test_bytes_behind_the_last_are_left_alone(worker: Peer) -> None:
    worker.nic.memory[:12] = b"x" * 12
    worker.fragment(0, 2, END)
    worker.nic.get("pull", 0, 5).wait(CALL_S)
    assert bytes(worker.nic.memory[:12]) == bytes(5) + b"x" * 7


def test_numbers_that_come_round_are_told_apart() -> None:
    """Fragments have 32 bits on the wire; what is far behind is old, and not new."""
    peer = Peer(Role.WORKER, beat_us=NEVER_US // 10, detect_us=NEVER_US)
    with peer.nic:
        peer.fragment(2**32 - 1)
        peer.wait("again", "gotten", 1)
        assert peer.nic.facts.gotten["overflowed"] == 0


def test_a_sender_goes_back_when_it_is_time_and_not_before() -> None:
    peer = Peer(Role.WORKER, beat_us=1000, detect_us=100_000, stagger_us=50_000)
    with peer.nic:
        given(peer, 9)
        peer.beat(0, 9)
        assert [peer.next(wire.PUSH)[wire.FRAGMENT] for _ in range(9)] == list(range(9))
        start = time.monotonic()
        peer.beat(1, 9)
        again = [peer.next(wire.PUSH)]
        assert time.monotonic() - start > 0.145  # of worker 1
        peer.beat(2, 9)  # what came is not all that is missing
        again += [peer.next(wire.PUSH) for _ in range(2)]
        peer.beat(6, 9)
        again += [peer.next(wire.PUSH) for _ in range(3)]
        assert [each[wire.FRAGMENT] for each in again] == [1, 2, 3, 6, 7, 8]
        assert [each[wire.FLAGS] for each in again] == [RETRANSMIT] * 5 + [RETRANSMIT | END]
        peer.beat(9, 12)
        peer.wait("done", "given", 1)
        assert peer.nic.facts.given["again"] == 6


def test_an_owner_gets_sums_and_says_how_far_it_is() -> None:
    peer = Peer(Role.OWNER, beat_us=NEVER_US // 10, detect_us=NEVER_US)
    with peer.nic:
        beat = peer.next(wire.GRADIENT_BEAT)
        assert (beat[wire.FRAGMENT], beat[wire.SLOT], beat[wire.WORKER]) == (0, DEPTH, spec.NO_WORKER)
        values = [3 * spec.bias(3) + each & 0xFFFFFFFF for each in (0, 5, -7, 2**30)]
        body = np.array(values + [0] * (LANES - 4), ">u4").tobytes()
        peer.send(wire.SUM, 0, count=4, flags=END, body=body)
        peer.nic.get_numbers("sum", 0, 4, 0.5).wait(CALL_S)
        assert np.frombuffer(peer.nic.memory, np.float32, 4).tolist() == [0, 2.5, -3.5, 2.0**29]


def test_small_numbers_of_sixteen_bits_and_those_that_are_not_finite() -> None:
    """Denormals keep their values; infinity and NaN are seen."""
    bits = np.array([0x0001, 0x8001, 0x03FF, 0x0400, 0x83FF, 0x0000], np.uint16)
    with wire.ends(1, 1 << 12) as (_, owner, (nic,)):
        nic.memory[:12] = bits.tobytes()
        request = nic.give_numbers("push", 0, 6, Format.BINARY16)
        scale = scale_of(request.measured(), 1)
        request.scale(scale)
        owner.get_numbers("sum", 0, 6, 2.0**-scale).wait(CALL_S)
        got = np.frombuffer(owner.memory, np.float32, 6)
        assert got.tolist() == bits.view(np.float16).astype(np.float32).tolist()
        request.wait(CALL_S)
        for format, strange in (
            (Format.BINARY16, 0x7C00),
            (Format.BINARY16, 0xFE01),
            (Format.BFLOAT16, 0x7F80),
        ):
            nic.memory[:2] = struct.pack("<H", strange)
            assert nic.give_numbers("push", 0, 6, format).measured() == 255


def test_the_rest_of_a_last_lane_is_zero() -> None:
    peer = Peer(Role.OWNER, beat_us=NEVER_US // 10, detect_us=NEVER_US)
    with peer.nic:
        peer.nic.memory[:12] = b"x" * 12
        peer.nic.give("parameters", 0, 5)
        peer.beat(0, DEPTH)
        while wire.HEADER.unpack_from(packet := peer.udp.recv(65535))[wire.OP] != wire.PARAMETERS:
            pass
        assert wire.HEADER.unpack_from(packet)[wire.COUNT] == 2
        assert packet[spec.HEADER_BYTES :] == b"x" * 5 + bytes(4 * LANES - 5)
