// SPDX-License-Identifier: Apache-2.0
// Turns the packet that completed a sum, or asked for one again, into the packet that carries it: the result, or the partial sum for
// the parameter server.
#ifndef SUM_P4
#define SUM_P4

control AddressSum(inout headers_t hdr, inout metadata_t meta) {
    action address(bit<32> ip) {
        hdr.wire.slot = meta.job.result_base + meta.slot.offset;
        hdr.wire.reserved = 0;
        hdr.wire.age = 0;
        hdr.wire.trailer = 0;
        hdr.ipv4.srcAddr = meta.job.self_ip;
        hdr.ipv4.dstAddr = ip;
        hdr.ipv4.ttl = WIRE_TTL;
    }
    action make_partial() {
        address(meta.job.up_ip);
        hdr.wire.op = WIRE_OP_PARTIAL;
        hdr.wire.flags = 0;
        hdr.wire.worker = meta.job.index;
        hdr.wire.contributors = meta.job.local;
        meta.send = SEND_ROUTE;
    }
    action make_result() {
        address(meta.job.group_ip);
        hdr.wire.op = WIRE_OP_RESULT;
        hdr.wire.flags = WIRE_FLAG_FINAL;
        hdr.wire.worker = WIRE_NO_WORKER;
        hdr.wire.contributors = meta.job.total;
        hdr.ethernet.dstAddr = 48w0x01005e000000 | (bit<48>) meta.job.group_ip[22:0]; // RFC 1112
        meta.send = SEND_GROUP;
    }

    apply {
        if (meta.slot.state == SLOT_PARTIAL) {
            make_partial();
        } else {
            make_result();
        }
        if (meta.verdict == V_RESENT) {
            slot_count.read(hdr.wire.count, meta.slot.index);
            if (meta.slot.state != SLOT_PARTIAL) {
                meta.send = SEND_BACK;
            }
        }
    }
}

#endif
