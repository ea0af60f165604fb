/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/wire/links.py by `make contract`: do not edit. */
#ifndef LINK_MARKS_H
#define LINK_MARKS_H

#define FRACTION_BITS 16

/* Marks of one direction of a wire. Times are in ns, at the link's rate. */
struct queue {
	__u64 byte_time; /* what a byte takes, with FRACTION_BITS behind the point */
	__u64 bucket; /* what the token bucket may hold back */
	__u64 threshold; /* when to mark */
	__u64 limit; /* when the queue is full */
	__u64 level; /* what came and has not been sent, the bucket's credit included */
	__u64 at; /* when it was so */
	__u64 seen;
	__u64 marked;
};

#endif
