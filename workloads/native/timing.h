/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a worker waits before it pushes again: round trips smoothed as in RFC 6298, and the pace of
 * results; docs/protocol.md says the rule. No clock, no I/O: a function of what it is told. Times are
 * nanoseconds.
 */
#ifndef TIMING_H
#define TIMING_H

#include <stdint.h>

#define PROBE_MIN_NS 1000000LL
#define PROBE_FIRST_NS 5000000LL /* as long as no round trip is known */
#define PROBE_MAX_NS 250000000LL
#define PROBE_SHARE 128 /* of a silence: what a pause between two probes adds to it at most */
#define PROBE_EACH_NS 100000LL /* of a pause, for each worker: all of them may be silent at once */
#define PROBE_LINK 4 /* a link that all their probes go over is full for one part in so many of a pause */
#define SRTT_FIRST_NS 1000000LL

struct timing {
	int64_t srtt_ns;
	int64_t base_ns; /* the same without what packets waited for on this worker's own link */
	int64_t pace_ns, pace_at; /* between two results; since when it is being measured */
	uint64_t pace_from, pace_until;
	int timed; /* whether a round trip was ever measured */
};

static inline void timing_open(struct timing *t)
{
	*t = (struct timing){.srtt_ns = SRTT_FIRST_NS, .base_ns = SRTT_FIRST_NS};
}

/*
 * No result waits longer than this in queues: a window at the pace of the results. What took longer waited
 * for somebody's repetition, which is made of round trips again: without a bound each loss would make them,
 * and the next wait, longer.
 */
static inline int64_t timing_longest_ns(const struct timing *t, double window)
{
	return SRTT_FIRST_NS + (int64_t)window * t->pace_ns;
}

/*
 * A round's time by its results. It falls at once, and rises by a sixteenth at most: a pause is none of the
 * network's.
 */
static inline void timing_pace(struct timing *t, uint64_t done, uint64_t sent, int64_t now)
{
	int64_t pace;

	if (done < t->pace_until)
		return;
	pace = (now - t->pace_at) / (int64_t)(done - t->pace_from);
	if (t->pace_ns && pace > t->pace_ns + t->pace_ns / 16)
		pace = t->pace_ns + t->pace_ns / 16;
	t->pace_ns = pace + 1;
	t->pace_at = now;
	t->pace_from = done;
	t->pace_until = sent > done ? sent : done + 1;
}

/* `queued`: what of it is due to the packets of this worker that were on its link before. */
static inline void timing_round_trip(struct timing *t, int64_t rtt, int64_t queued, double window)
{
	int64_t longest = timing_longest_ns(t, window), base;

	rtt = rtt < longest ? rtt : longest;
	base = rtt > queued ? rtt - queued : 0;
	if (t->timed) {
		t->srtt_ns += (rtt - t->srtt_ns) / 8;
		t->base_ns += (base - t->base_ns) / 8;
	} else {
		t->timed = 1;
		t->srtt_ns = rtt;
		t->base_ns = base;
	}
}

/*
 * When a worker that has heard nothing for so long probes: after two round trips (RFC 8985, section 7.2), and
 * so again and again, since it may be light that is gone, and a probe costs two packets: what was silent
 * goes on soon after it can. In a long silence a pause is a small part of it. What was queued is no part of
 * a round trip here: who asks adds what is on the link now.
 *
 * `workers` may all be silent, and a switch passes each probe for a sum that is complete there on to the
 * place above: they meet on the link to that. `frame_ns`: what a frame takes on this worker's; 0: no rate.
 */
static inline int64_t timing_probe_ns(const struct timing *t, int64_t silent_ns, int64_t workers,
				      int64_t frame_ns)
{
	int64_t least = t->timed ? PROBE_MIN_NS : PROBE_FIRST_NS, share = silent_ns / PROBE_SHARE;
	int64_t each = 2 * PROBE_LINK * frame_ns;

	each = workers * (each > PROBE_EACH_NS ? each : PROBE_EACH_NS);
	least = least > 2 * t->base_ns ? least : 2 * t->base_ns;
	least = least > each ? least : each;
	share = share < PROBE_MAX_NS ? share : PROBE_MAX_NS;
	return least > share ? least : share;
}

#endif
