/* SPDX-License-Identifier: Apache-2.0 */
/* The state of the compiled endpoint, and the functions that its files provide to each other. */
#ifndef ENDPOINT_H
#define ENDPOINT_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <linux/types.h>

#include "../../bpf/wire.h"
#define RESULT_LANES /* chosen by the fabric's MTU, known at run time */
#include "../../bpf/ring.h"
#include "wire.h"
#include "sends.h"
#include "timing.h"
#include "window.h"

#define MAX_OPS 256 /* vectors under way */
#define NEXT_RING(i) ((i) % MAX_OPS)

/* The scale of some fragments of a vector. */
struct block {
	int16_t scale;
	uint8_t own;	 /* the largest exponent of this worker's own values */
	uint8_t beyond;	 /* the agreed scale has no room for this worker's values */
};

/* A vector to be summed in place. */
struct op {
	float *data;
	uint64_t length;
	uint32_t *contributors; /* by fragment; of the vote, where there are no fragments */
	float *lost;	/* receives what rounding leaves out of each value; 0: not asked for */
	int raw;	/* lanes are summed unchanged, modulo 2^32, without a scale */
	int gathered;	/* raw, and each lane belongs to one worker */
	uint64_t from, until; /* this worker's part of the vector, in bytes */
	int event;	/* enum event: EVENT_IDLE until it is settled */
	uint32_t workers; /* how many have NaN or infinity, or an impossible number of contributors */
	int special;	/* a NaN or an infinity in this worker's values; after the vote: in any's */
	int wrong;	/* the event of an invalid result, or 0 */
	struct block *blocks; /* 0 for raw lanes, and where the vote carries the values */
	uint64_t pages, pushed, taken; /* votes */
	int measured; /* whether the blocks have the exponents of their values */
	uint64_t first, count, left; /* fragments, counted over all trees; known after the first vote */
};

/*
 * One of the job's trees: which fragments go by it, and its progress. Fragments are numbered within the tree.
 */
struct tree {
	struct sockaddr_in to;
	uint32_t number, slot_base, takes_empties;
	uint32_t ring_first; /* where the tree's segment begins in the ring */
	/*
	 * within the repeating pattern: how many fragments go by this tree, which, and how many before each
	 */
	uint32_t count, *at, *before;
	uint8_t *packets;   /* `limit` packets */
	int64_t *sent_at;   /* when a fragment was pushed last, by fragment % limit */
	int64_t *first_at;  /* and first */
	int64_t *queued_ns; /* and how long the frames before it took on the link */
	uint32_t *asked_from; /* and the number of the first question after its last push */
	uint64_t pushing, taking; /* ops of the next fragment to push, to read; may lag behind `reported` */
	uint64_t sent, done;
	uint64_t clean_from; /* from this fragment on, none was pushed again */
	uint64_t waited;     /* results of fragments before this one waited for an earlier one's */
	/*
	 * with questions: the fragment before which all were asked for; the number of the last repeated
	 * question
	 */
	uint64_t asked;
	uint32_t asked_again;
	int64_t asked_at; /* and its time */
	int64_t answered_at; /* the latest push that has a result: its time */
	int64_t silent_from, quiet_from; /* time of the last result; of the last probe, if later */
	int silent; /* timers that expired since then */
	struct window window;
	struct timing timing;
};

struct endpoint {
	struct settings s;
	struct counters counters;
	struct sends sends;
	uint8_t *ring;
	size_t result_bytes, packet_bytes, ring_bytes;
	struct wake *wake;
	uint8_t *votes; /* `vote_limit` packets */
	uint8_t *question, *heard; /* one packet each: to send, and received */
	uint32_t asking; /* the next question's number; begins at random, so that no one can guess it */
	uint32_t data_slots, limit, vote_limit, burst;
	uint32_t bias;

	struct op ops[MAX_OPS];
	_Atomic uint64_t submitted;
	/*
	 * ops with all votes pushed, with all votes summed, handed to the caller; each at most the one before
	 */
	uint64_t voted, known, reported;
	uint64_t votes_sent, votes_taken;
	int votes_refused; /* whether the socket was too full for votes that the window allows */
	uint32_t *taken; /* a copy of a vote's result, to be checked before use */
	int broken; /* enum event: why no further vector will be settled, or 0 */
	uint32_t broken_workers;
	uint64_t next_fragment; /* over all trees: the first fragment without a scale */
	uint64_t summed;	/* fragments, over all trees */
	int64_t vote_sent_at[MAX_OPS]; /* by vote */
	uint32_t notices_seen;
	int64_t progress_at, told_quiet_ns;

	struct tree trees[]; /* `s.trees` of them; votes go by the first */
};

