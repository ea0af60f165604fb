// SPDX-License-Identifier: Apache-2.0
// Which job a packet belongs to, and which slot of the job's segment <MemID, Size> it names: rule 3.
#ifndef SEGMENT_P4
#define SEGMENT_P4

control JobOf(in headers_t hdr, inout metadata_t meta) {
#include "set_job.p4"
    @name(".no_job") action no_job() {
        meta.verdict = V_BAD_JOB;
    }
    @name(".jobs") table jobs {
        key = { hdr.wire.job: exact; }
        actions = { set_job; no_job; }
        default_action = no_job();
        size = 256;
    }

    apply {
        if (jobs.apply().hit) {
            if (hdr.wire.generation != meta.job.generation) {
                meta.verdict = V_BAD_GENERATION;
            }
        }
    }
}

// The segment as the switch itself counts slots, for a push.
control Segment(in headers_t hdr, inout metadata_t meta) {
    apply {
        meta.slot.mine = 64w1 << (bit<8>) hdr.wire.worker;
        meta.slot.offset = hdr.wire.slot - meta.job.base;
        meta.slot.index = hdr.wire.slot;
        if (hdr.wire.worker >= WIRE_MAX_WORKERS || meta.job.members & meta.slot.mine == 0) {
            meta.verdict = V_BAD_WORKER;
        } else if (meta.slot.offset >= meta.job.size) {
            meta.verdict = V_BAD_SLOT;
        }
    }
}

// And as the parameter server counts them, for its result.
control SegmentAtServer(in headers_t hdr, inout metadata_t meta) {
    apply {
        meta.slot.offset = hdr.wire.slot - meta.job.result_base;
        meta.slot.index = meta.job.base + meta.slot.offset;
        if (meta.slot.offset >= meta.job.size) {
            meta.verdict = V_BAD_SLOT;
        }
    }
}

#endif
