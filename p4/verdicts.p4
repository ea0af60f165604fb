// SPDX-License-Identifier: Apache-2.0
// What became of a packet: the index of its counter. The names are those of docs/protocol.md; testbed/bmv2/program.py reads them from here.
#ifndef VERDICTS_P4
#define VERDICTS_P4

const bit<32> V_FORWARDED = 0;       // IPv4, by its destination address
const bit<32> V_SWITCHED = 1;        // anything else: routed or switched, whatever fits
const bit<32> V_UNROUTABLE = 2;      // neither fits
const bit<32> V_AGGREGATED = 3;      // a contribution was added, the sum is not complete
const bit<32> V_COMPLETED = 4;       // the last contribution: result or partial sum sent
const bit<32> V_RESENT = 5;          // duplicate of a complete sum: sent again from the slot
const bit<32> V_DUPLICATE = 6;       // contribution already in the sum
const bit<32> V_STALE = 7;           // fragment older than the slot's
const bit<32> V_MISMATCH = 8;        // slot still collecting an older fragment: the sender is told
const bit<32> V_BAD_JOB = 9;         // no such job here
const bit<32> V_BAD_GENERATION = 10; // another incarnation of the job
const bit<32> V_BAD_SLOT = 11;       // outside the job's segment
const bit<32> V_BAD_WORKER = 12;     // not a member
const bit<32> V_BAD_SENDER = 13;     // not what the worker or parameter server at that port may send
const bit<32> V_MALFORMED = 14;      // wrong length, magic, version, op or count
const bit<32> V_CORRUPT = 15;        // UDP checksum wrong or missing
const bit<32> V_RESULT = 16;         // result passed on to the job's group
const bit<32> V_NOTICE = 17;         // congestion notice passed on
const bit<32> V_COUNT = 18;
const bit<32> UNDECIDED = 0xffff;

#endif
