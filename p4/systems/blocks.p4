// SPDX-License-Identifier: Apache-2.0
// Sums by block records, docs/trio.md: which record is a packet's block's, when one is made, and until when
// its result is kept. What a contribution is, and what becomes of a sum, is slot.p4's: a record is a slot
// behind those that jobs have segments of. A tree has a row of them that is longer than what its sources can
// have under way and what is kept together, so a block that a record held before is one that nobody needs.
#ifndef BLOCKS_P4
#define BLOCKS_P4

#include "sources.p4"

@name(".block_marks") register<bit<56>>(BLOCKS) block_marks; // block, slot, how many came; or 0
@name(".block_floor") register<bit<32>>(BLOCK_JOBS * 2) block_floor; // before it every source has all results
@name(".block_reached") register<bit<32>>(BLOCK_JOBS * BLOCK_SOURCES * 2) block_reached; // by a source
@name(".block_active") register<bit<32>>(BLOCK_JOBS) block_active; // those whose result is not made
@name(".block_made") register<bit<32>>(BLOCK_JOBS) block_made;
@name(".block_missed") register<bit<32>>(BLOCK_JOBS * BLOCK_SOURCES) block_missed; // blocks without a source

// The terms of the tree; the block's record, and whether it is this block's.
control BlockOf(inout headers_t hdr, inout metadata_t meta) {
#include "set_terms.p4"
    @name(".no_terms") action no_terms() {
        meta.verdict = V_BAD_JOB;
    }
    @name(".terms") table terms {
        key = { meta.tree: exact; }
        actions = { set_terms; no_terms; }
        default_action = no_terms();
        size = BLOCK_JOBS;
    }
    action find() {
        if (hdr.wire.slot >= hdr.terms.data) {
            hdr.block.space = 2 * hdr.terms.sources + BLOCK_SOURCES;
            hdr.block.at = hdr.terms.vote_first + (hdr.wire.fragment & hdr.terms.vote_mask);
            hdr.block.window = hdr.terms.vote_window;
            hdr.block.reach = hdr.terms.vote_reach;
            hdr.block.ahead = hdr.terms.vote_ahead;
        } else {
            hdr.block.space = 2 * hdr.terms.sources;
            hdr.block.at = hdr.terms.first + (hdr.wire.fragment & hdr.terms.mask);
            hdr.block.window = hdr.terms.window;
            hdr.block.reach = hdr.terms.reach;
            hdr.block.ahead = hdr.terms.ahead;
        }
        meta.slot.index = SLOTS + hdr.block.at;
        block_floor.read(hdr.block.floor, hdr.block.space >> 6);
        hdr.block.beyond = hdr.wire.fragment - hdr.block.floor;
        slot_state.read(meta.slot.state, meta.slot.index);
        slot_generation.read(meta.slot.generation, meta.slot.index);
        slot_fragment.read(meta.slot.fragment, meta.slot.index);
        hdr.block.gone = 0;
        if (meta.slot.generation != meta.entry.generation) {
            meta.slot.is_new = 1; // what another incarnation of the job left there is nobody's
        } else if (meta.slot.state == SLOT_EMPTY || meta.slot.fragment != hdr.wire.fragment) {
            meta.slot.is_new = 1;
            hdr.block.gone = (bit<32>) (bit<1>) (meta.slot.state == SLOT_FILLING);
        }
    }

    apply {
        if (terms.apply().hit) {
            find();
        }
    }
}

// A record for a contribution to a block that has none, and from whom one came. From the floor on no record
// was taken away: a block that has none there never had one.
control BlockMade(inout headers_t hdr, inout metadata_t meta) {
    action make() {
        if (hdr.block.beyond[31:31] == 1) {
            meta.verdict = V_STALE;
        } else if (meta.slot.is_new == 1) {
            block_active.read(hdr.block.active, hdr.terms.record);
            if (hdr.block.beyond >= hdr.block.reach) {
                meta.verdict = V_BAD_SLOT; // no window goes so far
            } else if (hdr.block.active >= hdr.terms.cap && hdr.block.beyond >= hdr.terms.cap) {
                meta.verdict = V_CAPPED;
                meta.is_changed = 1;
            } else {
                block_active.write(hdr.terms.record, hdr.block.active + 1 - hdr.block.gone);
                block_made.read(hdr.block.word, hdr.terms.record);
                block_made.write(hdr.terms.record, hdr.block.word + 1);
                meta.slot.state = SLOT_FILLING;
                slot_generation.write(meta.slot.index, meta.entry.generation);
                slot_fragment.write(meta.slot.index, hdr.wire.fragment);
            }
        }
    }
    action note() {
        hdr.block.at = hdr.block.space + (bit<32>) hdr.wire.worker;
        block_reached.read(hdr.block.reached, hdr.block.at);
        hdr.block.word = hdr.wire.fragment + 1 - hdr.block.reached;
        if (hdr.block.word != 0 && hdr.block.word[31:31] == 0) {
            hdr.block.word = hdr.wire.fragment + 1;
            block_reached.write(hdr.block.at, hdr.block.word);
        }
    }

    apply {
        make();
        if (meta.verdict == UNDECIDED) {
            note();
        }
    }
}

