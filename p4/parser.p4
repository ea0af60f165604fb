// SPDX-License-Identifier: Apache-2.0
// Bytes to headers and back. A packet too short for a header leaves that header invalid, and all behind it.
#ifndef PARSER_P4
#define PARSER_P4

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        meta.verdict = UNDECIDED;
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.etherType) {
            ETHERTYPE_IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        // a fragment of a datagram has no port
        transition select(hdr.ipv4.ihl, hdr.ipv4.protocol, hdr.ipv4.fragOffset, hdr.ipv4.flags) {
            (5, IPPROTO_UDP, 0, 0b000 &&& 0b001): udp;
            (5, IPPROTO_TCP, 0, 0b000 &&& 0b001): tcp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dstPort) {
            WIRE_UDP_PORT: gradient;
            default: accept;
        }
    }

    state tcp {
        packet.extract(hdr.tcp);
        transition accept;
    }

    state gradient {
        meta.is_gradient = 1;
        transition select(hdr.ipv4.totalLen, hdr.udp.length) {
            (IPV4_BYTES + NOTICE_BYTES, NOTICE_BYTES): wire;
            (IPV4_BYTES + LANES_BYTES, LANES_BYTES): wire_and_lanes;
            default: accept;
        }
    }

    state wire {
        packet.extract(hdr.wire);
        transition known;
    }

    state wire_and_lanes {
        packet.extract(hdr.wire);
        packet.extract(hdr.lanes);
        transition known;
    }

    state known {
        meta.tree = hdr.wire.job ++ hdr.wire.tree;
        transition select(hdr.wire.magic, hdr.wire.version) {
            (WIRE_MAGIC, WIRE_VERSION): of_this_version;
            default: accept;
        }
    }

    state of_this_version {
        meta.is_known = 1;
        transition accept;
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.tcp);
        packet.emit(hdr.wire);
        packet.emit(hdr.lanes);
    }
}

// The Internet checksum (RFC 1071) of the datagram and its pseudo header, of all that is in it, its checksum
// field too: 0 if that field is right. Not v1model's verify_checksum and update_checksum: they compare the
// field, where 0 and 0xffff are the same sum, and write 0, which in UDP says that there is none (RFC 768). A
// fragment whose result has that sum would never arrive.
//
// Header by header, for p4c 1.2 copies what is in a list into metadata, which BMv2 then resets and copies
// with every packet. A hash adds their sums, too: the compiler puts the value of an expression wherever its
// name stands, and the copies of a sum of nine terms made 350 operations on GMP's numbers for each push, and
// 870 for one that completes a sum.
control DatagramSum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        hdr.sums.setValid(); // what is not valid counts nothing
        hash(hdr.sums.of_udp, HashAlgorithm.csum16, 16w0, hdr.udp, 32w0x10000);
        hash(hdr.sums.of_wire, HashAlgorithm.csum16, 16w0, hdr.wire, 32w0x10000);
        hash(hdr.sums.of_lanes, HashAlgorithm.csum16, 16w0, hdr.lanes, 32w0x10000);
        hdr.sums.of_udp = ~hdr.sums.of_udp;
        hdr.sums.of_wire = ~hdr.sums.of_wire;
        hdr.sums.of_lanes = ~hdr.sums.of_lanes;
        hdr.sums.source = hdr.ipv4.srcAddr;
        hdr.sums.destination = hdr.ipv4.dstAddr;
        hdr.sums.protocol = (bit<16>) hdr.ipv4.protocol;
        hdr.sums.length = hdr.udp.length;
        hash(meta.sum, HashAlgorithm.csum16, 16w0, hdr.sums, 32w0x10000);
        hdr.sums.setInvalid();
    }
}

// Of a packet that was changed here.
control SetChecksums(inout headers_t hdr, inout metadata_t meta) {
    DatagramSum() datagram_sum;

    apply {
        hdr.ipv4.hdrChecksum = 0;
        hash(meta.sum, HashAlgorithm.csum16, 16w0, hdr.ipv4, 32w0x10000);
        hdr.ipv4.hdrChecksum = meta.sum;
        hdr.udp.checksum = 0;
        datagram_sum.apply(hdr, meta);
        hdr.udp.checksum = meta.sum | (meta.sum == 0 ? 16w0xffff : 16w0);
    }
}

#endif
