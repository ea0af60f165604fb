// SPDX-License-Identifier: Apache-2.0
// Generated from testbed/wire/spec.py, operations.py by `make wire`: do not edit.
#ifndef WIRE_P4
#define WIRE_P4

const bit<16> WIRE_MAGIC = 0x4f49;
const bit<8> WIRE_VERSION = 2;
const bit<16> WIRE_UDP_PORT = 47001;
const bit<16> WIRE_MAX_WORKERS = 64;
const bit<16> WIRE_NO_WORKER = 0xffff; // in a result
const bit<8> WIRE_TTL = 64; // of what is made on the way
const bit<8> WIRE_ECT = 2; // ECN-capable (RFC 3168)
const bit<8> WIRE_CE = 3; // congestion experienced: both bits
const bit<8> WIRE_DSCP_REPEATED = 3; // of what a worker sends again
const bit<8> WIRE_GROUP_BYTE = 239; // the first of a group's address
const bit<16> WIRE_PROBE_ETHERTYPE = 0x88b5; // of the agent's question to the optics
const bit<8> WIRE_OP_PUSH = 1; // worker to the place that it contributes to: its gradients of a fragment
const bit<8> WIRE_OP_PARTIAL = 2; // place to the place above: the sum of what came to it
const bit<8> WIRE_OP_RESULT = 3; // towards the workers: the sum made at the top
const bit<8> WIRE_OP_NOTICE = 4; // to the sender of a push or partial sum: congestion
const bit<8> WIRE_OP_TICK = 5; // to a place, by its control port alone: complete this fragment as it is
const bit<8> WIRE_OP_SUM = 9; // place at the top of a tree with an owner to its owner: the sum of a fragment
const bit<8> WIRE_OP_PARAMETERS = 10; // owner to the workers: bytes, which are copied and never summed
const bit<8> WIRE_OP_PARAMETER_BEAT = 11; // worker to its place, and on to the owner: how far it is
const bit<8> WIRE_OP_GRADIENT_BEAT = 12; // owner to the workers: how far it is
const bit<8> WIRE_FLAG_FINAL = 1;
const bit<8> WIRE_FLAG_DEGRADED = 2;
const bit<8> WIRE_FLAG_ECN = 4;
const bit<8> WIRE_FLAG_RETRANSMIT = 8;
const bit<8> WIRE_FLAG_END = 16;
#define WIRE_HEADER_BYTES 32

#define WIRE_IS_OP(op) (((op) >= WIRE_OP_PUSH && (op) <= WIRE_OP_TICK) || ((op) >= WIRE_OP_SUM && (op) <= WIRE_OP_GRADIENT_BEAT))
#define WIRE_HAS_LANES(op) ((op) != WIRE_OP_NOTICE && (op) != WIRE_OP_PARAMETER_BEAT && (op) != WIRE_OP_GRADIENT_BEAT)

header wire_h {
    bit<16> magic; // 0x4f49
    bit<8> version; // of this format
    bit<8> op; // the operation: WIRE_OP_*
    bit<8> flags; // 1 final, 2 degraded, 4 ECN, 8 retransmit, 16 end
    bit<8> tree; // which tree of the job, from 0
    bit<16> job; // job id, unique among the running jobs of a testbed
    bit<16> worker; // rank of the sender; in a partial, the sending place's number; in a result, 65535
    bit<16> contributors; // how many workers are in the sum: 1 in a push
    bit<32> generation; // which incarnation of the job; packets of another one never change a sum
    bit<32> slot; // of the receiving place; in a result, of the place at the top
    bit<32> fragment; // counts the tree's fragments from 0, never reused within a generation
    bit<16> count; // how many of the lanes are valid; the rest is zero padding
    bit<16> age; // milliseconds that the fragment waited before a tick completed it, else 0
    bit<16> lanes; // how many lanes follow; in a notice, of the packet that it answers
    bit<16> reserved; // zero
}

#endif
