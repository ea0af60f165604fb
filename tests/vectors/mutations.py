"""Make malformed and adversarial frames from good ones by the thousand, in NumPy alone, without per-frame
work.

Each row of a batch holds one frame; `lengths` says how many bytes of the row are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from testbed.wire import frame, spec

Rows = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.int64]

IP, UDP, HEADER = frame.ETHERNET_BYTES, frame.ETHERNET_BYTES + frame.IPV4_BYTES, frame.HEADERS_BYTES
ROOM_BYTES = 64  # in a row, behind the longest frame
# limits of fields and of segments (tests/vectors/build.py)
EDGES = (
    *(0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 47, 48, 63, 64, 127, 128, 143, 144, 159, 160, 175, 176),
    *(255, 360, 361, 511, 512, 1023, 2**15, 2**16 - 1, 2**31, 2**32 - 1),
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Frames to send, and the index of the good frame that each was made from."""

    rows: Rows
    lengths: Lengths
    made_of: npt.NDArray[np.int64]

    @property
    def stride(self) -> int:
        return int(self.rows.strides[0])

    def frames(self) -> list[bytes]:
        return [self.rows[at, : self.lengths[at]].tobytes() for at in range(len(self.rows))]


def batch(random: np.random.Generator, good: Sequence[bytes], count: int, spared: float = 0.0) -> Batch:
    """Make `count` frames from good ones, each by a random kind of mutation, of which an unchanged replay is
    one; a share `spared` of the frames is replayed.

    Mutations of header fields, lengths and addresses correct the UDP checksum.
    """
    made = _copies(random, good, count)
    kinds = random.integers(0, len(_KINDS), count)
    kinds[random.random(count) < spared] = _KINDS.index(_unchanged)
    for number, change in enumerate(_KINDS):
        chosen = np.flatnonzero(kinds == number)
        if len(chosen):
            rows, lengths = made.rows[chosen], made.lengths[chosen]
            change(random, rows, lengths)
            made.rows[chosen], made.lengths[chosen] = rows, lengths
    return made


def damaged(random: np.random.Generator, good: Sequence[bytes], count: int) -> Batch:
    """Make frames with one bit flipped, as by a link, without correcting the checksum."""
    made = _copies(random, good, count)
    _bit(random, made.rows, made.lengths)
    return made


def _copies(random: np.random.Generator, good: Sequence[bytes], count: int) -> Batch:
    longest = max(len(data) for data in good)
    table = np.zeros((len(good), longest + ROOM_BYTES), np.uint8)
    for at, data in enumerate(good):
        table[at, : len(data)] = np.frombuffer(data, np.uint8)
    picked = random.integers(0, len(good), count)
    return Batch(table[picked], np.array([len(data) for data in good])[picked], picked)


def sum_again(rows: Rows) -> None:
    """Correct the UDP checksums over as many bytes as the UDP length says, where that is within the row."""
    rows[:, UDP + 6 : UDP + 8] = 0
    sizes = rows[:, UDP + 4].astype(np.int64) << 8 | rows[:, UDP + 5]
    for size in np.unique(sizes):
        if not frame.UDP_BYTES <= size <= rows.shape[1] - UDP or size % 2:
            continue
        mine = sizes == size
        some = np.ascontiguousarray(rows[mine, UDP : UDP + size]).view(">u2").sum(axis=1, dtype=np.uint64)
        addresses = (
            np.ascontiguousarray(rows[mine, IP + 12 : IP + 20]).view(">u2").sum(axis=1, dtype=np.uint64)
        )
        total = some + addresses + np.uint64(frame.IPPROTO_UDP + size)
        for _ in range(3):
            total = (total & np.uint64(0xFFFF)) + (total >> np.uint64(16))
        given = ~total.astype(np.uint16)
        given[given == 0] = 0xFFFF
        rows[mine, UDP + 6 : UDP + 8] = given.astype(">u2").view(np.uint8).reshape(-1, 2)


def _bit(random: np.random.Generator, rows: Rows, lengths: Lengths) -> None:
    at = random.integers(0, lengths)
    rows[np.arange(len(rows)), at] ^= (1 << random.integers(0, 8, len(rows))).astype(np.uint8)


