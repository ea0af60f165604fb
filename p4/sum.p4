// SPDX-License-Identifier: Apache-2.0
// Turns the packet that completed a sum, or asked for one again, into the packet that carries it: the result,
// or the partial sum for the place above.
#ifndef SUM_P4
#define SUM_P4

control AddressSum(inout headers_t hdr, inout metadata_t meta) {
    action address(bit<32> base, bit<32> ip) {
        hdr.wire.slot = base + meta.slot.offset;
        hdr.wire.reserved = 0;
        hdr.wire.contributors = meta.slot.contributors;
        hdr.wire.count = meta.slot.count;
        hdr.wire.age = meta.slot.age;
        hdr.ipv4.srcAddr = meta.entry.self_ip;
        hdr.ipv4.dstAddr = ip;
        hdr.ipv4.ttl = WIRE_TTL;
    }
    action make_partial() {
        address(meta.entry.up_base, meta.entry.up_ip);
        hdr.wire.op = WIRE_OP_PARTIAL;
        hdr.wire.flags = meta.slot.degraded; // SUM_DEGRADED is the wire's number
        hdr.wire.worker = meta.entry.number;
        meta.send = SEND_ROUTE;
    }
    action make_result() {
        address(meta.entry.result_base, meta.entry.group_ip);
        hdr.wire.op = WIRE_OP_RESULT;
        hdr.wire.flags = WIRE_FLAG_FINAL | meta.slot.degraded;
        hdr.wire.worker = WIRE_NO_WORKER;
        hdr.ethernet.dstAddr = 48w0x01005e000000 | (bit<48>) meta.entry.group_ip[22:0]; // RFC 1112
        meta.send = SEND_GROUP;
    }

    apply {
        if (meta.verdict == V_RESENT || meta.verdict == V_LATE) {
            bit<8> flags;
            slot_contributors.read(meta.slot.contributors, meta.slot.index);
            slot_flags.read(flags, meta.slot.index);
            slot_count.read(meta.slot.count, meta.slot.index);
            slot_age.read(meta.slot.age, meta.slot.index);
            meta.slot.degraded = flags & SUM_DEGRADED;
        }
        if (meta.slot.state == SLOT_PARTIAL) {
            make_partial();
        } else {
            make_result();
            if (meta.verdict == V_RESENT || meta.verdict == V_LATE) {
                meta.send = SEND_BACK;
            }
        }
    }
}

#endif
