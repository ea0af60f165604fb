// SPDX-License-Identifier: Apache-2.0
// A fragment met a slot that still collects an older one: the sender is told to slow down (ECN).
#ifndef ERROR_CONTROL_P4
#define ERROR_CONTROL_P4

control Notify(inout headers_t hdr, inout metadata_t meta) {
    apply {
        hdr.lanes.setInvalid();
        hdr.wire.op = WIRE_OP_NOTICE;
        hdr.wire.flags = WIRE_FLAG_ECN;
        hdr.wire.count = 0;
        hdr.udp.length = NOTICE_BYTES;
        hdr.ipv4.totalLen = IPV4_BYTES + NOTICE_BYTES;
        hdr.ipv4.dstAddr = hdr.ipv4.srcAddr;
        hdr.ipv4.srcAddr = meta.entry.self_ip;
        hdr.ipv4.ttl = WIRE_TTL;
        meta.send = SEND_BACK;
    }
}

#endif
