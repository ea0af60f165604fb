// SPDX-License-Identifier: Apache-2.0
// The tree of a job that a packet belongs to, and the slot of the tree's segment <MemID, Size> that it names:
// rule 3.
#ifndef SEGMENT_P4
#define SEGMENT_P4

// Results are none of a tree with an owner, and what owners send is of no other tree: both are then as
// whatever else is not addressed to this switch.
control EntryOf(in headers_t hdr, inout metadata_t meta) {
#include "set_entry.p4"
    @name(".no_entry") action no_entry() {
        meta.verdict = V_BAD_JOB;
    }
    @name(".entries") table entries {
        key = { meta.tree: exact; }
        actions = { set_entry; no_entry; }
        default_action = no_entry();
        size = 256;
    }

    apply {
        if (entries.apply().hit) {
            if (hdr.ipv4.dstAddr != meta.address
                && (hdr.wire.op == WIRE_OP_RESULT && meta.entry.program == PROGRAM_OWNED
                    || WIRE_IS_OWNERS(hdr.wire.op) && meta.entry.program != PROGRAM_OWNED)) {
                meta.verdict = V_MALFORMED;
                if (hdr.ipv4.dstAddr[31:24] != WIRE_GROUP_BYTE) {
                    meta.verdict = V_FORWARDED;
                    meta.send = SEND_ROUTE;
                }
            } else if (hdr.wire.lanes != meta.entry.lanes) {
                meta.verdict = V_MALFORMED;
            } else if (hdr.wire.generation != meta.entry.generation) {
                meta.verdict = V_BAD_GENERATION;
            }
        } else if (WIRE_IS_OWNERS(hdr.wire.op) && hdr.ipv4.dstAddr != meta.address) {
            meta.verdict = V_MALFORMED; // to a group that is of no tree with an owner here
        }
    }
}

// The segment as this place counts slots, for a contribution.
control Segment(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.wire.worker >= WIRE_MAX_WORKERS
            || (hdr.wire.op == WIRE_OP_PUSH ? meta.entry.workers : meta.entry.places)
               & (64w1 << (bit<8>) hdr.wire.worker) == 0) {
            meta.verdict = V_BAD_WORKER;
        } else if (hdr.wire.slot - meta.entry.base >= meta.entry.size) {
            meta.verdict = V_BAD_SLOT;
        }
    }
}

// And for a tick, which is nobody's.
control SegmentOfTick(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.entry.workers | meta.entry.places == 0) {
            meta.verdict = V_BAD_WORKER;
        } else if (hdr.wire.slot - meta.entry.base >= meta.entry.size) {
            meta.verdict = V_BAD_SLOT;
        }
    }
}

// And as the place at the top counts them, for its result.
control SegmentAtTop(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.wire.slot - meta.entry.result_base >= meta.entry.size) {
            meta.verdict = V_BAD_SLOT;
        }
    }
}

#endif
