// SPDX-License-Identifier: Apache-2.0
// Generated from testbed/systems/trio/contract.py by `make wire`: do not edit.
#ifndef TERMS_P4
#define TERMS_P4

#define BLOCKS 2048 // records
#define BLOCK_JOBS 64 // job records
#define BLOCK_SOURCES 64 // of a job record: 2 ** 6

// A tree that is summed by blocks, beside its entry.
header terms_h {
    bit<32> record; // the job record
    bit<32> sources; // the first of its sources
    bit<32> data; // slots from here on are votes'
    bit<32> cap; // active blocks, at most
    bit<32> first; // record of a tree's vectors
    bit<32> mask; // of a block's record among these, whose number is a power of two
    bit<32> window; // blocks that a source has under way, at most
    bit<32> reach; // how far beyond the floor a block may be: what is kept, and a window
    bit<32> ahead; // how far ticks may be ahead of what a source has
    bit<32> vote_first; // the same of votes
    bit<32> vote_mask;
    bit<32> vote_window;
    bit<32> vote_reach;
    bit<32> vote_ahead;
}

#endif
