// SPDX-License-Identifier: Apache-2.0
// Owned trees, docs/luwu-network.md: sums that go to one owner alone, and the beats of those who wait for its
// parameters. A slot is slot.p4's, but a newer fragment takes it in any case, and a complete sum stays the
// place's: no result comes back.
#ifndef OWNED_P4
#define OWNED_P4

#include "sources.p4"

@name(".owned_heard") register<bit<64>>(OWNED_TREES) owned_heard; // members whose beats came
@name(".owned_sent_ack") register<bit<32>>(OWNED_TREES) owned_sent_ack; // what went up last
@name(".owned_sent_credit") register<bit<32>>(OWNED_TREES) owned_sent_credit;
@name(".owned_acks") register<bit<32>>(OWNED_TREES * OWNED_MEMBERS) owned_acks; // that each lacks first,
@name(".owned_credits") register<bit<32>>(OWNED_TREES * OWNED_MEMBERS) owned_credits; // and has no room for

// A push or partial sum into its slot.
control OwnedAdded(inout headers_t hdr, inout metadata_t meta) {
    action find() {
        bit<32> newer;
        meta.slot.index = hdr.wire.slot;
        slot_state.read(meta.slot.state, meta.slot.index);
        slot_generation.read(meta.slot.generation, meta.slot.index);
        slot_fragment.read(meta.slot.fragment, meta.slot.index);
        newer = hdr.wire.fragment - meta.slot.fragment;
        if (meta.slot.state == SLOT_EMPTY || meta.slot.generation != meta.entry.generation
            || (newer != 0 && newer[31:31] == 0)) {
            meta.slot.is_new = 1;
            meta.slot.state = SLOT_FILLING;
            slot_generation.write(meta.slot.index, meta.entry.generation);
            slot_fragment.write(meta.slot.index, hdr.wire.fragment);
        } else if (newer[31:31] == 1) {
            meta.verdict = V_STALE;
        }
    }
    action take_in() {
        meta.slot.mine = 64w1 << (bit<8>) hdr.wire.worker;
        slot_bitmap.read(meta.slot.bitmap, meta.slot.index);
        if (meta.slot.is_new == 1) {
            meta.slot.bitmap = 0;
        }
        if (meta.slot.state != SLOT_FILLING) {
            meta.slot.lanes = LANES_RECALL;
            meta.is_changed = 1;
            meta.verdict = V_RESENT;
        } else if (meta.slot.bitmap & meta.slot.mine != 0) {
            meta.verdict = V_DUPLICATE;
        } else {
            meta.slot.bitmap = meta.slot.bitmap | meta.slot.mine;
            slot_bitmap.write(meta.slot.index, meta.slot.bitmap);
        }
    }
    // what the contribution makes of the sum goes into its own header, too
    action add() {
        bit<16> contributors;
        bit<8> flags;
        slot_contributors.read(contributors, meta.slot.index);
        hdr.wire.contributors = (meta.slot.is_new == 1 ? 16w0 : contributors)
            + (hdr.wire.op == WIRE_OP_PUSH ? 16w1 : hdr.wire.contributors);
        slot_contributors.write(meta.slot.index, hdr.wire.contributors);
        slot_flags.read(flags, meta.slot.index);
        hdr.wire.flags = (meta.slot.is_new == 1 ? 8w0 : flags)
            | (hdr.ipv4.diffserv & WIRE_CE == WIRE_CE ? SUM_MARKED : 8w0) | (hdr.wire.flags & WIRE_FLAG_END);
        slot_flags.write(meta.slot.index, hdr.wire.flags);
        hdr.ipv4.diffserv = hdr.ipv4.diffserv | (hdr.wire.flags & SUM_MARKED) * WIRE_CE;
        slot_count.write(meta.slot.index, hdr.wire.count);
        slot_age.write(meta.slot.index, 0);
        meta.slot.lanes = LANES_ADD - (LANES_ADD - LANES_KEEP) * (bit<2>) meta.slot.is_new;
        meta.verdict = V_AGGREGATED;
        if (meta.slot.bitmap == meta.entry.workers | meta.entry.places) {
            meta.slot.state = SLOT_PARTIAL;
            meta.verdict = V_COMPLETED;
            meta.is_changed = 1;
        }
        slot_state.write(meta.slot.index, meta.slot.state);
    }

    apply {
        find();
        if (meta.verdict == UNDECIDED) {
            take_in();
            if (meta.verdict == UNDECIDED) {
                add();
            }
        }
    }
}