def _field(random: np.random.Generator, rows: Rows, lengths: Lengths) -> None:
    """Set one header field to a number from EDGES, or to a random one."""
    values = np.where(
        random.random(len(rows)) < 0.7, random.choice(EDGES, len(rows)), random.integers(0, 2**32, len(rows))
    ).astype(np.uint64)
    which, at = random.integers(0, len(spec.HEADER), len(rows)), HEADER
    for number, field in enumerate(spec.HEADER):
        mine = np.flatnonzero(which == number)
        for byte in range(field.bytes):
            shift = np.uint64(8 * (field.bytes - 1 - byte))
            rows[mine, at + byte] = (values[mine] >> shift & np.uint64(0xFF)).astype(np.uint8)
        at += field.bytes
    sum_again(rows)


def _two_fields(random: np.random.Generator, rows: Rows, lengths: Lengths) -> None:
    _field(random, rows, lengths)
    _field(random, rows, lengths)


def _cut(random: np.random.Generator, rows: Rows, lengths: Lengths) -> None:
    lengths[...] = random.integers(frame.ETHERNET_BYTES, lengths)


def _longer(random: np.random.Generator, rows: Rows, lengths: Lengths) -> None:
    lengths += random.integers(1, ROOM_BYTES, len(rows))


def _claimed_lengths(random: np.random.Generator, rows: Rows, lengths: Lengths) -> None:
    """Set wrong lengths in the IPv4 header, the UDP header, or both."""
    anything = random.integers(0, 2**16, (2, len(rows)))
    claimed = np.where(
        random.random((2, len(rows))) < 0.5,
        anything,
        lengths - np.array([[IP], [UDP]]) + random.integers(-9, 9, len(rows)),
    )
    which = random.integers(0, 3, len(rows))
    for mine, at, values in ((which != 1, IP + 2, claimed[0]), (which != 0, UDP + 4, claimed[1])):
        rows[mine, at], rows[mine, at + 1] = (
            (values[mine] >> 8 & 0xFF).astype(np.uint8),
            (values[mine] & 0xFF).astype(np.uint8),
        )
    sum_again(rows)


def _noise(random: np.random.Generator, rows: Rows, lengths: Lengths) -> None:
    rows[:, HEADER:] = random.integers(0, 256, (len(rows), rows.shape[1] - HEADER), dtype=np.uint8)


def _noise_with_checksum(random: np.random.Generator, rows: Rows, lengths: Lengths) -> None:
    rows[:, HEADER + 4 : HEADER + spec.HEADER_BYTES] = random.integers(
        0, 256, (len(rows), spec.HEADER_BYTES - 4), dtype=np.uint8
    )
    sum_again(rows)


def _addresses(random: np.random.Generator, rows: Rows, lengths: Lengths) -> None:
    """Set the source or destination to another address of the fabric, or to a group."""
    known = np.array(
        [
            [10, 0, 1, 254],
            [10, 0, 1, 1],
            [10, 0, 1, 3],
            [10, 0, 2, 254],
            [10, 0, 3, 1],
            [239, 192, 0, 7],
            [239, 192, 0, 8],
        ],
        np.uint8,
    )
    at = np.where(random.random(len(rows)) < 0.3, IP + 12, IP + 16)
    values = known[random.integers(0, len(known), len(rows))]
    for byte in range(4):
        rows[np.arange(len(rows)), at + byte] = values[:, byte]
    sum_again(rows)


def _no_checksum(random: np.random.Generator, rows: Rows, lengths: Lengths) -> None:
    rows[:, UDP + 6 : UDP + 8] = 0


def _unchanged(random: np.random.Generator, rows: Rows, lengths: Lengths) -> None:
    """Leave the frames as they are: replays."""


_KINDS: tuple[Callable[[np.random.Generator, Rows, Lengths], None], ...] = (
    *(_bit, _field, _two_fields, _cut, _longer, _claimed_lengths),
    *(_noise, _noise_with_checksum, _addresses, _no_checksum, _unchanged),
)
