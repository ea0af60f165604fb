/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/wire/endpoint.py by `make contract`: do not edit. */
#ifndef CONTRACT_H
#define CONTRACT_H

#define VECTOR_FLOATS 0 /* summed with a scale; the worker takes its part of the sum */
#define VECTOR_LANES 1 /* summed as they are */
#define VECTOR_GATHERED 2 /* every worker's part as it is; the others push zeros for it */
#define VOTE_SPECIAL 255 /* exponent of infinity and NaN */
#define VOTE_VALUES 2 /* lane of a small vector's values, behind the lengths' two */
#define VOTE_SPECIAL_LANE 2 /* how many workers have infinity or NaN */
#define VOTE_FIRST 3 /* lane of the first block's counts */
#define VOTE_BLOCK_LANES 8 /* with the counts of a block */
#define VOTE_SCALE_MAX 126
#define VOTE_CHECK_FACTOR 0x9e3779b97f4a7c15ULL
#define VOTE_CHECK_SHIFT 38

enum event {
	EVENT_IDLE = 0, /* nothing is left to do */
	EVENT_DONE = 1, /* a vector is summed */
	EVENT_QUIET = 2, /* a timer expired in silence */
	EVENT_NOT_FINITE = 3, /* workers have NaN or infinity */
	EVENT_DISAGREE = 4, /* the workers reduce arrays of different lengths */
	EVENT_IMPOSSIBLE = 5, /* a result names as many contributors as cannot be */
	EVENT_OVERTAKEN = 6, /* others are so far ahead that a result was replaced before it was taken */
	EVENT_LACKING = 7, /* a gathered vector lacks parts of workers; all workers know it */
	EVENT_REFUSED = 8, /* the kernel refuses to send, for good; its errno is in the workers' place */
};

/* How a worker's fragments go by a tree of its job. */
struct way {
	__be32 address; /* of the place that the worker contributes to */
	__u32 slot_base; /* where the tree's segment begins there */
	__u32 queue_packets; /* what the shortest queue holds for this tree; 0: unknown */
	__u32 takes_empties; /* whether that place takes pushes without lanes */
};

struct settings {
	__s32 ring_fd;
	__s32 wake_fd;
	__s32 socket_fd;
	__s32 event_fd;
	__u32 job;
	__u32 worker;
	__u32 workers;
	__u32 generation;
	__u32 lanes; /* of every packet of the job */
	__u32 slots; /* of each tree's segment */
	__u32 vote_slots;
	__u32 ring_entries;
	__u32 ring_lanes; /* that an entry of the ring has room for */
	__u32 first_vote;
	__u32 port;
	__u32 trees;
	__u32 parts; /* of the pattern */
	__u32 first_tree; /* number of the first tree on the wire; the others follow */
	__u32 sender; /* number of this worker on the wire; `worker` counts those who sum here */
	__u32 window; /* fragments of a tree under way, at most; 0: half of the slots for vectors */
	__u32 vote_window; /* votes under way, at most; 0: half of vote_slots */
	__u32 spare_bits; /* of a scale, kept for workers whose votes come late */
	__u32 asks; /* whether it asks its places what is lost, and does not infer it */
	__u32 lossless; /* whether nothing is pushed again: a lost packet stops the job */
	double rate_mbps; /* of the link; 0: it has none, and marks nothing */
	const __u32 *places; /* slots - vote_slots of them */
	const struct way *ways; /* by tree */
	const __u32 *pattern; /* the tree of each fragment modulo parts */
	/* whether results come by parallel circuits, and may overtake each other; null: never */
	const __u32 *parallel;
	const double *rate_now; /* what the rate has become, 0 until it changes; null: it never does */
	/* twice the fragments summed so far, and 1 where more are pushed: for who waits for us */
	__u64 *progress;
	const __u32 *cells; /* the bucket of each exponent of a finite number */
	const __u32 *tops; /* the largest exponent of each bucket */
	__u32 buckets;
	__u32 count_bits; /* of a bucket's count in a vote */
	__u32 block_fragments; /* that share a scale */
	__u32 page_blocks; /* that one vote is on */
};

/* What an endpoint did. Windows are in packets; of several trees, the sum of theirs is the window now. */
struct counters {
	__u64 pushed;
	__u64 retransmitted;
	__u64 timeouts;
	__u64 wakes;
	__u64 notices;
	__u64 reductions;
	double window;
	double window_min;
	double window_sum;
	double rtt_us;
	__u64 window_samples;
	__u64 marked;
	__u64 degraded; /* results in which workers are missing */
	__u64 left_out; /* values left out: a scale agreed on without this worker has no room */
	__u64 scaled; /* values that were pushed by a scale */
	__u64 zeroed; /* those of them that are not zero, and were pushed as zero */
	__u64 asked; /* questions that were sent */
};

#endif
