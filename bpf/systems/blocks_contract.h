/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/systems/trio/contract.py by `make wire`: do not edit. */
#ifndef BLOCKS_CONTRACT_H
#define BLOCKS_CONTRACT_H

#define BUCKET_BLOCKS 8 /* records of a bucket */
#define MAX_SOURCES 256 /* of a place */
#define MAX_BUCKETS 8192 /* of a place */
#define MAX_JOB_RECORDS 1024 /* of all places */
#define BLOCK_SPACES 2 /* vectors, and votes on their scales */
#define KEY_SHIFT 33 /* of the job record's serial number, above the space and the block */
#define MARK_SHIFT 9 /* of the block, above the count of sources */

/* A tree of a job at a place where it is summed by blocks: figure 17 of the paper. */
struct job_record {
	__u64 workers[4]; /* sources: bitmaps of ranks, */
	__u64 places[4]; /* and of the numbers of places */
	__u64 out[4]; /* of these, those that left: new blocks do not wait for them */
	__u64 floor[2]; /* before it every source has all results, by space; 32 bits of it */
	__u32 serial; /* never used again; 0: no record */
	__u32 expected; /* sources */
	__u32 table; /* index into buckets and blocks */
	__u32 buckets; /* of that: a power of two */
	__u32 cap; /* active blocks, at most */
	__u32 active; /* those whose result is not made */
	__u32 made; /* all that were ever made */
	__u32 pad;
	__u32 salt[2]; /* of a block's bucket, by space */
	__u32 data; /* slots from here on are votes' */
	__u32 slots; /* of a worker's ring */
	__u32 window[2]; /* blocks that a source has under way, at most, by space */
	__u32 kept[2]; /* blocks whose results are kept, by space */
	__u32 ahead[2]; /* how far ticks may be ahead of what a source has, by space */
	__u32 missed[256]; /* blocks that went without a source */
	__u32 reached[512]; /* behind the newest block that came from a source, space by space */
};

struct block_bucket {
	__u64 lock; /* 0 free, 1 held, as a slot's */
	__u64 keys[8]; /* serial number of the job record, space and block; 0: no record */
	__u32 marks[8]; /* the block's low bits and how many sources came; 0: nothing waits here */
	__u32 found; /* a place in the bucket; scratch of who holds the lock */
	__u32 pad[5]; /* to two cache lines */
};

/* Figure 18 of the paper. The block itself is in the bucket's key. */
struct block_record {
	__u64 start_ns; /* when the first packet came, */
	__u64 touched_ns; /* and when the last contribution was added; CLOCK_MONOTONIC */
	__u64 sources[4]; /* bitmap of those that came */
	__u64 awaits[4]; /* and of those that it is a sum of when all came */
	__u32 job;
	__u32 state; /* SLOT_* */
	__u32 flags; /* SUM_* */
	__u32 contributors; /* workers in the sum */
	__u32 received; /* sources that came */
	__u32 slot; /* where workers keep the result */
	__u16 count; /* of the last packet summed */
	__u16 age; /* of the packet that completed it */
	__u32 expected; /* sources: how many it awaits */
	__u64 pairs[WIRE_LANES / 2]; /* two lanes each, the first in the upper half; one addition sums both */
};

#endif
