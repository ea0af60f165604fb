/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/wire/verdicts.py by `make wire`: do not edit. */
#ifndef VERDICTS_H
#define VERDICTS_H

/* What became of a packet: the index of its counter. */
#define V_FORWARDED 0 /* IPv4, routed by its destination address */
#define V_TO_OVS 1 /* left to Open vSwitch */
#define V_AGGREGATED 2 /* a contribution was added, the sum is not complete */
#define V_COMPLETED 3 /* the last contribution: result or partial sum sent */
#define V_RESENT 4 /* duplicate of a complete sum: sent again from the slot */
#define V_DUPLICATE 5 /* contribution already in the sum */
#define V_STALE 6 /* fragment older than the slot's */
#define V_MISMATCH 7 /* slot still collecting an older fragment: the sender is told */
#define V_BAD_JOB 8 /* no such tree of such a job here */
#define V_BAD_GENERATION 9 /* another incarnation of the job */
#define V_BAD_SLOT 10 /* outside the job's segment */
#define V_BAD_WORKER 11 /* not a member */
#define V_BAD_SENDER 12 /* not what may be sent by that port */
#define V_MALFORMED 13 /* wrong length, magic, version, op or count */
#define V_CORRUPT 14 /* UDP checksum wrong or missing */
#define V_LOCK_BUSY 15 /* slot lock not had in time */
#define V_RESULT 16 /* result, or parameters, passed on to the job's group */
#define V_PULLED 17 /* result stored in the worker's ring */
#define V_PULL_DUPLICATE 18 /* result the ring had already */
#define V_NOTICE 19 /* congestion notice passed on, or told to the worker */
#define V_DARK 20 /* arrived at a dark optical port */
#define V_UNLIT 21 /* arrived at an optical port without a circuit */
#define V_LIT 22 /* crossed the optical switch */
#define V_LATE 23 /* contribution to a sum that a tick completed: the sum is sent again */
#define V_TICKED 24 /* a tick completed the sum: sent */
#define V_TICK_LATE 25 /* a tick for a fragment that the slot does not wait for */
#define V_ASKED 28 /* question: answered, or sent on to the place above */
#define V_ANSWERED 29 /* answer: handed to the worker */
#define V_CAPPED 30 /* no record for a further block of the job: the sender is told */
#define V_TICK_EARLY 31 /* a tick of a block for which a source is not ready */
#define V_BEAT 32 /* beat of a tree with an owner: noted, or sent on */
#define V_HANDED 33 /* packet of a tree with an owner: handed to the end at this host */
#define V_HELD 34 /* for another unit: waits for its slot in the timetable */
#define V_MISSED 35 /* left its queue too late for its slot: back to the queue */
#define V_COUNT 36 /* how many counters there are */

#endif
