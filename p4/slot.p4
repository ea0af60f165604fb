// SPDX-License-Identifier: Apache-2.0
// What a slot knows of its fragment, a stage each: which fragment it holds, who is in the sum, how many. Rules 4 to 9.
#ifndef SLOT_P4
#define SLOT_P4

// A slot that another job left behind is told by its generation; one is emptied when it is given to a job.
@name(".slot_state") register<bit<8>>(SLOTS) slot_state;
@name(".slot_generation") register<bit<32>>(SLOTS) slot_generation;
@name(".slot_fragment") register<bit<32>>(SLOTS) slot_fragment;
@name(".slot_bitmap") register<bit<64>>(SLOTS) slot_bitmap;
@name(".slot_arrived") register<bit<16>>(SLOTS) slot_arrived; // how many contributions are in, and MARKED
@name(".slot_count") register<bit<16>>(SLOTS) slot_count;     // valid lanes, as the last packet said

const bit<16> MARKED = 0x8000; // a contribution came with congestion experienced (RFC 3168)

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
        if (difference != 0 || meta.slot.state == SLOT_EMPTY || generation != meta.job.generation) {
            if (meta.slot.state == SLOT_EMPTY || generation != meta.job.generation
                || (difference[31:31] == 0 && meta.slot.state != SLOT_FILLING)) {
                meta.slot.is_new = 1;
                slot_generation.write(meta.slot.index, meta.job.generation);
                slot_fragment.write(meta.slot.index, hdr.wire.fragment);
            } else if (difference[31:31] == 1) {
                meta.verdict = V_STALE;
            } else {
                meta.verdict = V_MISMATCH;
            }
        }
    }
}

// Each worker counts once.
control Bitmap(inout metadata_t meta) {
    apply {
        slot_bitmap.read(meta.slot.bitmap, meta.slot.index);
        meta.slot.bitmap = meta.slot.bitmap * (bit<64>) (meta.slot.is_new ^ 1); // what was in the slot before does not count
        if (meta.slot.bitmap & meta.slot.mine == 0) {
            slot_bitmap.write(meta.slot.index, meta.slot.bitmap | meta.slot.mine);
        } else if (meta.slot.state == SLOT_FILLING) {
            meta.verdict = V_DUPLICATE;
        } else {
            meta.verdict = V_RESENT;
            meta.slot.lanes = LANES_RECALL;
        }
    }
}

// Only for a contribution that the bitmap let in. In arithmetic, not in branches, each of which would cost BMv2 a table.
control Count(inout headers_t hdr, inout metadata_t meta) {
    apply {
        bit<16> arrived;
        bit<1> complete;
        slot_arrived.read(arrived, meta.slot.index);
        arrived = arrived * (bit<16>) (meta.slot.is_new ^ 1) + 1;
        arrived = arrived | (MARKED * (bit<16>) (hdr.ipv4.diffserv[1:1] & hdr.ipv4.diffserv[0:0]));
        hdr.ipv4.diffserv = hdr.ipv4.diffserv | (WIRE_CE * (bit<8>) arrived[15:15]); // the sum's, where this completes it
        complete = (bit<1>) (arrived & ~MARKED == meta.job.local);
        meta.slot.state = SLOT_FILLING + (meta.job.role - SLOT_FILLING) * (bit<8>) complete;
        meta.verdict = V_AGGREGATED + (V_COMPLETED - V_AGGREGATED) * (bit<32>) complete;
        meta.slot.lanes = LANES_ADD - (LANES_ADD - LANES_KEEP) * (bit<2>) meta.slot.is_new;
        slot_arrived.write(meta.slot.index, arrived);
        slot_count.write(meta.slot.index, hdr.wire.count);
        slot_state.write(meta.slot.index, meta.slot.state);
    }
}

#endif
