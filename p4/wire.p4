// SPDX-License-Identifier: Apache-2.0
// Rendered by testbed/contract/emit.py from testbed/contract/spec.py; `make contract` renders it again.
#ifndef WIRE_P4
#define WIRE_P4

const bit<16> WIRE_MAGIC = 0x4f49;
const bit<8> WIRE_VERSION = 1;
const bit<16> WIRE_UDP_PORT = 47001;
#define WIRE_HEADER_BYTES 32

const bit<8> WIRE_OP_PUSH = 1;
const bit<8> WIRE_OP_PARTIAL = 2;
const bit<8> WIRE_OP_RESULT = 3;
const bit<8> WIRE_OP_NOTICE = 4;
const bit<8> WIRE_FLAG_FINAL = 1;
const bit<8> WIRE_FLAG_DEGRADED = 2;
const bit<8> WIRE_FLAG_ECN = 4;
const bit<8> WIRE_FLAG_RETRANSMIT = 8;

header wire_h {
    bit<16> magic; // 0x4F49
    bit<8> version; // of this format
    bit<8> op; // 1 push, 2 partial, 3 result, 4 notice
    bit<8> flags; // 1 final, 2 degraded, 4 ECN, 8 retransmit
    bit<8> reserved; // zero
    bit<16> job; // job id, unique among the running jobs of a testbed
    bit<16> worker; // rank of the sender; in a partial, the index of the sender's unit in the job
    bit<16> contributors; // how many workers are summed in the lanes
    bit<32> generation; // which incarnation of the job; packets of another one never change a sum
    bit<32> slot; // of the receiving switch; in a result, of the switch or PS that summed
    bit<32> fragment; // counts the job's fragments from 0, never reused within a generation
    bit<16> count; // how many of the lanes are valid; the rest is zero padding
    bit<16> age; // milliseconds that the oldest contribution waited, for degraded results
    bit<32> trailer; // zero
}

#endif
