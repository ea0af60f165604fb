// SPDX-License-Identifier: Apache-2.0
// Turns the packet that completed a sum, or asked for one again, into the packet that carries it: the result,
// or the partial sum for the place above.
#ifndef SUM_P4
#define SUM_P4

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

#endif
