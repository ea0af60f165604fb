/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Votes: on a vector's scale and length, one fragment each, ahead of their vectors' turn, by the first tree.
 * workloads/quantiser.py says what is in them.
 */
#include <arpa/inet.h>
#include <string.h>

#include "endpoint.h"

/* Whether a vector is so small that its vote carries everybody's values. */
static int is_carried(struct endpoint *e, struct op *op)
{
	return !op->raw && op->length * e->s.workers + VOTE_FIRST <= e->s.lanes;
}

/*
 * Where the lengths' sum is workers * length and so is that of their squares, all are the same. Of the
 * squares 26 bits, for the lane's sake.
 */
static uint32_t length_check(uint64_t length)
{
	return (uint32_t)(length * length * VOTE_CHECK_FACTOR >> VOTE_CHECK_SHIFT);
}

static uint32_t vote_cell(uint32_t exponent)
{
	return exponent > VOTE_LEAST ? exponent - VOTE_LEAST : 0;
}

/* How many vote for an exponent. */
static uint32_t votes_for(const uint32_t *lanes, uint32_t cell)
{
	return ntohl(lanes[VOTE_FIRST + cell / VOTE_PER_LANE]) >> 8 * (cell % VOTE_PER_LANE) & 0xff;
}

static struct result *vote_place(struct endpoint *e, uint64_t vote)
{
	return at_place(e, e->trees[0].ring_first + e->data_slots + vote % e->s.vote_slots);
}

int votes_has(struct endpoint *e, uint64_t vote)
{
	return has(vote_place(e, vote), e->s.first_vote + vote);
}

/* Votes wait in the same queues as data. */
uint64_t votes_allowed(struct endpoint *e)
{
	uint64_t half = (uint64_t)e->trees[0].window.size / 2;

	return half < 1 ? 1 : lesser(half, e->vote_limit);
}

void votes_push(struct endpoint *e)
{
	uint64_t submitted = atomic_load_explicit(&e->submitted, memory_order_acquire);
	struct tree *t = &e->trees[0];

	for (; e->voted < submitted && e->voted - e->known < votes_allowed(e); e->voted++) {
		struct op *op = &e->ops[NEXT_RING(e->voted)];
		struct wire_header *h = vote_packet(e, e->voted);
		uint32_t *lanes = lanes_of(h);

		memset(lanes, 0, 4 * e->s.lanes);
		lanes[0] = htonl((uint32_t)op->length);
		lanes[1] = htonl(length_check(op->length));
		if (is_carried(e, op)) { /* small enough to go along: everybody gets everybody's values */
			for (uint64_t i = 0; i < op->length; i++) {
				uint32_t bits;

				memcpy(&bits, &op->data[i], 4);
				lanes[VOTE_FIRST + e->s.worker * op->length + i] = htonl(bits);
			}
		} else {
			uint32_t cell;

			op->exponent = op->raw ? 0 : lanes_exponent(op->data, op->length);
			cell = vote_cell(op->exponent);
			lanes[VOTE_FIRST + cell / VOTE_PER_LANE] = htonl(1U << 8 * (cell % VOTE_PER_LANE));
		}
		h->flags = 0;
		h->slot = htonl(t->slot_base + e->data_slots + e->voted % e->s.vote_slots);
		h->fragment = htonl((uint32_t)(e->s.first_vote + e->voted));
		packets_send(e, t, h, 1);
		e->vote_sent_at[NEXT_RING(e->voted)] = now_ns();
		if (!is_expecting(e, t)) /* it was none's silence, while other trees worked */
			t->quiet_from = e->vote_sent_at[NEXT_RING(e->voted)];
		e->counters.pushed++;
	}
}

