/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Votes on the scales of a vector's blocks and on its length. They go ahead of the fragments, by the first
 * tree. A vote covers as many blocks as it has room for, a page; workloads/quantiser.py describes its
 * contents.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"

/* Whether a vector is so small that one vote carries all workers' values. */
static int is_carried(struct endpoint *e, struct op *op)
{
	return !op->raw && op->length * e->s.workers + VOTE_VALUES <= e->s.lanes;
}

static uint64_t block_elements(struct endpoint *e)
{
	return (uint64_t)e->s.block_fragments * e->s.lanes;
}

/* How many blocks have a scale. */
static uint64_t blocks_of(struct endpoint *e, struct op *op)
{
	return op->raw || is_carried(e, op) ? 0 : (op->length + block_elements(e) - 1) / block_elements(e);
}

/*
 * If the sum of all lengths is workers * length, and the sum of their squares accordingly, all lengths are
 * equal. A lane has room for 26 bits of the square.
 */
static uint32_t length_check(uint64_t length)
{
	return (uint32_t)(length * length * VOTE_CHECK_FACTOR >> VOTE_CHECK_SHIFT);
}

/*
 * A check of a vector's length and kind: the check of a gathered vector is the complement of a summed one's.
 */
static uint32_t vote_check(const struct op *op)
{
	uint32_t check = length_check(op->length);

	return op->gathered ? ~check & ((1U << (64 - VOTE_CHECK_SHIFT)) - 1) : check;
}

/* Prepares the votes on a vector. Returns whether there was enough memory; `report` frees it. */
int votes_open(struct endpoint *e, struct op *op)
{
	uint64_t blocks = blocks_of(e, op);

	op->pages = blocks ? (blocks + e->s.page_blocks - 1) / e->s.page_blocks : 1;
	op->blocks = blocks ? malloc(blocks * sizeof(*op->blocks)) : 0;
	return !blocks || op->blocks;
}

static struct result *vote_place(struct endpoint *e, uint64_t vote)
{
	return at_place(e, e->trees[0].ring_first + e->data_slots + vote % e->s.vote_slots);
}

int votes_has(struct endpoint *e, uint64_t vote)
{
	return has(vote_place(e, vote), e->s.first_vote + vote);
}

/* ---- pushing ---- */

/* Votes use the same queues as data, so that they get half of the window. */
static uint64_t votes_allowed(struct endpoint *e)
{
	uint64_t half = (uint64_t)e->trees[0].window.size / 2;

	return half < 1 ? 1 : lesser(half, e->vote_limit);
}

/* Whether votes are further ahead of the data than any round trip needs. */
static int are_far_ahead(struct endpoint *e)
{
	uint64_t given = e->next_fragment;
	double enough = (double)e->vote_limit * e->s.page_blocks * e->s.block_fragments;

	for (uint32_t i = 0; i < e->s.trees; i++) {
		given -= e->trees[i].sent;
		enough += e->trees[i].window.size;
	}
	return given > enough;
}

/*
 * How many votes on the next vector to push by one call, as soon as they fit. Votes on a large vector go by
 * half of the allowed number at a time, to save calls.
 */
uint64_t votes_wanted(struct endpoint *e)
{
	uint64_t allowed = votes_allowed(e), under_way = votes_under_way(e), room, left;
	uint64_t burst = e->burst, contiguous = e->vote_limit - e->votes_sent % e->vote_limit;
	struct op *op = &e->ops[NEXT_RING(e->voted)];

	if (e->broken || e->voted >= atomic_load_explicit(&e->submitted, memory_order_acquire))
		return 0;
	if (under_way >= allowed || are_far_ahead(e))
		return 0;
	room = allowed - under_way;
	left = op->pages - op->pushed;
	if (room < left && room < allowed / 2)
		return 0;
	if (e->s.rate_mbps > 0) /* a shaped link's queue may be shorter than a burst */
		burst = lesser(burst, (uint64_t)e->trees[0].window.size / 4 + 1);
	return lesser(lesser(room, left), lesser(burst, contiguous));
}

/*
 * How many of the wanted votes fit into the window together with the fragments under way, of which
 * packets_push allows fewer for their sake. One vote always fits next to one fragment: a worker that waits
 * for a vote and one that waits for a fragment may wait for each other.
 */
uint64_t votes_ready(struct endpoint *e)
{
	uint64_t wanted = votes_wanted(e), votes = votes_under_way(e);
	uint64_t fragments = e->trees[0].sent - e->trees[0].done;

	if (votes + wanted + fragments <= (uint64_t)e->trees[0].window.size)
		return wanted;
	return !votes && fragments <= 1 ? lesser(wanted, 1) : 0;
}

/* Reads all values once, before the first vote, for their exponents. */
static void measure(struct endpoint *e, struct op *op)
{
	uint64_t blocks = blocks_of(e, op), elements = block_elements(e);

	for (uint64_t b = 0; b < blocks; b++) {
		uint64_t start = b * elements;

		op->blocks[b].own = lanes_exponent(op->data + start, lesser(op->length - start, elements));
		op->special |= op->blocks[b].own == VOTE_SPECIAL;
	}
	op->measured = 1;
}