// The least of what members said, by how far each is behind `from`: numbers wrap. Half of all numbers are
// added, so that those behind it are smaller. Without branches, and each member in its turn: a switch of
// stages has no turns (docs/p4.md).
#define LEAST_OF(member) \
    owned_acks.read(hdr.beat.word, hdr.beat.at); \
    hdr.beat.word = (hdr.beat.word - hdr.beat.from_ack) | (0 - (bit<32>) ~meta.slot.bitmap[member:member]); \
    hdr.beat.ack = hdr.beat.ack + ((hdr.beat.word - hdr.beat.ack) \
        & (0 - (bit<32>) (bit<1>) (hdr.beat.word < hdr.beat.ack))); \
    owned_credits.read(hdr.beat.word, hdr.beat.at); \
    hdr.beat.word = (hdr.beat.word - hdr.beat.from_credit) \
        | (0 - (bit<32>) ~meta.slot.bitmap[member:member]); \
    hdr.beat.credit = hdr.beat.credit + ((hdr.beat.word - hdr.beat.credit) \
        & (0 - (bit<32>) (bit<1>) (hdr.beat.word < hdr.beat.credit))); \
    hdr.beat.at = hdr.beat.at + 1;

// A member's beat: once all are heard, the least of what they said goes up, when that grew, or when the beat
// is from the lowest member.
control OwnedHeard(inout headers_t hdr, inout metadata_t meta) {
    action note() {
        bit<64> before;
        hdr.beat.at = OWNED_MEMBERS * (bit<32>) meta.entry.record;
        hdr.beat.own = hdr.beat.at + (bit<32>) hdr.wire.worker;
        meta.slot.mine = 64w1 << (bit<8>) hdr.wire.worker;
        owned_heard.read(before, (bit<32>) meta.entry.record);
        meta.slot.bitmap = before | meta.slot.mine;
        owned_heard.write((bit<32>) meta.entry.record, meta.slot.bitmap);
        if (before & meta.slot.mine != 0) { // beats overtake each other: the larger counts
            owned_acks.read(hdr.beat.word, hdr.beat.own);
            if ((hdr.wire.fragment - hdr.beat.word)[31:31] == 1) {
                hdr.wire.fragment = hdr.beat.word;
            }
            owned_credits.read(hdr.beat.word, hdr.beat.own);
            if ((hdr.wire.slot - hdr.beat.word)[31:31] == 1) {
                hdr.wire.slot = hdr.beat.word;
            }
        }
        owned_acks.write(hdr.beat.own, hdr.wire.fragment);
        owned_credits.write(hdr.beat.own, hdr.wire.slot);
        hdr.beat.ack = 0x80000000; // its own
        hdr.beat.credit = 0x80000000;
        hdr.beat.from_ack = hdr.wire.fragment - hdr.beat.ack;
        hdr.beat.from_credit = hdr.wire.slot - hdr.beat.credit;
        meta.verdict = V_BEAT;
    }
    action ask_first() { SOURCES_8(LEAST_OF, 0) }
    action ask_second() { SOURCES_8(LEAST_OF, 8) }
    action ask_more() { SOURCES_8(LEAST_OF, 16) SOURCES_8(LEAST_OF, 24) }
    action ask_rest() {
        SOURCES_8(LEAST_OF, 32) SOURCES_8(LEAST_OF, 40) SOURCES_8(LEAST_OF, 48) SOURCES_8(LEAST_OF, 56)
    }
    action settle() {
        hdr.wire.fragment = hdr.beat.ack + hdr.beat.from_ack;
        hdr.wire.slot = hdr.beat.credit + hdr.beat.from_credit;
        owned_sent_ack.read(hdr.beat.sent_ack, (bit<32>) meta.entry.record);
        owned_sent_ack.write((bit<32>) meta.entry.record, hdr.wire.fragment);
        owned_sent_credit.read(hdr.beat.sent_credit, (bit<32>) meta.entry.record);
        owned_sent_credit.write((bit<32>) meta.entry.record, hdr.wire.slot);
        if (hdr.beat.sent_ack != hdr.wire.fragment || hdr.beat.sent_credit != hdr.wire.slot
            || meta.slot.mine == meta.slot.bitmap & (0 - meta.slot.bitmap)) {
            meta.is_changed = 1;
        }
    }

    apply {
        note();
        if (meta.slot.bitmap == meta.entry.workers | meta.entry.places) {
            ask_first();
            if (meta.slot.bitmap[63:8] != 0) {
                ask_second();
                if (meta.slot.bitmap[63:16] != 0) {
                    ask_more();
                    if (meta.slot.bitmap[63:32] != 0) {
                        ask_rest();
                    }
                }
            }
            settle();
        }
    }
}