static inline int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline uint64_t lesser(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint32_t *lanes_of(struct wire_header *h)
{
	return (uint32_t *)(h + 1);
}

static inline struct wire_header *packet(struct endpoint *e, struct tree *t, uint64_t fragment)
{
	return (struct wire_header *)(t->packets + fragment % e->limit * e->packet_bytes);
}

static inline struct wire_header *vote_packet(struct endpoint *e, uint64_t vote)
{
	return (struct wire_header *)(e->votes + vote % e->vote_limit * e->packet_bytes);
}

static inline uint64_t votes_under_way(struct endpoint *e)
{
	return e->votes_sent - e->votes_taken;
}

/* The block of a vector's fragment, whose number counts over all trees. */
static inline struct block *block_of(struct endpoint *e, struct op *op, uint64_t fragment)
{
	return &op->blocks[(fragment - op->first) / e->s.block_fragments];
}

/* ---- mapping.c: which fragments go by which tree ---- */

int mapping_open(struct endpoint *e);

/* The number over all trees of a tree's fragment. */
static inline uint64_t over_all(struct endpoint *e, struct tree *t, uint64_t fragment)
{
	if (e->s.trees == 1)
		return fragment;
	return fragment / t->count * e->s.parts + t->at[fragment % t->count];
}

/* How many of the fragments before `next` (over all trees) go by the tree. */
static inline uint64_t given(struct endpoint *e, struct tree *t, uint64_t next)
{
	if (e->s.trees == 1)
		return next;
	return next / e->s.parts * t->count + t->before[next % e->s.parts];
}

/* ---- lanes.c: floats and lanes ---- */

void lanes_swap(const uint32_t *restrict from, uint32_t *restrict to, size_t count);
uint32_t lanes_encode(const float *restrict values, uint32_t *restrict lanes, size_t count, int scale,
		      uint32_t bias);
void lanes_lost(const float *restrict values, float *restrict lost, size_t count, int scale);
void lanes_decode(const uint32_t *restrict lanes, float *restrict values, size_t count, double factor,
		  uint32_t offset);
uint32_t lanes_exponent(const float *values, size_t count);

/* ---- parts.c: this worker's part of a vector ---- */

int parts_has(const struct op *op, uint64_t start, uint64_t count);
void parts_write(const struct op *op, uint32_t *lanes, uint64_t start, uint64_t count);

/* ---- packets.c: pushing ---- */

void packets_open(struct endpoint *e, struct tree *t, struct wire_header *h);
uint32_t packets_send(struct endpoint *e, struct tree *t, struct wire_header *first, uint32_t count);
void packets_again(struct endpoint *e, struct tree *t, struct wire_header *h, int64_t *sent_at, int64_t now);
int packets_push(struct endpoint *e, struct tree *t, int all);

/* ---- results.c: reading results ---- */

int results_take(struct endpoint *e, struct tree *t);

/*
 * Whether something pushed by the tree has no result yet. If nothing is expected, the tree's silence begins
 * with the next push.
 */
static inline int is_expecting(struct endpoint *e, struct tree *t)
{
	return t->sent > t->done || (!t->number && votes_under_way(e));
}

static inline struct result *at_place(struct endpoint *e, uint32_t place)
{
	return (struct result *)(e->ring + place * e->result_bytes);
}

static inline struct result *data_place(struct endpoint *e, struct tree *t, uint64_t fragment)
{
	return at_place(e, t->ring_first + e->s.places[fragment % e->data_slots]);
}

/* Fragment numbers have 32 bits on the wire and wrap around. */
static inline int has(struct result *r, uint64_t fragment)
{
	return __atomic_load_n(&r->sequence, __ATOMIC_ACQUIRE) == (uint64_t)(uint32_t)fragment + 1;
}

/*
 * Whether the result that `has` found is still there, so that everything read since is consistent. Where sums
 * may age out, other workers may be a segment ahead, and their next result overwrites this one.
 */
static inline int is_still(struct result *r, uint64_t fragment)
{
	atomic_thread_fence(memory_order_acquire);
	return has(r, fragment);
}

/* Whether a later result overwrote one that was not read: it will not come again. */
static inline int is_overtaken(struct result *r, uint64_t fragment)
{
	uint64_t sequence = __atomic_load_n(&r->sequence, __ATOMIC_ACQUIRE);

	return sequence && (int32_t)((uint32_t)(sequence - 1) - (uint32_t)fragment) > 0;
}

static inline int has_data(struct endpoint *e, struct tree *t, uint64_t fragment)
{
	return has(data_place(e, t, fragment), fragment);
}

/* ---- votes.c: votes on scales and lengths ---- */

int votes_open(struct endpoint *e, struct op *op);
uint64_t votes_wanted(struct endpoint *e);
uint64_t votes_ready(struct endpoint *e);
void votes_push(struct endpoint *e);
int votes_take(struct endpoint *e);
int votes_has(struct endpoint *e, uint64_t vote);
void votes_repeat(struct endpoint *e);

/* ---- repair.c: recovery by window ---- */

int64_t repair_gaps(struct endpoint *e, struct tree *t);
uint64_t repair_missing(struct endpoint *e, struct tree *t);
void repair_expired(struct endpoint *e, struct tree *t);
int64_t repair_timeout_ns(struct endpoint *e, struct tree *t);
int64_t repair_frame_ns(struct endpoint *e);
int64_t repair_on_link_ns(struct endpoint *e);
int64_t repair_pause_ns(struct endpoint *e, struct tree *t);
int64_t repair_grace_ns(struct endpoint *e, const struct timing *t);

/* ---- questions.c: recovery by integrity: places are asked ---- */

uint64_t questions_beside(uint64_t packets);
void questions_push(struct endpoint *e, struct tree *t);
int64_t questions_gaps(struct endpoint *e, struct tree *t);
void questions_again(struct endpoint *e, struct tree *t);
void questions_listen(struct endpoint *e);

static inline void note_cut(struct endpoint *e, struct tree *t, int cut)
{
	e->counters.reductions += cut;
	if (cut && t->window.size < e->counters.window_min)
		e->counters.window_min = t->window.size;
}

#endif