static void write_vote(struct endpoint *e, struct op *op, uint64_t page, uint32_t *lanes)
{
	uint64_t first = page * e->s.page_blocks, last = lesser(first + e->s.page_blocks, blocks_of(e, op));
	uint32_t per_lane = 32 / e->s.count_bits;

	memset(lanes, 0, 4 * e->s.lanes);
	lanes[0] = htonl((uint32_t)op->length);
	lanes[1] = htonl(vote_check(op));
	if (is_carried(e, op)) { /* the values themselves fit: every worker gets all workers' values */
		lanes_swap((uint32_t *)op->data, lanes + VOTE_VALUES + e->s.worker * op->length, op->length);
		return;
	}
	lanes[VOTE_SPECIAL_LANE] = htonl(page ? 0 : op->special);
	for (uint64_t b = first; b < last; b++) {
		/* values that are not finite will not be pushed */
		uint32_t own = op->blocks[b].own, cell = own == VOTE_SPECIAL ? 0 : e->s.cells[own];

		lanes[VOTE_FIRST + (b - first) * VOTE_BLOCK_LANES + cell / per_lane] =
			htonl(1U << e->s.count_bits * (cell % per_lane));
	}
}

void votes_push(struct endpoint *e)
{
	struct tree *t = &e->trees[0];
	int was_refused = e->votes_refused;
	uint64_t count;

	e->votes_refused = 0;
	while ((count = votes_ready(e))) {
		struct op *op = &e->ops[NEXT_RING(e->voted)];
		uint32_t taken;
		int64_t now;

		if (!op->measured)
			measure(e, op);
		for (uint64_t i = 0; i < count; i++) {
			uint64_t vote = e->votes_sent + i;
			struct wire_header *h = vote_packet(e, vote);

			write_vote(e, op, op->pushed + i, lanes_of(h));
			h->flags = 0;
			h->slot = htonl(t->slot_base + e->data_slots + vote % e->s.vote_slots);
			h->fragment = htonl((uint32_t)(e->s.first_vote + vote));
		}
		taken = packets_send(e, t, vote_packet(e, e->votes_sent), count);
		e->votes_refused = taken < count;
		now = now_ns();
		/* nothing was expected: the silence begins now */
		if (!is_expecting(e, t) && (taken || !was_refused))
			t->silent_from = t->quiet_from = now;
		for (uint64_t i = 0; i < taken; i++)
			e->vote_sent_at[NEXT_RING(e->votes_sent + i)] = now;
		e->votes_sent += taken;
		e->counters.pushed += taken;
		op->pushed += taken;
		e->voted += op->pushed == op->pages;
		if (e->votes_refused)
			return; /* the socket is full: push the others later */
	}
}

/* ---- taking ---- */

static void sum_carried(struct endpoint *e, struct op *op, const uint32_t *lanes, uint32_t those)
{
	double part = (double)e->s.workers / those;

	op->event = EVENT_DONE;
	for (uint32_t w = 0; w < e->s.workers; w++)
		for (uint64_t i = 0; i < op->length; i++)
			if ((ntohl(lanes[VOTE_VALUES + w * op->length + i]) >> 23 & 0xff) == VOTE_SPECIAL) {
				op->event = EVENT_NOT_FINITE;
				op->workers++;
				break;
			}
	if (op->event == EVENT_DONE && lanes_exponent(op->data, op->length) == VOTE_SPECIAL) {
		op->event = EVENT_NOT_FINITE;
		op->workers = 1; /* this worker, whose vote came too late */
	}
	for (uint64_t i = 0; i < op->length && op->event == EVENT_DONE; i++) {
		double sum = 0;

		for (uint32_t w = 0; w < e->s.workers; w++) {
			uint32_t bits = ntohl(lanes[VOTE_VALUES + w * op->length + i]);
			float value;

			memcpy(&value, &bits, 4);
			sum += value;
		}
		op->data[i] = (float)(sum * part);
	}
}

/* Ends the endpoint: vectors from this one on have no sum; those before it have one. */
static void end_here(struct endpoint *e, int event, uint32_t workers)
{
	e->broken = event;
	e->broken_workers = workers;
	e->votes_taken = e->votes_sent; /* expect no further votes */
}

/*
 * Computes a block's scale from the summed votes of `those` workers. Returns whether the counts add up to
 * `those`. Few counts are not zero; checking each would take longer than decoding the fragments.
 */
static int count_votes(struct endpoint *e, struct block *block, const uint32_t *lanes, uint32_t those)
{
	uint32_t bits = e->s.count_bits, per_lane = 32 / bits, mask = (1U << bits) - 1;
	uint32_t votes = 0, largest = 0;
	int log_workers = 0;

	for (uint32_t first = 0; first < e->s.buckets; first += per_lane) {
		uint32_t left = ntohl(*lanes++), cell;

		for (; left; left &= ~(mask << bits * (cell - first))) {
			cell = first + (uint32_t)__builtin_ctz(left) / bits;
			if (cell >= lesser(e->s.buckets, first + per_lane))
				break;
			votes += left >> bits * (cell - first) & mask;
			largest = cell;
		}
	}
	while ((1U << log_workers) < e->s.workers)
		log_workers++;
	block->scale = 30 - log_workers - (int)e->s.spare_bits - ((int)e->s.tops[largest] - 126);
	block->scale = block->scale > VOTE_SCALE_MAX ? VOTE_SCALE_MAX : block->scale;
	block->beyond = block->own > e->s.tops[largest] + e->s.spare_bits; /* own vote came too late */
	return votes == those;
}

