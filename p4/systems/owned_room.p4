// SPDX-License-Identifier: Apache-2.0
// Room to work in of owned.p4: a header that is never valid, so that BMv2 does not copy it.
#ifndef OWNED_ROOM_P4
#define OWNED_ROOM_P4

#include "records.p4"

// A beat of an owned tree, and the least of its members'. docs/luwu-network.md.
header beat_h {
    bit<32> at;  // the record's first member
    bit<32> own; // the one that it is from
    bit<32> word; // of a register, to work with
    bit<32> ack;
    bit<32> credit;
    bit<32> from_ack; // what both are counted from
    bit<32> from_credit;
    bit<32> sent_ack;
    bit<32> sent_credit;
}

#define OWNED_ROOM beat_h beat;

#endif
