/* SPDX-License-Identifier: Apache-2.0 */
/* Losses: what is missing is pushed again, by the results behind it or by a tree's timer. */
#include "endpoint.h"

#define PAUSE_MIN_NS 500000LL /* between two repetitions: other workers may be later than this one */

/*
 * Pushes again what is missing before a result that came: links keep order, and so do sums, so that the first
 * time it is lost for certain. Then once a round trip, in silence twice as seldom after each timer; answers
 * in how many ns the next one is due, -1 if nothing is missing there.
 */
int64_t repair_gaps(struct endpoint *e, struct tree *t)
{
	int64_t now, next = -1, pause = t->timing.srtt_ns;
	uint64_t last = t->sent;

	while (last > t->done + 1 && !has_data(e, t, last - 1))
		last--;
	if (last <= t->done + 1)
		return next;
	t->waited = last;
	if (pause < PAUSE_MIN_NS)
		pause = PAUSE_MIN_NS;
	pause = t->silent > 8 ? t->timing.rto_ns : (int64_t)lesser(pause << t->silent, t->timing.rto_ns);
	now = now_ns();
	for (uint64_t f = t->done; f < last; f++) {
		int64_t *sent_at = &t->sent_at[f % e->limit], due;

		if (has_data(e, t, f))
			continue;
		due = packet(e, t, f)->flags & WIRE_FLAG_RETRANSMIT ? *sent_at + pause - now : 0;
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

/* What the frames under way take on this worker's link at its rate of now: no result comes sooner. */
static int64_t on_link_ns(struct endpoint *e)
{
	double rate_mbps = e->s.rate_now ? *(volatile const double *)e->s.rate_now : 0;
	uint64_t frames = 1;

	if (!(rate_mbps > 0))
		rate_mbps = e->s.rate_mbps;
	if (!(rate_mbps > 0))
		return 0;
	for (uint32_t i = 0; i < e->s.trees; i++)
		frames += e->trees[i].sent - e->trees[i].done;
	return (int64_t)(frames * (WIRE_FRAME_HEADERS_BYTES + e->packet_bytes) * 8000 / rate_mbps);
}

/* How long a tree may be silent. */
int64_t repair_timeout_ns(struct endpoint *e, struct tree *t)
{
	return (t->silent ? t->timing.rto_ns : timing_probe_ns(&t->timing)) + on_link_ns(e);
}

/*
 * A tree's timer expired. The last one is pushed first, a probe as in RFC 8985, section 7: its result tells
 * of all gaps before it, and repair_gaps needs no timer for them.
 */
void repair_expired(struct endpoint *e, struct tree *t)
{
	uint64_t limit = 1ULL << (3 * t->silent < 7 ? 3 * t->silent : 7), pushed = 0, last = t->sent;
	int64_t now = now_ns();

	e->counters.timeouts++;
	t->silent++;
	t->quiet_from = now;
	t->clean_from = t->sent;
	for (uint64_t v = e->votes_taken; v < e->votes_sent && !t->number; v++)
		if (!votes_has(e, v))
			packets_again(e, t, vote_packet(e, v), &e->vote_sent_at[NEXT_RING(v)], now);
	while (last > t->done && has_data(e, t, last - 1))
		last--;
	if (last > t->done) {
		packets_again(e, t, packet(e, t, last - 1), &t->sent_at[(last - 1) % e->limit], now);
		pushed++;
	}
	for (uint64_t f = t->done; f + 1 < last && pushed < limit; f++)
		if (!has_data(e, t, f)) {
			packets_again(e, t, packet(e, t, f), &t->sent_at[f % e->limit], now);
			pushed++;
		}
	timing_back_off(&t->timing);
}