// Turns the packet that completed a sum, asked for one again, or made a minimum grow into the one for the
// place above, or at the top for the owner.
control AddressOwned(inout headers_t hdr, inout metadata_t meta) {
    action address() {
        bit<8> flags;
        hdr.wire.worker = meta.entry.number;
        hdr.ipv4.srcAddr = meta.entry.self_ip;
        hdr.ipv4.dstAddr = meta.entry.up_ip;
        hdr.ipv4.ttl = WIRE_TTL;
        meta.send = SEND_ROUTE;
        if (meta.verdict == V_BEAT) {
            hdr.wire.flags = 0;
        } else {
            if (meta.verdict == V_RESENT) { // else the packet says it already
                slot_contributors.read(hdr.wire.contributors, meta.slot.index);
                slot_flags.read(flags, meta.slot.index);
                hdr.wire.flags = flags;
                slot_count.read(hdr.wire.count, meta.slot.index);
            }
            hdr.wire.flags = hdr.wire.flags & SUM_END; // the number is the wire's, too
            hdr.wire.age = 0;
            hdr.wire.reserved = 0;
            hdr.wire.slot = hdr.wire.slot - meta.entry.base + meta.entry.up_base;
            hdr.wire.op = WIRE_OP_PARTIAL;
            if (meta.entry.role == ROLE_TOP) {
                hdr.wire.op = WIRE_OP_SUM;
            }
        }
    }

    apply {
        address();
    }
}

// A packet of a tree that has an owner, whatever it is.
control Owned(inout headers_t hdr, inout metadata_t meta) {
    Segment() segment;
    OwnedAdded() added;
    OwnedHeard() heard;
    AddressOwned() address;

    apply {
        if (WIRE_IS_OWNERS(hdr.wire.op)) {
            if (hdr.ipv4.dstAddr != meta.entry.group_ip) {
                meta.verdict = V_MALFORMED;
            } else {
                meta.verdict = hdr.wire.op == WIRE_OP_PARAMETERS ? V_RESULT : V_BEAT;
                meta.send = SEND_OTHERS;
            }
        } else if (hdr.wire.op == WIRE_OP_TICK) {
            meta.verdict = V_BAD_JOB; // nobody ticks such a tree
        } else if (hdr.wire.op == WIRE_OP_PUSH || hdr.wire.op == WIRE_OP_PARTIAL) {
            segment.apply(hdr, meta);
            if (meta.verdict == UNDECIDED) {
                added.apply(hdr, meta);
            }
        } else if (hdr.wire.op == WIRE_OP_PARAMETER_BEAT) {
            if (hdr.wire.worker >= WIRE_MAX_WORKERS
                || (meta.entry.workers | meta.entry.places) & (64w1 << (bit<8>) hdr.wire.worker) == 0) {
                meta.verdict = V_BAD_WORKER;
            } else {
                heard.apply(hdr, meta);
            }
        } else {
            meta.verdict = V_MALFORMED;
        }
        if (meta.is_changed == 1) {
            address.apply(hdr, meta);
        }
    }
}

#endif
