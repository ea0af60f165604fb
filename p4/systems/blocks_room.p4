// SPDX-License-Identifier: Apache-2.0
// Room to work in of blocks.p4: headers that are never valid, so that BMv2 copies none of them.
#ifndef BLOCKS_ROOM_P4
#define BLOCKS_ROOM_P4

#include "terms.p4"

// The block of a packet, and its record. docs/trio.md.
header block_h {
    bit<32> at;     // its record
    bit<32> space;  // the first source of the job's vectors, or of its votes
    bit<32> floor;
    bit<32> beyond; // of the block from the floor
    bit<32> window; // of the terms, those of the space
    bit<32> reach;
    bit<32> ahead;
    bit<32> gone;   // active blocks that its record would take away: 1 or 0
    bit<32> active;
    bit<32> word;   // of a register, to work with
    bit<56> mark;
    bit<32> reached; // by a source
    bit<32> before;
    bit<32> least;
    bit<64> missing; // sources
    bit<1>  early;
    bit<7>  rest;   // a header has whole bytes
}

#define BLOCKS_ROOM terms_h terms; block_h block;

#endif
