// SPDX-License-Identifier: Apache-2.0
// The one of several parallel circuits that a packet takes: testbed/wire/spreading.py. That a circuit is
// dark is not seen here: the controller tells the routes.
#ifndef SPREAD_P4
#define SPREAD_P4

// The bucket that a packet falls into, by its fragment, or else by its addresses and ports.
control Bucket(in headers_t hdr, inout metadata_t meta) {
    bit<32> number;

    apply {
        if (hdr.wire.isValid()) {
            number = hdr.wire.fragment;
        } else {
            number = hdr.ipv4.srcAddr + hdr.ipv4.dstAddr;
            if (hdr.udp.isValid()) {
                number = number + (bit<32>) hdr.udp.srcPort + (bit<32>) hdr.udp.dstPort;
            } else if (hdr.tcp.isValid()) {
                number = number + (bit<32>) hdr.tcp.srcPort + (bit<32>) hdr.tcp.dstPort;
            }
        }
        meta.bucket = (bit<16>) ((number * SPREAD_FACTOR) >> (32 - SPREAD_BITS));
    }
}

#endif