/* Handles the parts of the first vote that concern the whole vector. */
static void begin_vector(struct endpoint *e, struct op *op, const uint32_t *lanes, uint32_t those)
{
	op->first = e->next_fragment;
	op->contributors[0] = those;
	if (is_carried(e, op)) {
		sum_carried(e, op, lanes, those);
		return;
	}
	op->workers = ntohl(lanes[VOTE_SPECIAL_LANE]);
	if (op->special && !op->workers)
		op->workers = 1; /* this worker, whose vote came too late */
	op->special = !!op->workers;
	if (!op->special)
		op->left = op->count = (op->length + e->s.lanes - 1) / e->s.lanes;
}

/* Handles the result of a vote; returns whether the workers agree so far. */
static int take_vote(struct endpoint *e, struct op *op, const uint32_t *lanes, uint32_t those)
{
	uint64_t blocks = blocks_of(e, op), first = op->taken * e->s.page_blocks;
	uint64_t last = lesser(first + e->s.page_blocks, blocks);
	const uint32_t *counts = lanes + VOTE_FIRST;

	if (ntohl(lanes[0]) != (uint32_t)(op->length * those) ||
	    ntohl(lanes[1]) != vote_check(op) * those)
		return 0;
	for (uint64_t b = first; b < last; b++, counts += VOTE_BLOCK_LANES)
		if (!count_votes(e, &op->blocks[b], counts, those))
			return 0;
	if (!op->taken)
		begin_vector(e, op, lanes, those);
	op->taken++;
	if (op->count) /* the blocks of this vote can be pushed now */
		e->next_fragment = op->first + (last < blocks ? last * e->s.block_fragments : op->count);
	if (op->taken < op->pages)
		return 1;
	e->known++;
	if (op->special) /* settled only after the last vote, since all workers push all of theirs */
		op->event = EVENT_NOT_FINITE;
	else if (!op->count && op->event == EVENT_IDLE)
		op->event = EVENT_DONE;
	return 1;
}

/*
 * Reads the votes' results in order, and assigns fragment numbers to vectors. Returns whether there were any.
 */
int votes_take(struct endpoint *e)
{
	uint64_t before = e->votes_taken;

	while (e->votes_taken < e->votes_sent && votes_has(e, e->votes_taken)) {
		struct result *r = vote_place(e, e->votes_taken);
		uint64_t fragment = e->s.first_vote + e->votes_taken;
		uint32_t named = r->contributors, flags = r->flags;

		memcpy(e->taken, r->lanes, 4 * e->s.lanes);
		if (!is_still(r, fragment))
			break;
		e->votes_taken++;
		e->counters.degraded += !!(flags & WIRE_FLAG_DEGRADED);
		if (!named || named > e->s.workers)
			end_here(e, EVENT_IMPOSSIBLE, named);
		else if (!take_vote(e, &e->ops[NEXT_RING(e->known)], e->taken, named))
			end_here(e, EVENT_DISAGREE, named);
	}
	if (votes_under_way(e) &&
	    is_overtaken(vote_place(e, e->votes_taken), e->s.first_vote + e->votes_taken))
		end_here(e, EVENT_OVERTAKEN, 0);
	return e->votes_taken != before;
}

#define ALONE_MIN_NS 16000000LL

/*
 * Pushes votes again. Votes before one that has its result are lost, and are repeated once a round trip. Of
 * the others only the first is repeated, because data may still flow: after a longer pause, which in silence
 * doubles with each timer.
 */
void votes_repeat(struct endpoint *e)
{
	struct tree *t = &e->trees[0];
	uint64_t last = e->votes_sent;
	int64_t now, alone = 4 * t->timing.base_ns;

	if (!votes_under_way(e))
		return;
	alone = alone > ALONE_MIN_NS ? alone : ALONE_MIN_NS;
	alone = (int64_t)lesser(alone << (t->silent < 8 ? t->silent : 8), PROBE_MAX_NS);
	while (last > e->votes_taken + 1 && !votes_has(e, last - 1))
		last--;
	now = now_ns();
	for (uint64_t v = e->votes_taken; v < e->votes_sent; v++) {
		int64_t *sent_at = &e->vote_sent_at[NEXT_RING(v)];
		int64_t pause_ns = v + 1 < last ? t->timing.srtt_ns : alone;

		if (v + 1 >= last && v > e->votes_taken)
			break;
		if (!votes_has(e, v) && now - *sent_at > pause_ns)
			packets_again(e, t, vote_packet(e, v), sent_at, now);
	}
}
