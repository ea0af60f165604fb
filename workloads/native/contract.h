/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/contract/endpoint.py by `make contract`: do not edit. */
#ifndef CONTRACT_H
#define CONTRACT_H

#define VOTE_EXPONENTS 256 /* lanes of the one-hot vector */
#define VOTE_SPECIAL 255 /* exponent of infinity and NaN */
#define VOTE_FIRST 2 /* of the one-hot vector, behind the lengths' two */
#define VOTE_SCALE_MAX 126
#define VOTE_CHECK_FACTOR 0x9e3779b97f4a7c15ULL
#define VOTE_CHECK_SHIFT 38

enum event {
	EVENT_IDLE = 0, /* nothing is left to do */
	EVENT_DONE = 1, /* a vector is summed */
	EVENT_QUIET = 2, /* a timer expired in silence */
	EVENT_NOT_FINITE = 3, /* workers have NaN or infinity */
	EVENT_DISAGREE = 4, /* the workers reduce arrays of different lengths */
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
	__u32 lanes;
	__u32 slot_base;
	__u32 slots;
	__u32 vote_slots;
	__u32 ring_entries;
	__u32 first_vote;
	__be32 address;
	__u32 port;
	__u32 share; /* of the fragments that the shortest queue holds; 0: unknown */
	__u32 pad;
	double rate_mbps; /* of the link; 0: it has none, and marks nothing */
	const __u32 *places; /* slots - vote_slots of them */
	const double *rate_now; /* what the rate has become, 0 until it changes; null: it never does */
	__u64 *progress; /* fragments summed so far, for who waits for us */
};

/* What an endpoint did. Windows are in packets. */
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
};

#endif
