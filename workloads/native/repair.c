/* SPDX-License-Identifier: Apache-2.0 */
/* Losses: what is missing is pushed again, by the results behind it or by a tree's timer. */
#include "endpoint.h"

#define OVERTAKEN_NS 5000000LL /* by which results of parallel circuits may be apart beside round trips */
#define PAUSE_MIN_NS 500000LL /* between two repetitions: other workers may be later than this one */

/* What a frame takes on this worker's link at its rate of now; 0 where it has none. */
int64_t repair_frame_ns(struct endpoint *e)
{
	double rate_mbps = e->s.rate_now ? *(volatile const double *)e->s.rate_now : 0;

	if (!(rate_mbps > 0))
		rate_mbps = e->s.rate_mbps;
	if (!(rate_mbps > 0))
		return 0;
	return (int64_t)((WIRE_FRAME_HEADERS_BYTES + e->packet_bytes) * 8000 / rate_mbps);
}

/* What the frames under way take there, and one more: no result comes sooner. */
int64_t repair_on_link_ns(struct endpoint *e)
{
	uint64_t frames = 1;

	for (uint32_t i = 0; i < e->s.trees; i++) {
		struct tree *t = &e->trees[i];

		frames += t->waited > t->done ? repair_missing(e, t) : t->sent - t->done;
	}
	return (int64_t)frames * repair_frame_ns(e);
}

/*
 * Before which of a tree's fragments those are lost that have no result: links keep order, and so do sums.
 * All before one that came are; and all where one came that was pushed, again or not, a round trip after the
 * first of them was: `*before_ns`, of those that were pushed before that time.
 */
static uint64_t lost_until(struct endpoint *e, struct tree *t, int64_t *before_ns)
{
	uint64_t last = t->sent;

	*before_ns = t->answered_at - t->timing.base_ns - PAUSE_MIN_NS;
	while (last > t->done + 1 && !has_data(e, t, last - 1))
		last--;
	return last > t->done + 1 ? last : t->done;
}

/*
 * How long a push is given from when it was sent, a later one's result being there. Links keep order, and so
 * do sums: none, it is lost for certain. But of parallel circuits one may have the longer queue, and what
 * takes it comes later. RFC 8985 has a quarter of a round trip for one path; that does not do here, and nor
 * does one whole: what was pushed again is no measure of a round trip, so that the shorter ones alone count,
 * and half of all pushes were repeated for nothing (tests.bench.circuits).
 */
int64_t repair_grace_ns(struct endpoint *e, const struct timing *t)
{
	if (!e->s.parallel || !*(volatile const uint32_t *)e->s.parallel)
		return 0;
	return 4 * t->srtt_ns + OVERTAKEN_NS;
}

/* The time between two repetitions: a round trip, and in silence twice as long after each timer. */
int64_t repair_pause_ns(struct endpoint *e, struct tree *t)
{
	int64_t pause = t->timing.base_ns, grace = repair_grace_ns(e, &t->timing);

	if (pause < PAUSE_MIN_NS)
		pause = PAUSE_MIN_NS;
	pause += (int64_t)repair_missing(e, t) * repair_frame_ns(e);
	if (pause < grace)
		pause = grace;
	return (int64_t)lesser(pause << (t->silent < 8 ? t->silent : 8), PROBE_MAX_NS);
}

/*
 * Pushes again what is missing although what was pushed later came: the first time it is lost for certain.
 * Then once a round trip, in silence twice as seldom after each timer; answers in how many ns the next one is
 * due, -1 if nothing is missing there.
 */
int64_t repair_gaps(struct endpoint *e, struct tree *t)
{
	int64_t now, before_ns, next = -1, pause, grace = repair_grace_ns(e, &t->timing);
	uint64_t last = lost_until(e, t, &before_ns), until = last;

	if (t->sent > t->done && t->sent_at[t->done % e->limit] < before_ns)
		until = t->sent;
	if (until == t->done)
		return next;
	t->waited = until;
	pause = repair_pause_ns(e, t);
	now = now_ns();
	for (uint64_t f = t->done; f < until; f++) {
		int64_t *sent_at = &t->sent_at[f % e->limit], due;

		if (has_data(e, t, f) || (f >= last && *sent_at >= before_ns))
			continue;
		due = packet(e, t, f)->flags & WIRE_FLAG_RETRANSMIT ? *sent_at + pause - now
			: grace					     ? *sent_at + grace - now
								     : 0;
		if (due <= 0) {
			due = pause;
			packets_again(e, t, packet(e, t, f), sent_at, now);
			t->clean_from = t->sent;
			note_cut(e, t, window_lost(&t->window));
		}
		next = next < 0 || due < next ? due : next;
	}
	return next;
}

/* Results of a tree to come. */
uint64_t repair_missing(struct endpoint *e, struct tree *t)
{
	uint64_t count = t->number ? 0 : votes_under_way(e);

	for (uint64_t f = t->done; f < t->sent; f++)
		count += !has_data(e, t, f);
	return count;
}

/* How long a tree may be silent before the next probe. */
int64_t repair_timeout_ns(struct endpoint *e, struct tree *t)
{
	int64_t silent_ns = t->quiet_from - t->silent_from, frame_ns = repair_frame_ns(e);

	return timing_probe_ns(&t->timing, silent_ns, e->s.workers, frame_ns) + repair_on_link_ns(e);
}

/*
 * A tree's timer expired: a probe. The last one is pushed again, as in RFC 8985, section 7: its result tells
 * of all gaps before it, and repair_gaps needs no timer for them. If that was in vain the first as well: of
 * the worker that is furthest behind, all others have pushed that, or it is the first of theirs, too. Of
 * votes likewise, at once.
 */
void repair_expired(struct endpoint *e, struct tree *t)
{
	uint64_t first = e->votes_taken, last = t->number ? first : e->votes_sent;
	int64_t now = now_ns();

	e->counters.timeouts++;
	t->silent++;
	t->quiet_from = now;
	t->clean_from = t->sent;
	while (last > first && votes_has(e, last - 1))
		last--;
	if (last > first)
		packets_again(e, t, vote_packet(e, last - 1), &e->vote_sent_at[NEXT_RING(last - 1)], now);
	if (last > first + 1)
		packets_again(e, t, vote_packet(e, first), &e->vote_sent_at[NEXT_RING(first)], now);
	if (e->s.asks) {
		questions_again(e, t);
		return;
	}
	first = t->done;
	last = t->sent;
	while (last > first && has_data(e, t, last - 1))
		last--;
	if (last > first)
		packets_again(e, t, packet(e, t, last - 1), &t->sent_at[(last - 1) % e->limit], now);
	if (last > first + 1 && t->silent > 1)
		packets_again(e, t, packet(e, t, first), &t->sent_at[first % e->limit], now);
}
