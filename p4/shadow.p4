// SPDX-License-Identifier: Apache-2.0
// The shadow copy. A slot keeps its complete sum until the window has moved on by half a segment, and who lost the result gets it from there;
// in a job across units, the result from the parameter server takes the place of the partial sum.
#ifndef SHADOW_P4
#define SHADOW_P4

// A result that comes by.
control KeepResult(in headers_t hdr, inout metadata_t meta) {
    apply {
        bit<32> generation;
        bit<32> fragment;
        slot_state.read(meta.slot.state, meta.slot.index);
        slot_generation.read(generation, meta.slot.index);
        slot_fragment.read(fragment, meta.slot.index);
        if (meta.slot.state == SLOT_PARTIAL && generation == meta.job.generation && fragment == hdr.wire.fragment) {
            slot_state.write(meta.slot.index, SLOT_FINAL);
            slot_count.write(meta.slot.index, hdr.wire.count);
            meta.slot.lanes = LANES_KEEP;
        }
    }
}

#endif
