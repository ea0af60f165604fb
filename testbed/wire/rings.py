"""The memory shared by a worker's host and its process: the ring of results, and the wake-up words."""

from __future__ import annotations

from enum import IntFlag

from testbed.wire.records import Kind, Lanes, Member, Record


class Stored(IntFlag):
    """Bits of a stored result's flags, besides those of the packet."""

    MARKED = 0x100  # it came with congestion experienced
    REPEATED = 0x200  # a repetition completed it, or asked for it


RESULT = Record(
    "result",
    (
        Member("sequence", Kind.U64, "fragment + 1, written last; 0: nothing yet"),
        Member("contributors", Kind.U32),
        Member("flags", Kind.U32, "those of the packet, and RESULT_*"),
        Member("lanes", Kind.BE32, "as received", Lanes(in_c="RESULT_LANES")),
    ),
    "One for each slot of the job's segment. Writer: the host program; reader: the worker process, in place.",
)

WAKE = Record(
    "wake",
    (
        Member("received", Kind.U32, "results stored; writer: host program"),
        Member(
            "wake_at",
            Kind.U32,
            "value of received at which one packet goes to the socket; writer: worker process",
        ),
        Member("notices", Kind.U32, "congestion notices; writer: host program"),
        Member("attached", Kind.U32, "worker processes that have used this memory; writer: worker process"),
    ),
)