// What a contribution that was added makes of the record.
control BlockAdded(inout headers_t hdr, inout metadata_t meta) {
    action mark() {
        hdr.block.at = meta.slot.index - SLOTS;
        block_marks.read(hdr.block.mark, hdr.block.at);
        if (meta.slot.is_new == 1) {
            hdr.block.mark = hdr.wire.fragment ++ hdr.wire.slot[15:0] ++ 8w0;
        }
        hdr.block.mark = hdr.block.mark + 1;
        if (meta.verdict == V_COMPLETED) {
            hdr.block.mark = 0;
            block_active.read(hdr.block.active, hdr.terms.record);
            block_active.write(hdr.terms.record, hdr.block.active - 1);
            hdr.block.word = hdr.block.beyond - hdr.block.window + 1;
            if (hdr.block.word[31:31] == 0) { // the floor only rises
                hdr.block.word = hdr.block.word + hdr.block.floor;
                block_floor.write(hdr.block.space >> 6, hdr.block.word);
            }
        }
        block_marks.write(hdr.block.at, hdr.block.mark);
    }

    apply {
        mark();
    }
}

// Whether a source that is missing lacks results which this one's would overwrite, having pushed none behind
// `before`; and the `least` that any source has reached. Without branches, and each source in its turn: a
// switch of stages has no turns (docs/p4.md).
#define HAS_OF(source) \
    block_reached.read(hdr.block.reached, hdr.block.at); \
    hdr.block.word = hdr.block.before - hdr.block.reached; \
    hdr.block.early = hdr.block.early | (hdr.block.missing[source:source] & ~hdr.block.word[31:31]); \
    hdr.block.word = hdr.block.reached - hdr.block.least; \
    hdr.block.least = hdr.block.least + (hdr.block.word \
        & (0 - (bit<32>) (meta.slot.mine[source:source] & hdr.block.word[31:31]))); \
    hdr.block.at = hdr.block.at + 1;

#define COUNT_OF(source) \
    block_missed.read(hdr.block.word, hdr.block.at); \
    hdr.block.word = hdr.block.word + (bit<32>) hdr.block.missing[source:source]; \
    block_missed.write(hdr.block.at, hdr.block.word); \
    hdr.block.at = hdr.block.at + 1;

