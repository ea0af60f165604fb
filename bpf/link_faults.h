/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/wire/links.py by `make contract`: do not edit. */
#ifndef LINK_FAULTS_H
#define LINK_FAULTS_H

/* Faults of one direction of a wire. */
struct stage {
	__u64 loss; /* share of frames, of 2^32 */
	__u64 duplication; /* share of frames, of 2^32 */
	__u64 reordering; /* share of frames, of 2^32 */
	__u64 corruption; /* share of frames, of 2^32 */
	__u64 random; /* xorshift64*, never 0 */
	__u64 first; /* frames held, by number: from first to before next */
	__u64 next;
	__u64 seen;
	__u64 lost;
	__u64 duplicated;
	__u64 held;
	__u64 released;
	__u64 corrupted;
	__u64 crowded; /* to be held, and no cell was free: passed at once */
	__u64 failed; /* a helper refused: the frame passed, or a held one is lost */
	__u64 merged; /* more than one frame in one buffer: the link is set to merge none */
	__u32 egress; /* the wire's other inner end; this one where a bridge joins the two */
	__u32 distance; /* a held frame goes behind the frame that came this many after it */
	__u32 cells;
	__u32 pad;
};

struct cell_key {
	__u32 ifindex;
	__u32 cell;
};

/* A frame held. */
struct cell {
	__u64 due; /* by `seen` */
	__u32 length;
	__u8 frame[CELL_BYTES]; /* CELL_BYTES, the longest frame, is given by the loader */
};

#endif
