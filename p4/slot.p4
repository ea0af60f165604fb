// SPDX-License-Identifier: Apache-2.0
// The state of a slot, a stage each: the fragment that it holds, who is in the sum, how many workers. Rules 4
// to 10. A stage is an action, for BMv2 makes tables of branches that are outside of actions.
#ifndef SLOT_P4
#define SLOT_P4

// A slot that another job left behind is told by its generation; one is emptied when it is given to a job.
@name(".slot_state") register<bit<8>>(CELLS) slot_state;
@name(".slot_generation") register<bit<32>>(CELLS) slot_generation;
@name(".slot_fragment") register<bit<32>>(CELLS) slot_fragment;
@name(".slot_bitmap") register<bit<64>>(CELLS) slot_bitmap;
@name(".slot_contributors") register<bit<16>>(CELLS) slot_contributors; // workers in the sum
@name(".slot_flags") register<bit<8>>(CELLS) slot_flags;       // SUM_*
@name(".slot_count") register<bit<16>>(CELLS) slot_count;      // valid lanes, as the last packet said
@name(".slot_age") register<bit<16>>(CELLS) slot_age;          // of the packet that completed the sum

// The slot's fragment against the packet's. Fragments compare as signed differences, for they wrap.
control Fragment(in headers_t hdr, inout metadata_t meta) {
    action compare() {
        bit<32> difference;
        meta.slot.index = hdr.wire.slot;
        slot_state.read(meta.slot.state, meta.slot.index);
        slot_generation.read(meta.slot.generation, meta.slot.index);
        slot_fragment.read(meta.slot.fragment, meta.slot.index);
        difference = hdr.wire.fragment - meta.slot.fragment;
        if (meta.slot.state == SLOT_EMPTY || meta.slot.generation != meta.entry.generation
            || (difference != 0 && difference[31:31] == 0 && meta.slot.state != SLOT_FILLING)) {
            meta.slot.is_new = 1;
            meta.slot.state = SLOT_FILLING;
            slot_generation.write(meta.slot.index, meta.entry.generation);
            slot_fragment.write(meta.slot.index, hdr.wire.fragment);
        } else if (difference[31:31] == 1) {
            meta.verdict = V_STALE;
        } else if (difference != 0) {
            meta.verdict = V_MISMATCH;
            meta.is_changed = 1;
        }
    }

    apply {
        compare();
    }
}

// Each contributor counts once.
control Bitmap(in headers_t hdr, inout metadata_t meta) {
    action add() {
        meta.slot.mine = 64w1 << (bit<8>) hdr.wire.worker;
        slot_bitmap.read(meta.slot.bitmap, meta.slot.index);
        if (meta.slot.is_new == 1) {
            meta.slot.bitmap = 0; // what was in the slot before does not count
        }
        if (meta.slot.state != SLOT_FILLING) {
            meta.slot.lanes = LANES_RECALL;
            meta.is_changed = 1;
            meta.verdict = V_RESENT;
            if (meta.slot.bitmap & meta.slot.mine == 0) {
                meta.verdict = V_LATE; // a complete sum takes nobody in any more
            }
        } else if (meta.slot.bitmap & meta.slot.mine != 0) {
            meta.verdict = V_DUPLICATE;
        } else {
            meta.slot.bitmap = meta.slot.bitmap | meta.slot.mine;
            slot_bitmap.write(meta.slot.index, meta.slot.bitmap);
        }
    }

    apply {
        add();
    }
}

// Only for a contribution that the bitmap let in. What it makes of the sum goes into its own header, too.
control Count(inout headers_t hdr, inout metadata_t meta) {
    // each register is read and written in one go, as a stage would
    action add() {
        bit<16> contributors;
        bit<8> flags;
        slot_contributors.read(contributors, meta.slot.index);
        hdr.wire.contributors = (meta.slot.is_new == 1 ? 16w0 : contributors)
            + (hdr.wire.op != WIRE_OP_PUSH ? hdr.wire.contributors
                : 16w1 - ((bit<16>) (hdr.wire.flags & WIRE_FLAG_DEGRADED) >> 1));
        slot_contributors.write(meta.slot.index, hdr.wire.contributors);
        slot_flags.read(flags, meta.slot.index);
        hdr.wire.flags = (meta.slot.is_new == 1 ? 8w0 : flags)
            | (hdr.ipv4.diffserv & WIRE_CE == WIRE_CE ? SUM_MARKED : 8w0)
            | (hdr.wire.flags & WIRE_FLAG_DEGRADED);
        slot_flags.write(meta.slot.index, hdr.wire.flags);
        hdr.ipv4.diffserv = hdr.ipv4.diffserv | (hdr.wire.flags & SUM_MARKED) * WIRE_CE;
        hdr.wire.flags = hdr.wire.flags & SUM_DEGRADED; // the number is the wire's, too
        slot_count.write(meta.slot.index, hdr.wire.count);
        if (hdr.wire.op == WIRE_OP_PUSH) {
            hdr.wire.age = 0;
        }
        slot_age.write(meta.slot.index, hdr.wire.age);
        meta.slot.lanes = LANES_ADD - (LANES_ADD - LANES_KEEP) * (bit<2>) meta.slot.is_new;
        meta.verdict = V_AGGREGATED;
        if (meta.slot.bitmap == meta.entry.workers | meta.entry.places) {
            meta.slot.state = meta.entry.role;
            meta.verdict = V_COMPLETED;
            meta.is_changed = 1;
        }
        slot_state.write(meta.slot.index, meta.slot.state);
    }

    apply {
        add();
    }
}

// A tick completes the sum as it is: it adds nobody, and its age is the sum's.
control Complete(inout headers_t hdr, inout metadata_t meta) {
    action complete() {
        bit<8> flags;
        meta.slot.index = hdr.wire.slot;
        slot_state.read(meta.slot.state, meta.slot.index);
        slot_generation.read(meta.slot.generation, meta.slot.index);
        slot_fragment.read(meta.slot.fragment, meta.slot.index);
        slot_contributors.read(hdr.wire.contributors, meta.slot.index);
        if (meta.slot.state != SLOT_FILLING || meta.slot.fragment != hdr.wire.fragment
            || meta.slot.generation != meta.entry.generation) {
            meta.verdict = V_TICK_LATE;
        } else {
            slot_flags.read(flags, meta.slot.index);
            slot_flags.write(meta.slot.index, flags | SUM_DEGRADED);
            hdr.ipv4.diffserv = hdr.ipv4.diffserv | (flags & SUM_MARKED) * WIRE_CE;
            hdr.wire.flags = SUM_DEGRADED;
            slot_count.read(hdr.wire.count, meta.slot.index);
            slot_age.write(meta.slot.index, hdr.wire.age);
            slot_state.write(meta.slot.index, meta.entry.role);
            meta.slot.state = meta.entry.role;
            meta.slot.lanes = LANES_RECALL;
            meta.verdict = V_TICKED;
            meta.is_changed = 1;
        }
    }

    apply {
        complete();
    }
}

#endif
