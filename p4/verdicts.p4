// SPDX-License-Identifier: Apache-2.0
// Generated from testbed/wire/verdicts.py by `make wire`: do not edit.
#ifndef VERDICTS_P4
#define VERDICTS_P4

// What became of a packet: the index of its counter.
const bit<32> V_FORWARDED = 0; // IPv4, routed by its destination address
const bit<32> V_AGGREGATED = 2; // a contribution was added, the sum is not complete
const bit<32> V_COMPLETED = 3; // the last contribution: result or partial sum sent
const bit<32> V_RESENT = 4; // duplicate of a complete sum: sent again from the slot
const bit<32> V_DUPLICATE = 5; // contribution already in the sum
const bit<32> V_STALE = 6; // fragment older than the slot's
const bit<32> V_MISMATCH = 7; // slot still collecting an older fragment: the sender is told
const bit<32> V_BAD_JOB = 8; // no such tree of such a job here
const bit<32> V_BAD_GENERATION = 9; // another incarnation of the job
const bit<32> V_BAD_SLOT = 10; // outside the job's segment
const bit<32> V_BAD_WORKER = 11; // not a member
const bit<32> V_BAD_SENDER = 12; // not what may be sent by that port
const bit<32> V_MALFORMED = 13; // wrong length, magic, version, op or count
const bit<32> V_CORRUPT = 14; // UDP checksum wrong or missing
const bit<32> V_RESULT = 16; // result, or parameters, passed on to the job's group
const bit<32> V_NOTICE = 19; // congestion notice passed on, or told to the worker
const bit<32> V_LATE = 23; // contribution to a sum that a tick completed: the sum is sent again
const bit<32> V_TICKED = 24; // a tick completed the sum: sent
const bit<32> V_TICK_LATE = 25; // a tick for a fragment that the slot does not wait for
const bit<32> V_SWITCHED = 26; // not IPv4 without options: routed or switched, whatever fits
const bit<32> V_UNROUTABLE = 27; // neither fits
const bit<32> V_CAPPED = 30; // no record for a further block of the job: the sender is told
const bit<32> V_TICK_EARLY = 31; // a tick of a block for which a source is not ready
const bit<32> V_BEAT = 32; // beat of a tree with an owner: noted, or sent on
const bit<32> V_COUNT = 33; // how many counters there are

#endif
