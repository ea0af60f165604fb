/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery from losses: missing fragments are pushed again, because of later results or of a tree's timer. */
#include "endpoint.h"

#define OVERTAKEN_NS 5000000LL /* how far results of parallel circuits may be apart, beyond round trips */
#define PAUSE_MIN_NS 500000LL /* between two repetitions: other workers may push later than this one */

/* The time of a frame on this worker's link at its present rate; 0 if the link has none. */
int64_t repair_frame_ns(struct endpoint *e)
{
	double rate_mbps = e->s.rate_now ? *(volatile const double *)e->s.rate_now : 0;

	if (!(rate_mbps > 0))
		rate_mbps = e->s.rate_mbps;
	if (!(rate_mbps > 0))
		return 0;
	return (int64_t)((WIRE_FRAME_HEADERS_BYTES + e->packet_bytes) * 8000 / rate_mbps);
}

/* The time of the frames under way, and one more, on this worker's link: no result comes sooner. */
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
 * The fragment of a tree before which every fragment without a result is lost. Links and sums keep the order,
 * so that all fragments before one that has its result are lost.
 *
 * *before_ns extends this to the later fragments: if a result answers a push that came a round trip after
 * theirs, they are lost, too. So all fragments that were last pushed before *before_ns are.
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
 * How long after a push its result may be missing while a later one's is there. Links and sums keep the
 * order, so that normally it is lost for certain, and this is 0. Of parallel circuits one may have the longer
 * queue, and its packets come later. RFC 8985 allows a quarter of a round trip for one path. That does not
 * suffice here, nor does a whole one: repeated pushes do not count as measured round trips, so that only the
 * shorter ones count, and half of all pushes were repeated for nothing (tests.bench.circuits).
 */
int64_t repair_grace_ns(struct endpoint *e, const struct timing *t)
{
	if (!e->s.parallel || !*(volatile const uint32_t *)e->s.parallel)
		return 0;
	return 4 * t->srtt_ns + OVERTAKEN_NS;
}

/* The time between two repetitions: a round trip, which in silence doubles with each timer. */
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
 * Pushes again what is missing although a later push has its result: at once the first time, then once a
 * round trip, which in silence doubles with each timer. Returns after how many ns the next repetition is due,
 * -1 if nothing is missing there.
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

/* How many results of a tree are missing. */
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
 * Sends a probe when a tree's timer has expired. The last fragment is pushed again, as in RFC 8985, section
 * 7: its result shows all gaps before it, and repair_gaps needs no timer for them. If that was in vain, the
 * first one is pushed again as well: the first fragment of the worker that is furthest behind is pushed by
 * all others, or is their first, too. Votes are treated alike, but both at once.
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
