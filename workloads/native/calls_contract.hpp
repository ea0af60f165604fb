/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/wire/calls.py by `make contract`: do not edit. */
#ifndef CALLS_CONTRACT_H
#define CALLS_CONTRACT_H

#define CALL_ENTRIES 64 /* of a worker's table */
#define CALL_WHERE_BYTES 96
#define ROWS_MOST 60000 /* of a timeline */
#define CALL_OPERATION_SHIFT 8 /* in `what`; the kind is below */
#define CALL_TYPE_SHIFT 16 /* c10's number of the type, and 1; 0: none */
#define CALL_ROOT_SHIFT 24 /* the root's number in its group, and 1; 0: none */
#define CALL_ALL_REDUCE 1
#define CALL_BROADCAST 2
#define CALL_REDUCE 3
#define CALL_ALL_GATHER 4
#define CALL_GATHER 5
#define CALL_SCATTER 6
#define CALL_REDUCE_SCATTER 7
#define CALL_ALL_TO_ALL 8
#define CALL_BARRIER 9
#define ROW_ASKED 0
#define ROW_WAITED 1
#define ROW_RESUMED 2
#define COURSE_BESIDE 0 /* by gloo beside the sums, or carried beside them */
#define COURSE_SUMMED 1 /* by the job's own kind of synchronisation */
#define COURSE_PULLED 2 /* from a tree's owner */
#define COURSE_PUSHED 3 /* to it */
#define COURSE_CALLED 4 /* an answer of its */

/* A collective that a script has asked for. */
struct call {
	__u64 number; /* of all calls of its group, from 1; 0: being written; written last */
	__u64 group; /* a random word */
	__u64 what; /* kind, operation, type and root: the same on all workers */
	__u64 elements; /* likewise; 0 where workers may differ */
	__u64 asked_ns; /* by CLOCK_MONOTONIC */
};

/* The calls of a worker. It alone writes here. */
struct call_table {
	__u64 waits; /* the place of the call that the script waits for, from 1; 0: it waits for none */
	__u64 waits_ns; /* since when, by CLOCK_MONOTONIC */
	__u64 last; /* the place of its last call, from 1 */
	__u64 doubt_group; /* the first call in which it found others to ask for something else */
	__u64 doubt_number; /* 0: none; written last */
	__u64 where_group;
	__u64 where_number;
	__u8 where[96]; /* the script's line that waits for it: UTF-8, ended by 0 */
	__u64 calls[320]; /* CALL_ENTRIES calls */
	__u64 inside_ns; /* since when the script is in the function `inside`; 0: it is in none */
	__u8 inside[32]; /* a function of torch.distributed */
	__u8 line[96]; /* the script's present line */
	__u8 meets[192]; /* where it waits for its process group, and why there */
};

#endif
