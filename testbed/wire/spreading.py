"""Choose the one of several parallel circuits that a packet takes: the same rule in C, in P4 and here. Pure.

A packet falls into one of `BUCKETS` buckets; circuit w of P has the buckets from 64 w / P to before 64 (w +
1) / P. A gradient packet's bucket depends on its fragment alone, so that a push, its partial, its result and
all retransmissions take one circuit between two units, in either direction. The bucket of any other packet
depends on the sum of its addresses and, for TCP and UDP, its ports, so that both directions of a connection
take the same circuit.

Buckets are the upper bits of Knuth's multiplicative hash with the golden ratio: consecutive fragments, and
every second or third of them, spread over any number of parts as evenly as possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from testbed.wire.numbers import Number

T = TypeVar("T")

GOLDEN = 0x9E3779B1  # 2**32 over the golden ratio, odd
BUCKET_BITS = 6
BUCKETS = 1 << BUCKET_BITS
TRIES = 4  # circuits that a packet tries if its own is dark: a quarter of the buckets further each time
CHECKED = 3  # sets of parallel circuits by which a result leaves that are checked for darkness

NUMBERS: tuple[Number, ...] = (
    Number("SPREAD_FACTOR", GOLDEN, 32, "2^32 over the golden ratio", in_hex=True),
    Number("SPREAD_BITS", BUCKET_BITS, 8, "of a packet's bucket"),
    Number("SPREAD_BUCKETS", BUCKETS, 32),
    Number("SPREAD_TRIES", TRIES, 32, "circuits that a packet is offered while its own is dark"),
    Number("SPREAD_CHECKED", CHECKED, 32, "ports of parallel circuits of one way of a group that are heeded"),
)


def bucket(number: int) -> int:
    """Return the bucket of a fragment, or of the sum of a packet's addresses and ports."""
    return (number * GOLDEN & 0xFFFFFFFF) >> 32 - BUCKET_BITS


def circuit_of(bucket_: int, circuits: int) -> int:
    """Return which of `circuits` parallel circuits a bucket takes, from 0."""
    return bucket_ * circuits >> BUCKET_BITS


def tried(bucket_: int) -> list[int]:
    """Return the buckets that a packet tries in turn, its own first, until a circuit is lit."""
    return [(bucket_ + turn * BUCKETS // TRIES) % BUCKETS for turn in range(TRIES)]


def lit_bucket(bucket_: int, is_lit: Callable[[int], bool]) -> int:
    """Return the first of a packet's buckets that is lit; its own if none is."""
    return next((each for each in tried(bucket_) if is_lit(each)), bucket_)


def ways_of(bundles: Sequence[Sequence[object]]) -> int:
    """Return the number of ways of a group: enough that, of every bundle (the parallel circuits to one unit),
    each bucket takes the circuit that `circuit_of` returns.
    """
    return min(BUCKETS, math.lcm(*(len(bundle) for bundle in bundles)))


def by_way(bundles: Sequence[Sequence[T]]) -> list[list[T]]:
    """Return the circuits of each way, one of each bundle. Way w of W is for the buckets b with
    `circuit_of(b, W)` = w.
    """
    ways = ways_of(bundles)
    firsts = [-(-way * BUCKETS // ways) for way in range(ways)]  # the least bucket of each
    return [[bundle[circuit_of(first, len(bundle))] for bundle in bundles] for first in firsts]
