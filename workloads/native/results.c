/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker takes: results, in place, as its host wrote them into the ring. Of floats it takes the mean
 * of those who contributed times the workers: their sum where all did.
 */
#include <math.h>

#include "endpoint.h"

static void take_fragment(struct endpoint *e, struct op *op, struct result *r, uint64_t number)
{
	uint64_t start = (number - op->first) * e->s.lanes, count = lesser(op->length - start, e->s.lanes);
	uint32_t those = contributors(e, r);

	op->contributors[number - op->first] = those;
	if (!those) { /* told when nothing of the vector is under way any more */
		op->workers = r->contributors;
		op->wrong = 1;
	} else if (op->raw) {
		lanes_swap(r->lanes, (uint32_t *)op->data + start, count);
	} else {
		lanes_decode(r->lanes, op->data + start, count,
			     ldexp((double)e->s.workers / those, -op->scale), those * e->bias);
	}
	if (!--op->left)
		op->event = op->wrong ? EVENT_IMPOSSIBLE : EVENT_DONE;
}

/*
 * RFC 6298, from the first push, of a fragment since which nothing was sent again: others wait for workers
 * that a loss held up, whose timers are made of such waits. And of one that was sent again in vain, since no
 * repetition completed its sum, nobody's: as in RFC 3522, that tells a switch that is slower than the timer
 * from a lost packet.
 */
static void measure_round_trip(struct endpoint *e, struct tree *t, uint64_t fragment, int64_t rtt)
{
	if (data_place(e, t, fragment)->flags & RESULT_REPEATED)
		return;
	if (fragment < t->clean_from && !(packet(e, t, fragment)->flags & WIRE_FLAG_RETRANSMIT))
		return;
	timing_round_trip(&t->timing, rtt, t->window.size);
}

/* Takes a tree's results as far as there is one after the other. Whether there was any. */
int results_take(struct endpoint *e, struct tree *t)
{
	uint64_t before = t->done;
	int64_t now;

	if (t->taking < e->reported)
		t->taking = e->reported;
	for (; t->done < t->sent && has_data(e, t, t->done); t->done++) {
		struct result *r = data_place(e, t, t->done);
		uint64_t number = over_all(e, t, t->done);

		while (e->ops[NEXT_RING(t->taking)].first + e->ops[NEXT_RING(t->taking)].count <= number)
			t->taking++;
		take_fragment(e, &e->ops[NEXT_RING(t->taking)], r, number);
		e->counters.marked += !!(r->flags & RESULT_MARKED);
		note_cut(e, t, window_take(&t->window, r->flags & RESULT_MARKED, t->done + 1, t->sent));
	}
	if (t->done == before)
		return 0;
	now = now_ns();
	timing_pace(&t->timing, t->done, t->sent, now);
	if (t->done > t->waited)
		measure_round_trip(e, t, t->done - 1, now - t->first_at[(t->done - 1) % e->limit]);
	e->counters.window_sum += t->window.size;
	e->counters.window_samples++;
	e->summed += t->done - before;
	return 1;
}
