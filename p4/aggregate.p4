// SPDX-License-Identifier: Apache-2.0
// A ToR switch that sums gradients: P4INC-AOI, section VI, as docs/protocol.md says it. v1model; compiled
// by testbed/dataplanes/bmv2/compile.py.
#include <core.p4>
#include <v1model.p4>

#include "headers.p4"
#include "parser.p4"
#include "origin.p4"
#include "segment.p4"
#include "slot.p4"
#include "shadow.p4"
#include "error_control.p4"
#include "sum.p4"
#include "forward.p4"
#include "multicast.p4"
// control ByProgram: those that a switch has; made by testbed/dataplanes/bmv2/compile.py
#include <programs.p4>

control Aggregate(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Origin() origin;
    EntryOf() entry_of;
    ByProgram() by_program;
    Lanes() lanes;
    SetChecksums() set_checksums;
    Forward() forward;
    Multicast() multicast;

    apply {
        origin.apply(hdr, meta, standard);

        if (meta.verdict == UNDECIDED) {
            if (hdr.wire.op != WIRE_OP_RESULT && hdr.wire.op != WIRE_OP_TICK
                && hdr.ipv4.dstAddr != meta.address
                && (!WIRE_IS_OWNERS(hdr.wire.op) || hdr.ipv4.dstAddr[31:24] != WIRE_GROUP_BYTE)) {
                meta.verdict = V_MALFORMED; // to a group
                if (hdr.ipv4.dstAddr[31:24] != WIRE_GROUP_BYTE) {
                    meta.verdict = V_FORWARDED;
                    meta.send = SEND_ROUTE;
                }
            } else {
                entry_of.apply(hdr, meta);
                if (meta.verdict == UNDECIDED) {
                    by_program.apply(hdr, meta);
                }
            }
        }

        lanes.apply(hdr.lanes, hdr.held, meta.slot.index, meta.slot.lanes);
        if (meta.is_changed == 1) {
            set_checksums.apply(hdr, meta);
        }

        // both count the verdict
        if (meta.send == SEND_ROUTE) {
            forward.apply(hdr, meta, standard);
        } else {
            multicast.apply(hdr, meta, standard);
        }
    }
}

// Checksums are worked on in the ingress pipeline: p4/parser.p4 says why.
control NoVerify(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}
control NoCompute(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

V1Switch(Parse(), NoVerify(), Aggregate(), Prune(), NoCompute(), Deparse()) main;
