// SPDX-License-Identifier: Apache-2.0
// The packets that this switch looks into: whether they are whole, and whether whoever is behind the port
// may send them: docs/protocol.md, rules 1 and 2.
#ifndef ORIGIN_P4
#define ORIGIN_P4

control Origin(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    DatagramSum() datagram_sum;

    // all say the switch's own address, too
    @name(".from_fabric") action from_fabric(bit<32> address) {
        meta.address = address;
        meta.port.kind = PORT_FABRIC;
    }
    @name(".from_host") action from_host(bit<32> address) {
        meta.address = address;
        meta.port.kind = PORT_HOST;
    }
    @name(".from_member")
    action from_member(bit<32> address, bit<16> job, bit<1> has_worker, bit<16> worker, bit<1> is_place,
                       bit<1> is_owner) {
        meta.address = address;
        meta.port.kind = PORT_HOST;
        meta.port.job = job;
        meta.port.has_worker = has_worker;
        meta.port.worker = worker;
        meta.port.is_place = is_place;
        meta.port.is_owner = is_owner;
    }
    @name(".from_control") action from_control(bit<32> address) {
        meta.address = address;
        meta.port.kind = PORT_CONTROL;
    }
    @name(".ports") table ports {
        key = { standard.ingress_port: exact; }
        actions = {
            from_fabric;
            from_host;
            from_member;
            from_control;
        }
        default_action = from_host(0); // a port that nothing is known of is not trusted
        size = 512;
    }

    apply {
        ports.apply();
        if (meta.is_gradient == 0 && (meta.port.kind != PORT_CONTROL || !hdr.ipv4.isValid())) {
            if (hdr.ipv4.isValid() && hdr.ipv4.ihl == 5) {
                meta.send = SEND_ROUTE;
                meta.verdict = V_FORWARDED;
            } else {
                meta.send = SEND_ROUTE;
                meta.verdict = V_SWITCHED;
            }
        } else if (meta.port.kind == PORT_FABRIC && hdr.ipv4.dstAddr != meta.address
                   && hdr.ipv4.dstAddr[31:24] != WIRE_GROUP_BYTE) {
            // results have addresses of groups; what comes from another unit to others passes through
            meta.send = SEND_ROUTE;
            meta.verdict = V_FORWARDED;
        } else if (meta.is_known == 0 || !WIRE_IS_OP(hdr.wire.op)
                   || hdr.wire.lanes == 0 || hdr.wire.lanes > WIRE_LANES || hdr.wire.count > hdr.wire.lanes
                   || hdr.lanes.isValid() != WIRE_HAS_LANES(hdr.wire.op)
                   || (hdr.lanes.isValid() && hdr.wire.lanes != WIRE_LANES)) {
            meta.verdict = V_MALFORMED;
        } else {
            datagram_sum.apply(hdr, meta);
            if (meta.sum != 0 || hdr.udp.checksum == 0) {
                meta.verdict = V_CORRUPT;
            } else if ((meta.port.kind == PORT_CONTROL) != (hdr.wire.op == WIRE_OP_TICK)) {
                meta.verdict = V_BAD_SENDER;
            } else if (meta.port.kind == PORT_HOST) {
                if (hdr.wire.op == WIRE_OP_PUSH || hdr.wire.op == WIRE_OP_PARAMETER_BEAT) {
                    if (meta.port.has_worker == 0 || hdr.wire.worker != meta.port.worker
                        || hdr.wire.job != meta.port.job) {
                        meta.verdict = V_BAD_SENDER;
                    }
                } else if (hdr.wire.op >= WIRE_OP_SUM) { // a sum comes from places, by other switches
                    if (hdr.wire.op == WIRE_OP_SUM || meta.port.is_owner == 0
                        || hdr.wire.job != meta.port.job) {
                        meta.verdict = V_BAD_SENDER;
                    }
                } else if (meta.port.is_place == 0 || hdr.wire.job != meta.port.job) {
                    meta.verdict = V_BAD_SENDER;
                }
            }
        }
    }
}

#endif
