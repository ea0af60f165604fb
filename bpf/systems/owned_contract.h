/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/systems/luwu/contract.py by `make wire`: do not edit. */
#ifndef OWNED_CONTRACT_H
#define OWNED_CONTRACT_H

#define MAX_OWNED_RECORDS 1024 /* of all places */

/* An owned tree at a place: the beats of its members, and the one that was sent up. */
struct owned_record {
	__u64 lock; /* 0 free, 1 held, as a slot's */
	__u64 heard; /* bitmap of the members whose beats came */
	__u32 leader; /* the lowest member's number */
	__u32 sent_ack;
	__u32 sent_credit;
	__u32 pad;
	__u32 acks[64]; /* the first fragment that each lacks, */
	__u32 credits[64]; /* and the first that it has no room for */
};

#endif
