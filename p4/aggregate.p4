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
#include "blocks.p4"
#include "owned.p4"
#include "shadow.p4"
#include "sum.p4"
#include "error_control.p4"
#include "forward.p4"
#include "multicast.p4"

control Aggregate(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Origin() origin;
    EntryOf() entry_of;
    Segment() segment;
    SegmentOfTick() segment_of_tick;
    SegmentAtTop() segment_at_top;
    Fragment() fragment;
    Bitmap() bitmap;
    Count() count;
    Complete() complete;
    KeepResult() keep_result;
    BlockOf() block_of;
    BlockMade() block_made;
    BlockAdded() block_added;
    BlockTicked() block_ticked;
    BlockKept() block_kept;
    Owned() owned;
    AddressOwned() address_owned;
    Lanes() lanes;
    AddressSum() address_sum;
    Notify() notify;
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
                if (meta.verdict == UNDECIDED && meta.entry.program == PROGRAM_BLOCKS) {
                    block_of.apply(hdr, meta);
                }
                if (meta.verdict == UNDECIDED && meta.entry.program == PROGRAM_OWNED) {
                    owned.apply(hdr, meta);
                }
            }
        }

        if (meta.verdict == UNDECIDED) {
            if (hdr.wire.op == WIRE_OP_PUSH || hdr.wire.op == WIRE_OP_PARTIAL) {
                segment.apply(hdr, meta);
                if (meta.verdict == UNDECIDED) {
                    if (meta.entry.program == PROGRAM_BLOCKS) {
                        block_made.apply(hdr, meta);
                    } else {
                        fragment.apply(hdr, meta);
                    }
                }
                if (meta.verdict == UNDECIDED) {
                    bitmap.apply(hdr, meta);
                }
                if (meta.verdict == UNDECIDED) {
                    count.apply(hdr, meta);
                    if (meta.entry.program == PROGRAM_BLOCKS) {
                        block_added.apply(hdr, meta);
                    }
                }
            } else if (hdr.wire.op == WIRE_OP_TICK) {
                segment_of_tick.apply(hdr, meta);
                if (meta.verdict == UNDECIDED) {
                    if (meta.entry.program == PROGRAM_BLOCKS) {
                        block_ticked.apply(hdr, meta);
                    } else {
                        complete.apply(hdr, meta);
                    }
                }
            } else if (hdr.wire.op == WIRE_OP_NOTICE) {
                if (meta.entry.role == ROLE_TRANSIT) {
                    meta.verdict = V_BAD_WORKER;
                } else {
                    meta.verdict = V_NOTICE;
                    meta.send = SEND_WORKERS;
                }
            } else if (hdr.wire.op != WIRE_OP_RESULT || meta.entry.role == ROLE_TOP
                       || hdr.ipv4.dstAddr != meta.entry.group_ip) {
                meta.verdict = V_MALFORMED;
            } else {
                if (meta.entry.role == ROLE_INNER) {
                    segment_at_top.apply(hdr, meta);
                }
                if (meta.verdict == UNDECIDED) {
                    if (meta.entry.role == ROLE_INNER) {
                        if (meta.entry.program == PROGRAM_BLOCKS) {
                            block_kept.apply(hdr, meta);
                        } else {
                            keep_result.apply(hdr, meta);
                        }
                    }
                    meta.verdict = V_RESULT;
                    meta.send = SEND_OTHERS;
                }
            }
        }

        lanes.apply(hdr.lanes, hdr.held, meta.slot.index, meta.slot.lanes);
        if (meta.is_changed == 1) {
            if (meta.verdict == V_MISMATCH || meta.verdict == V_CAPPED) {
                notify.apply(hdr, meta);
            } else if (meta.entry.program == PROGRAM_OWNED) {
                address_owned.apply(hdr, meta);
            } else {
                address_sum.apply(hdr, meta);
            }
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
