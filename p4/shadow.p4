// SPDX-License-Identifier: Apache-2.0
// The shadow copy. A slot keeps its complete sum until the window has moved on by half a segment, and who
// lost the result gets it from there; at an inner place the result takes the place of the partial sum.
#ifndef SHADOW_P4
#define SHADOW_P4

// A result that comes by. A degraded one replaces an incomplete sum, too: nobody waits for that sum any more.
control KeepResult(in headers_t hdr, inout metadata_t meta) {
    action keep() {
        bit<8> flags;
        meta.slot.index = hdr.wire.slot - meta.entry.result_base + meta.entry.base;
        slot_state.read(meta.slot.state, meta.slot.index);
        slot_generation.read(meta.slot.generation, meta.slot.index);
        slot_fragment.read(meta.slot.fragment, meta.slot.index);
        if (meta.slot.generation == meta.entry.generation && meta.slot.fragment == hdr.wire.fragment
            && (meta.slot.state == SLOT_PARTIAL
                || (meta.slot.state == SLOT_FILLING && hdr.wire.flags & WIRE_FLAG_DEGRADED != 0))) {
            slot_flags.read(flags, meta.slot.index);
            slot_flags.write(meta.slot.index, (flags & SUM_MARKED) | (hdr.wire.flags & WIRE_FLAG_DEGRADED));
            slot_state.write(meta.slot.index, SLOT_FINAL);
            slot_contributors.write(meta.slot.index, hdr.wire.contributors);
            slot_count.write(meta.slot.index, hdr.wire.count);
            slot_age.write(meta.slot.index, hdr.wire.age);
            meta.slot.lanes = LANES_KEEP;
        }
    }

    apply {
        keep();
    }
}

#endif
