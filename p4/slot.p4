// SPDX-License-Identifier: Apache-2.0
// The state of a slot, a stage each: the fragment that it holds, who is in the sum, how many workers. Rules 4
// to 10.
#ifndef SLOT_P4
#define SLOT_P4

// A slot that another job left behind is told by its generation; one is emptied when it is given to a job.
@name(".slot_state") register<bit<8>>(SLOTS) slot_state;
@name(".slot_generation") register<bit<32>>(SLOTS) slot_generation;
@name(".slot_fragment") register<bit<32>>(SLOTS) slot_fragment;
@name(".slot_bitmap") register<bit<64>>(SLOTS) slot_bitmap;
@name(".slot_contributors") register<bit<16>>(SLOTS) slot_contributors; // workers in the sum
@name(".slot_flags") register<bit<8>>(SLOTS) slot_flags;       // SUM_*
@name(".slot_count") register<bit<16>>(SLOTS) slot_count;      // valid lanes, as the last packet said
@name(".slot_age") register<bit<16>>(SLOTS) slot_age;          // of the packet that completed the sum


// The slot's fragment against the packet's. Fragments compare as signed differences, for they wrap.
control Fragment(in headers_t hdr, inout metadata_t meta) {
    apply {
        bit<32> generation;
        bit<32> fragment;
        bit<32> difference;
        slot_state.read(meta.slot.state, meta.slot.index);
        slot_generation.read(generation, meta.slot.index);
        slot_fragment.read(fragment, meta.slot.index);
        difference = hdr.wire.fragment - fragment;
        if (difference != 0 || meta.slot.state == SLOT_EMPTY || generation != meta.entry.generation) {
            if (hdr.wire.op == WIRE_OP_TICK) {
                meta.verdict = V_TICK_LATE;
            } else if (meta.slot.state == SLOT_EMPTY || generation != meta.entry.generation
                       || (difference[31:31] == 0 && meta.slot.state != SLOT_FILLING)) {
                meta.slot.is_new = 1;
                slot_generation.write(meta.slot.index, meta.entry.generation);
                slot_fragment.write(meta.slot.index, hdr.wire.fragment);
            } else if (difference[31:31] == 1) {
                meta.verdict = V_STALE;
            } else {
                meta.verdict = V_MISMATCH;
            }
        } else if (hdr.wire.op == WIRE_OP_TICK && meta.slot.state != SLOT_FILLING) {
            meta.verdict = V_TICK_LATE;
        }
    }
}

// Each contributor counts once. A complete sum takes nobody in any more.
control Bitmap(in headers_t hdr, inout metadata_t meta) {
    apply {
        slot_bitmap.read(meta.slot.bitmap, meta.slot.index);
        // what was in the slot before does not count
        meta.slot.bitmap = meta.slot.bitmap * (bit<64>) (meta.slot.is_new ^ 1);
        if (hdr.wire.op == WIRE_OP_TICK) {
            meta.slot.mine = 0; // it adds nobody
        } else if (meta.slot.is_new == 0 && meta.slot.state != SLOT_FILLING) {
            meta.slot.lanes = LANES_RECALL;
            meta.verdict = V_RESENT;
            if (meta.slot.bitmap & meta.slot.mine == 0) {
                meta.verdict = V_LATE;
            }
        } else if (meta.slot.bitmap & meta.slot.mine != 0) {
            meta.verdict = V_DUPLICATE;
        } else {
            meta.slot.bitmap = meta.slot.bitmap | meta.slot.mine;
            slot_bitmap.write(meta.slot.index, meta.slot.bitmap);
        }
    }
}

// Only for a contribution that the bitmap let in, or a tick that is in time. In arithmetic where it can be,
// for BMv2 makes a table of each branch.
control Count(inout headers_t hdr, inout metadata_t meta) {
    apply {
        bit<8> flags;
        bit<1> is_partial = (bit<1>) (hdr.wire.op == WIRE_OP_PARTIAL);
        bit<1> is_tick = (bit<1>) (hdr.wire.op == WIRE_OP_TICK);
        bit<1> complete = (bit<1>) (meta.slot.bitmap == meta.entry.workers | meta.entry.places);
        // each register is read and written in one go, as a stage would
        slot_contributors.read(meta.slot.contributors, meta.slot.index);
        meta.slot.contributors = meta.slot.contributors * (bit<16>) (meta.slot.is_new ^ 1)
            + (bit<16>) (hdr.wire.op == WIRE_OP_PUSH ? 1w1 : 1w0)
            + hdr.wire.contributors * (bit<16>) is_partial;
        slot_contributors.write(meta.slot.index, meta.slot.contributors);
        slot_flags.read(flags, meta.slot.index);
        flags = flags * (bit<8>) (meta.slot.is_new ^ 1);
        flags = flags | (SUM_MARKED * (bit<8>) (hdr.ipv4.diffserv[1:1] & hdr.ipv4.diffserv[0:0] & ~is_tick));
        flags = flags | (hdr.wire.flags & WIRE_FLAG_DEGRADED) * (bit<8>) is_partial
            | SUM_DEGRADED * (bit<8>) is_tick;
        slot_flags.write(meta.slot.index, flags);
        slot_count.read(meta.slot.count, meta.slot.index);
        meta.slot.count = meta.slot.count * (bit<16>) is_tick + hdr.wire.count * (bit<16>) (is_tick ^ 1);
        slot_count.write(meta.slot.index, meta.slot.count);
        meta.slot.age = hdr.wire.age * (bit<16>) (is_partial | is_tick);
        slot_age.write(meta.slot.index, meta.slot.age);
        meta.slot.degraded = flags & SUM_DEGRADED;
        // the sum's, where this completes it
        hdr.ipv4.diffserv = hdr.ipv4.diffserv | (WIRE_CE * (bit<8>) flags[0:0]);
        complete = complete | is_tick;
        meta.slot.state = SLOT_FILLING + (meta.entry.role - SLOT_FILLING) * (bit<8>) complete;
        meta.verdict = V_AGGREGATED + (V_COMPLETED - V_AGGREGATED) * (bit<32>) complete;
        meta.slot.lanes = LANES_ADD - (LANES_ADD - LANES_KEEP) * (bit<2>) meta.slot.is_new;
        if (is_tick == 1) {
            meta.verdict = V_TICKED;
            meta.slot.lanes = LANES_RECALL;
        }
        slot_state.write(meta.slot.index, meta.slot.state);
    }
}

#endif
