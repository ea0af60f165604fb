"""The contract of owned trees at places (docs/luwu-network.md): each tree's record, a value of a BPF map of
bpf/systems/owned.h, and the sizes of the P4 program (p4/systems/owned.p4).
"""

from __future__ import annotations

from testbed.wire.numbers import Number
from testbed.wire.records import Kind, Member, Record, members
from testbed.wire.spec import MAX_WORKERS

U32, U64 = Kind.U32, Kind.U64

MOST_RECORDS = 1024  # of all places

NUMBERS: tuple[Number, ...] = (Number("MAX_OWNED_RECORDS", MOST_RECORDS, 32, "of all places"),)

P4_OWNED_RECORDS = 64  # of a P4 switch

P4_NUMBERS: tuple[Number, ...] = (
    Number("OWNED_TREES", P4_OWNED_RECORDS, 32, "records of owned trees"),
    Number("OWNED_MEMBERS", MAX_WORKERS, 32, "of a record: 2 ** 6"),
)

OWNED_RECORD = Record(
    "owned_record",
    (
        Member("lock", U64, "0 free, 1 held, as a slot's"),
        Member("heard", U64, "bitmap of the members whose beats came"),
        Member("leader", U32, "the lowest member's number"),
        *members(U32, "sent_ack", "sent_credit", "pad"),
        Member("acks", U32, "the first fragment that each lacks,", MAX_WORKERS),
        Member("credits", U32, "and the first that it has no room for", MAX_WORKERS),
    ),
    "An owned tree at a place: the beats of its members, and the one that was sent up.",
)

RECORDS = (OWNED_RECORD,)
