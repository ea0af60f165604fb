// SPDX-License-Identifier: Apache-2.0
// The core's program, rules 4 to 10, and the stages that it shares with others: each is a control that gives
// a packet its verdict, says what becomes of its lanes, and makes of it the packet that leaves.
#ifndef SUM_P4
#define SUM_P4

// Turns the packet that completed a sum, or asked for one again, into the packet that carries it: the result,
// or the partial sum for the place above.
control AddressSum(inout headers_t hdr, inout metadata_t meta) {
    action address() {
        bit<8> flags;
        bit<1> is_again = (bit<1>) (meta.verdict == V_RESENT || meta.verdict == V_LATE);
        if (is_again == 1) { // else the packet says it already
            slot_contributors.read(hdr.wire.contributors, meta.slot.index);
            slot_flags.read(flags, meta.slot.index);
            hdr.wire.flags = flags & SUM_DEGRADED;
            slot_count.read(hdr.wire.count, meta.slot.index);
            slot_age.read(hdr.wire.age, meta.slot.index);
        }
        hdr.wire.reserved = 0;
        hdr.ipv4.srcAddr = meta.entry.self_ip;
        hdr.ipv4.ttl = WIRE_TTL;
        if (meta.slot.state == SLOT_PARTIAL) {
            hdr.wire.op = WIRE_OP_PARTIAL;
            hdr.wire.worker = meta.entry.number;
            hdr.wire.slot = hdr.wire.slot - meta.entry.base + meta.entry.up_base;
            hdr.ipv4.dstAddr = meta.entry.up_ip;
            meta.send = SEND_ROUTE;
        } else {
            hdr.wire.op = WIRE_OP_RESULT;
            hdr.wire.flags = hdr.wire.flags | WIRE_FLAG_FINAL;
            hdr.wire.worker = WIRE_NO_WORKER;
            hdr.wire.slot = hdr.wire.slot - meta.entry.base + meta.entry.result_base;
            hdr.ipv4.dstAddr = meta.entry.group_ip;
            hdr.ethernet.dstAddr = 48w0x01005e000000 | (bit<48>) meta.entry.group_ip[22:0]; // RFC 1112
            meta.send = SEND_GROUP;
            if (is_again == 1) {
                meta.send = SEND_BACK;
            }
        }
    }

    apply {
        address();
    }
}

// A packet that leaves as another than it came: a sum, or a notice to its sender.
control Sent(inout headers_t hdr, inout metadata_t meta) {
    AddressSum() address;
    Notify() notify;

    apply {
        if (meta.is_changed == 1) {
            if (meta.verdict == V_MISMATCH || meta.verdict == V_CAPPED) {
                notify.apply(hdr, meta);
            } else {
                address.apply(hdr, meta);
            }
        }
    }
}

// A packet for others below: a notice, or a result from above.
control PassedOn(inout headers_t hdr, inout metadata_t meta) {
    SegmentAtTop() segment_at_top;

    apply {
        if (hdr.wire.op == WIRE_OP_NOTICE) {
            if (meta.entry.role == ROLE_TRANSIT) {
                meta.verdict = V_BAD_WORKER;
            } else {
                meta.verdict = V_NOTICE;
                meta.send = SEND_WORKERS;
            }
        } else if (hdr.wire.op != WIRE_OP_RESULT || meta.entry.role == ROLE_TOP
                   || hdr.ipv4.dstAddr != meta.entry.group_ip) {
            meta.verdict = V_MALFORMED;
        } else {
            if (meta.entry.role == ROLE_INNER) {
                segment_at_top.apply(hdr, meta);
            }
            if (meta.verdict == UNDECIDED) {
                meta.verdict = V_RESULT;
                meta.send = SEND_OTHERS;
            }
        }
    }
}

// All of a packet whose tree is summed by slots.
control Sum(inout headers_t hdr, inout metadata_t meta) {
    Segment() segment;
    SegmentOfTick() segment_of_tick;
    Fragment() fragment;
    Bitmap() bitmap;
    Count() count;
    Complete() complete;
    PassedOn() passed_on;
    KeepResult() keep_result;
    Sent() sent;

    apply {
        if (hdr.wire.op == WIRE_OP_PUSH || hdr.wire.op == WIRE_OP_PARTIAL) {
            segment.apply(hdr, meta);
            if (meta.verdict == UNDECIDED) {
                fragment.apply(hdr, meta);
            }
            if (meta.verdict == UNDECIDED) {
                bitmap.apply(hdr, meta);
            }
            if (meta.verdict == UNDECIDED) {
                count.apply(hdr, meta);
            }
        } else if (hdr.wire.op == WIRE_OP_TICK) {
            segment_of_tick.apply(hdr, meta);
            if (meta.verdict == UNDECIDED) {
                complete.apply(hdr, meta);
            }
        } else {
            passed_on.apply(hdr, meta);
            if (meta.verdict == V_RESULT && meta.entry.role == ROLE_INNER) {
                keep_result.apply(hdr, meta);
            }
        }
        sent.apply(hdr, meta);
    }
}

#endif
