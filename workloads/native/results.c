/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads results in place, where the worker's host wrote them into the ring. A result of floats is the mean of
 * the contributors times the number of workers: the sum where all contributed, and zeros where none did.
 */
#include <math.h>
#include <string.h>

#include "endpoint.h"

/*
 * Reads a fragment's result into its vector. `fragment` is its number in the tree, `number` that over all
 * trees. Returns the result's flags; -1 if it was overwritten while it was read.
 */
static int64_t take_fragment(struct endpoint *e, struct op *op, struct result *r, uint64_t fragment,
			     uint64_t number)
{
	uint64_t start = (number - op->first) * e->s.lanes, count = lesser(op->length - start, e->s.lanes);
	uint32_t flags = r->flags, those = r->contributors;
	/* all contributors left their values out: only values with scales can be left out */
	int nobodys = !those && flags & WIRE_FLAG_DEGRADED && !op->raw;
	int wrong = (!those && !nobodys) || those > e->s.workers ? EVENT_IMPOSSIBLE : 0;

	if (op->gathered && !wrong && those < e->s.workers)
		wrong = EVENT_LACKING; /* a part is missing, and it is unknown which */
	/* if this worker left the block out, the others' mean replaced its values */
	if (op->lost && !wrong && !block_of(e, op, number)->beyond)
		lanes_lost(op->data + start, op->lost + start, count, block_of(e, op, number)->scale);
	if (op->raw && !wrong)
		lanes_swap(r->lanes, (uint32_t *)op->data + start, count);
	else if (nobodys && parts_has(op, start, count))
		memset(op->data + start, 0, count * sizeof(*op->data));
	else if (!wrong && parts_has(op, start, count))
		lanes_decode(r->lanes, op->data + start, count,
			     ldexp((double)e->s.workers / those, -block_of(e, op, number)->scale),
			     those * e->bias);
	if (!is_still(r, fragment))
		return -1;
	e->counters.degraded += !!(flags & WIRE_FLAG_DEGRADED);
	op->contributors[number - op->first] = wrong ? 0 : those;
	if (wrong) { /* reported when nothing of the vector is under way any more */
		op->workers = those;
		op->wrong = op->wrong == EVENT_IMPOSSIBLE ? op->wrong : wrong;
	}
	if (!--op->left)
		op->event = op->wrong ? op->wrong : EVENT_DONE;
	return flags;
}

/*
 * Measures round trips as in RFC 6298, from the first push. Only fragments after the latest repetition count:
 * the others' results wait for workers that a loss held up, and whose timers follow from such waits. A
 * fragment that was repeated in vain also counts, if no worker's repetition completed its sum: as in RFC
 * 3522, this tells a switch that is slower than the timer from a lost packet.
 */
static void measure_round_trip(struct endpoint *e, struct tree *t, uint64_t fragment, int64_t flags,
			       int64_t rtt)
{
	if (flags & RESULT_REPEATED)
		return;
	if (fragment < t->clean_from && !(packet(e, t, fragment)->flags & WIRE_FLAG_RETRANSMIT))
		return;
	timing_round_trip(&t->timing, rtt, t->queued_ns[fragment % e->limit], t->window.size);
}

/* Notes which push a result answers: the first one, unless a repetition completed or requested it. */
static void note_answered(struct endpoint *e, struct tree *t, uint64_t fragment, int64_t flags)
{
	int64_t *pushed_at = flags & RESULT_REPEATED ? t->sent_at : t->first_at;

	if (pushed_at[fragment % e->limit] > t->answered_at)
		t->answered_at = pushed_at[fragment % e->limit];
}

/* Reads a tree's results in order, as far as they have come. Returns whether there were any. */
int results_take(struct endpoint *e, struct tree *t)
{
	uint64_t before = t->done;
	int64_t now, flags = 0;

	if (t->taking < e->reported)
		t->taking = e->reported;
	for (; t->done < t->sent && has_data(e, t, t->done); t->done++) {
		struct result *r = data_place(e, t, t->done);
		uint64_t number = over_all(e, t, t->done);
		int64_t read;

		while (e->ops[NEXT_RING(t->taking)].first + e->ops[NEXT_RING(t->taking)].count <= number)
			t->taking++;
		read = take_fragment(e, &e->ops[NEXT_RING(t->taking)], r, t->done, number);
		if (read < 0)
			break;
		flags = read;
		e->counters.marked += !!(flags & RESULT_MARKED);
		note_answered(e, t, t->done, flags);
		note_cut(e, t, window_take(&t->window, flags & RESULT_MARKED, t->done + 1, t->sent));
	}
	if (t->done < t->sent && is_overtaken(data_place(e, t, t->done), t->done))
		e->broken = EVENT_OVERTAKEN;
	if (t->done == before)
		return 0;
	now = now_ns();
	timing_pace(&t->timing, t->done, t->sent, now);
	if (t->done > t->waited)
		measure_round_trip(e, t, t->done - 1, flags, now - t->first_at[(t->done - 1) % e->limit]);
	e->counters.window_sum += t->window.size;
	e->counters.window_samples++;
	e->summed += t->done - before;
	return 1;
}
