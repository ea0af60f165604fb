// SPDX-License-Identifier: Apache-2.0
// Generated from testbed/wire/places.py, spreading.py by `make wire`: do not edit.
#ifndef PLACES_P4
#define PLACES_P4

#define SLOTS 1536 // of a switch
#define CELLS 3584 // of a register: slots, and a program's own behind them

// Who works on a tree's contributions and ticks.
const bit<8> PROGRAM_SUM = 0; // bpf/sum.h
const bit<8> PROGRAM_BLOCKS = 1; // bpf/systems/blocks.h
const bit<8> PROGRAM_OWNED = 2; // bpf/systems/owned.h

// Who sits behind the port that a packet came in by.
const bit<2> PORT_FABRIC = 0; // of another switch, or optical: what comes was checked where it entered
const bit<2> PORT_HOST = 1; // of a host
const bit<2> PORT_CONTROL = 2; // of whoever runs the place

// What a slot is.
const bit<8> SLOT_EMPTY = 0;
const bit<8> SLOT_FILLING = 1;
const bit<8> SLOT_PARTIAL = 2; // the lanes hold the sum made here, which was sent to the place above
const bit<8> SLOT_FINAL = 3; // the lanes hold the result

// What becomes of the sum made here: also what a slot is then.
const bit<8> ROLE_TRANSIT = 1; // no contributor here: results pass through
const bit<8> ROLE_INNER = 2; // it goes to the place above
const bit<8> ROLE_TOP = 3; // it is the result

// Flags of a slot.
const bit<8> SUM_MARKED = 1; // a contribution came with congestion experienced (RFC 3168)
const bit<8> SUM_DEGRADED = 2; // workers are missing; the number is the header flag's
const bit<8> SUM_END = 16; // of a tree with an owner: the end of a request; the number is the header flag's

// A tree of a job as this switch knows it.
struct entry_t {
    bit<64> workers; // bitmap of the ranks that push here
    bit<64> places; // bitmap of the numbers of the places whose sums come here
    bit<32> generation;
    bit<8> role; // ROLE_*
    bit<32> base; // MemID
    bit<32> size; // Size
    bit<16> number; // of this place, in its partial sums
    bit<32> up_base; // MemID at the place above
    bit<32> result_base; // MemID at the top
    bit<16> lanes; // of every packet
    bit<32> self_ip;
    bit<32> up_ip; // of the place above; at the top of a tree with an owner, of the owner
    bit<32> group_ip;
    bit<16> group; // multicast group, the first of
    bit<8> ways; // so many, among which results are spread
    bit<8> program; // PROGRAM_*
    bit<8> record; // of a tree with an owner: the beats of its members
}

// The one of several parallel circuits that a packet takes.
const bit<32> SPREAD_FACTOR = 0x9e3779b1; // 2^32 over the golden ratio
const bit<8> SPREAD_BITS = 6; // of a packet's bucket

#endif
