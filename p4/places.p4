// SPDX-License-Identifier: Apache-2.0
// Generated from testbed/contract/places.py by `make contract`: do not edit.
#ifndef PLACES_P4
#define PLACES_P4

#define SLOTS 1024 // of a switch

// Who sits behind the port that a packet came in by.
const bit<2> PORT_FABRIC = 0; // optical, another switch: what comes was checked where it entered
const bit<2> PORT_HOST = 1; // of a host that takes part in no job
const bit<2> PORT_WORKER = 2;
const bit<2> PORT_PS = 3;

// What a slot is.
const bit<8> SLOT_EMPTY = 0;
const bit<8> SLOT_FILLING = 1;
const bit<8> SLOT_PARTIAL = 2; // all local contributions are in
const bit<8> SLOT_FINAL = 3; // the lanes hold the result

// What a job's sum made here is: also what a slot is then.
const bit<8> ROLE_TRANSIT = 1; // nothing is summed here: results pass through
const bit<8> ROLE_PARTIAL = 2; // to be sent to the PS
const bit<8> ROLE_FINAL = 3; // the result

// A job as this switch knows it.
struct job_t {
    bit<64> members; // bitmap of the workers expected here
    bit<32> generation;
    bit<8> role; // ROLE_*
    bit<32> base; // MemID
    bit<32> size; // Size
    bit<16> total; // workers of the job
    bit<16> local; // workers summed here
    bit<16> index; // of this unit in the job
    bit<32> result_base; // MemID where the results are made
    bit<32> self_ip;
    bit<32> up_ip; // of the PS
    bit<32> group_ip;
    bit<16> group; // multicast group
}

#endif