// A tick completes a block with what is in it, if that is what the tick says.
control BlockTicked(inout headers_t hdr, inout metadata_t meta) {
    action look() {
        slot_bitmap.read(meta.slot.bitmap, meta.slot.index);
        hdr.block.at = meta.slot.index - SLOTS;
        block_marks.read(hdr.block.mark, hdr.block.at);
        meta.slot.mine = meta.entry.workers | meta.entry.places;
        hdr.block.missing = meta.slot.mine & ~meta.slot.bitmap;
        hdr.block.early = 0;
        hdr.block.before = hdr.wire.fragment - hdr.block.ahead + hdr.block.window;
        hdr.block.least = hdr.block.floor + hdr.block.window + 0x7fff0000;
        hdr.block.at = hdr.block.space;
        if (meta.slot.is_new == 1 || hdr.block.beyond[31:31] == 1 || meta.slot.state != SLOT_FILLING
            || (hdr.wire.contributors != 0 && hdr.wire.contributors != (bit<16>) hdr.block.mark[7:0])) {
            meta.verdict = V_TICK_LATE;
        }
    }
    action ask_first() { SOURCES_8(HAS_OF, 0) }
    action ask_second() { SOURCES_8(HAS_OF, 8) }
    action ask_more() { SOURCES_8(HAS_OF, 16) SOURCES_8(HAS_OF, 24) }
    action ask_rest() {
        SOURCES_8(HAS_OF, 32) SOURCES_8(HAS_OF, 40) SOURCES_8(HAS_OF, 48) SOURCES_8(HAS_OF, 56)
    }
    action count_first() { SOURCES_8(COUNT_OF, 0) }
    action count_second() { SOURCES_8(COUNT_OF, 8) }
    action count_more() { SOURCES_8(COUNT_OF, 16) SOURCES_8(COUNT_OF, 24) }
    action count_rest() {
        SOURCES_8(COUNT_OF, 32) SOURCES_8(COUNT_OF, 40) SOURCES_8(COUNT_OF, 48) SOURCES_8(COUNT_OF, 56)
    }
    action settle() {
        bit<8> flags;
        if (hdr.block.early == 1 && hdr.block.beyond >= hdr.block.ahead) {
            meta.verdict = V_TICK_EARLY;
        } else {
            hdr.block.word = hdr.block.least - hdr.block.window - hdr.block.floor;
            hdr.block.word = hdr.block.word & ((bit<32>) hdr.block.word[31:31] - 1); // it only rises
            block_floor.write(hdr.block.space >> 6, hdr.block.floor + hdr.block.word);
            hdr.block.at = meta.slot.index - SLOTS;
            block_marks.write(hdr.block.at, 0);
            hdr.block.at = hdr.terms.sources;
            block_active.read(hdr.block.active, hdr.terms.record);
            block_active.write(hdr.terms.record, hdr.block.active - 1);
            slot_contributors.read(hdr.wire.contributors, meta.slot.index);
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
        look();
        if (meta.verdict == UNDECIDED) {
            ask_first();
            if (meta.slot.mine[63:8] != 0) {
                ask_second();
                if (meta.slot.mine[63:16] != 0) {
                    ask_more();
                    if (meta.slot.mine[63:32] != 0) {
                        ask_rest();
                    }
                }
            }
            settle();
            if (meta.verdict == V_TICKED) {
                count_first();
                if (hdr.block.missing[63:8] != 0) {
                    count_second();
                    if (hdr.block.missing[63:16] != 0) {
                        count_more();
                        if (hdr.block.missing[63:32] != 0) {
                            count_rest();
                        }
                    }
                }
            }
        }
    }
}

// Keeps a result that came from above, also where nobody here has pushed its block: who does that late has it
// from here.
control BlockKept(inout headers_t hdr, inout metadata_t meta) {
    action keep() {
        bit<8> flags;
        if (hdr.block.beyond[31:31] == 0
            && (meta.slot.is_new == 1 ? hdr.block.beyond < hdr.block.reach
                : meta.slot.state == SLOT_PARTIAL
                  || (meta.slot.state == SLOT_FILLING && hdr.wire.flags & WIRE_FLAG_DEGRADED != 0))) {
            slot_flags.read(flags, meta.slot.index);
            flags = flags & SUM_MARKED & ((bit<8>) meta.slot.is_new - 1);
            slot_flags.write(meta.slot.index, flags | (hdr.wire.flags & WIRE_FLAG_DEGRADED));
            if (meta.slot.is_new == 1) {
                slot_bitmap.write(meta.slot.index, 0);
                slot_generation.write(meta.slot.index, meta.entry.generation);
                slot_fragment.write(meta.slot.index, hdr.wire.fragment);
                block_made.read(hdr.block.word, hdr.terms.record);
                block_made.write(hdr.terms.record, hdr.block.word + 1);
            } else if (meta.slot.state == SLOT_FILLING) {
                hdr.block.gone = 1;
            }
            block_active.read(hdr.block.active, hdr.terms.record);
            block_active.write(hdr.terms.record, hdr.block.active - hdr.block.gone);
            block_marks.write(hdr.block.at, 0);
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

// All of a packet whose tree is summed by blocks.
control Blocks(inout headers_t hdr, inout metadata_t meta) {
    BlockOf() block_of;
    Segment() segment;
    SegmentOfTick() segment_of_tick;
    BlockMade() made;
    Bitmap() bitmap;
    Count() count;
    BlockAdded() added;
    BlockTicked() ticked;
    PassedOn() passed_on;
    BlockKept() kept;
    Sent() sent;

    apply {
        block_of.apply(hdr, meta);
        if (meta.verdict == UNDECIDED) {
            if (hdr.wire.op == WIRE_OP_PUSH || hdr.wire.op == WIRE_OP_PARTIAL) {
                segment.apply(hdr, meta);
                if (meta.verdict == UNDECIDED) {
                    made.apply(hdr, meta);
                }
                if (meta.verdict == UNDECIDED) {
                    bitmap.apply(hdr, meta);
                }
                if (meta.verdict == UNDECIDED) {
                    count.apply(hdr, meta);
                    added.apply(hdr, meta);
                }
            } else if (hdr.wire.op == WIRE_OP_TICK) {
                segment_of_tick.apply(hdr, meta);
                if (meta.verdict == UNDECIDED) {
                    ticked.apply(hdr, meta);
                }
            } else {
                passed_on.apply(hdr, meta);
                if (meta.verdict == V_RESULT && meta.entry.role == ROLE_INNER) {
                    kept.apply(hdr, meta);
                }
            }
            sent.apply(hdr, meta);
        }
    }
}

#endif
