// SPDX-License-Identifier: Apache-2.0
// Bytes to headers and back. A packet too short for a header leaves that header invalid, and all behind it.
#ifndef PARSER_P4
#define PARSER_P4

parser Parse(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
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
        transition accept;
    }

    state wire_and_lanes {
        packet.extract(hdr.wire);
        packet.extract(hdr.lanes);
        transition accept;
    }
}

control Deparse(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.wire);
        packet.emit(hdr.lanes);
    }
}

// The Internet checksum of the datagram and its pseudo header, of all that is in it, its checksum field too: 0 if that field is right.
// Not v1model's verify_checksum and update_checksum: they compare the field, where 0 and 0xffff are the same sum, and write 0,
// which in UDP says that there is none (RFC 768). A fragment whose result has that sum would never arrive.
control DatagramSum(in headers_t hdr, out bit<16> sum) {
    apply {
        if (hdr.lanes.isValid()) {
            hash(sum, HashAlgorithm.csum16, 16w0, {
                hdr.ipv4.srcAddr, hdr.ipv4.dstAddr, 8w0, hdr.ipv4.protocol, hdr.udp.length,
                hdr.udp.srcPort, hdr.udp.dstPort, hdr.udp.length, hdr.udp.checksum,
                WIRE_FIELDS(hdr.wire), LANES_FIELDS(hdr.lanes)
            }, 32w0x10000);
        } else {
            hash(sum, HashAlgorithm.csum16, 16w0, {
                hdr.ipv4.srcAddr, hdr.ipv4.dstAddr, 8w0, hdr.ipv4.protocol, hdr.udp.length,
                hdr.udp.srcPort, hdr.udp.dstPort, hdr.udp.length, hdr.udp.checksum,
                WIRE_FIELDS(hdr.wire)
            }, 32w0x10000);
        }
    }
}

control Ipv4Sum(in headers_t hdr, out bit<16> sum) {
    apply {
        hash(sum, HashAlgorithm.csum16, 16w0, {
            hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.diffserv, hdr.ipv4.totalLen, hdr.ipv4.identification, hdr.ipv4.flags,
            hdr.ipv4.fragOffset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.srcAddr, hdr.ipv4.dstAddr
        }, 32w0x10000);
    }
}

#endif