static void sum_carried(struct endpoint *e, struct op *op, const uint32_t *lanes, uint32_t those)
{
	double part = (double)e->s.workers / those;

	op->event = EVENT_DONE;
	for (uint32_t w = 0; w < e->s.workers; w++)
		for (uint64_t i = 0; i < op->length; i++)
			if ((ntohl(lanes[VOTE_FIRST + w * op->length + i]) >> 23 & 0xff) == VOTE_SPECIAL) {
				op->event = EVENT_NOT_FINITE;
				op->workers++;
				break;
			}
	if (op->event == EVENT_DONE && lanes_exponent(op->data, op->length) == VOTE_SPECIAL) {
		op->event = EVENT_NOT_FINITE;
		op->workers = 1; /* this one, whose vote came too late */
	}
	for (uint64_t i = 0; i < op->length && op->event == EVENT_DONE; i++) {
		double sum = 0;

		for (uint32_t w = 0; w < e->s.workers; w++) {
			uint32_t bits = ntohl(lanes[VOTE_FIRST + w * op->length + i]);
			float value;

			memcpy(&value, &bits, 4);
			sum += value;
		}
		op->data[i] = (float)(sum * part);
	}
}

/* Takes the scale from the votes of `those`. A vote that came too late is not among them. */
static void count_votes(struct endpoint *e, struct op *op, const uint32_t *lanes, uint32_t those)
{
	uint32_t votes = 0, largest = 0;
	int log_workers = 0;

	for (uint32_t cell = 0; cell < VOTE_CELLS; cell++) {
		uint32_t here = votes_for(lanes, cell);

		votes += here;
		largest = here ? cell + VOTE_LEAST : largest;
	}
	op->workers = votes;
	if (votes != those) {
		op->event = EVENT_DISAGREE;
		return;
	}
	if (largest == VOTE_SPECIAL || op->exponent == VOTE_SPECIAL) {
		op->event = EVENT_NOT_FINITE;
		op->workers = votes_for(lanes, VOTE_CELLS - 1);
		op->workers += !op->workers; /* this one, whose vote came too late */
		return;
	}
	while ((1U << log_workers) < e->s.workers)
		log_workers++;
	op->scale = 30 - log_workers - ((int)largest - 126);
	op->scale = op->scale > VOTE_SCALE_MAX ? VOTE_SCALE_MAX : op->scale;
	op->clipped = op->exponent > largest;
	op->left = op->count = (op->length + e->s.lanes - 1) / e->s.lanes;
	if (!op->count)
		op->event = EVENT_DONE;
}

/* Takes the votes' results as they come, and gives vectors their fragments. Whether there was any. */
int votes_take(struct endpoint *e)
{
	uint64_t before = e->known;

	for (; e->known < e->voted && votes_has(e, e->known); e->known++) {
		struct op *op = &e->ops[NEXT_RING(e->known)];
		struct result *r = vote_place(e, e->known);
		uint32_t those = contributors(e, r);

		op->contributors[0] = those;
		if (!those) {
			op->event = EVENT_IMPOSSIBLE;
			op->workers = r->contributors;
		} else if (ntohl(r->lanes[0]) != (uint32_t)(op->length * those) ||
			   ntohl(r->lanes[1]) != length_check(op->length) * those) {
			op->event = EVENT_DISAGREE;
		} else if (is_carried(e, op)) {
			sum_carried(e, op, r->lanes, those);
		} else {
			count_votes(e, op, r->lanes, those);
		}
		op->first = e->next_fragment;
		e->next_fragment += op->count;
	}
	return e->known != before;
}

/*
 * Pushes a vote again: at once where a later one's result is there; by itself, since data may flow on
 * meanwhile, after a while.
 */
void votes_repeat(struct endpoint *e)
{
	struct tree *t = &e->trees[0];
	uint64_t last = e->voted;
	int64_t now, alone = 2 * t->timing.rto_ns;

	if (e->known == e->voted)
		return;
	alone = alone > RTO_MAX_NS / 4 ? alone : RTO_MAX_NS / 4;
	while (last > e->known + 1 && !votes_has(e, last - 1))
		last--;
	now = now_ns();
	for (uint64_t v = e->known; v < e->voted; v++) {
		int64_t *sent_at = &e->vote_sent_at[NEXT_RING(v)];
		int64_t pause_ns = v + 1 < last ? t->timing.srtt_ns : alone;

		if (!votes_has(e, v) && now - *sent_at > pause_ns)
			packets_again(e, t, vote_packet(e, v), sent_at, now);
	}
}
