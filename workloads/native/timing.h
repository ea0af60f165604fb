/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a worker waits before it pushes again: round trips smoothed as in RFC 6298, and the pace of
 * results; docs/protocol.md has the rule. No clock, no I/O: a function of its arguments. Times are in
 * nanoseconds.
 */
#ifndef TIMING_H
#define TIMING_H

#include <stdint.h>

#define PROBE_MIN_NS 1000000LL
#define PROBE_FIRST_NS 5000000LL /* while no round trip is known */
#define PROBE_MAX_NS 250000000LL
#define PROBE_SHARE 128 /* in a long silence, a pause is 1/128 of it */
#define PROBE_EACH_NS 100000LL /* share of a pause per worker: all may be silent at once */
#define PROBE_LINK 4 /* probes of all workers use at most 1/4 of a link that they share */
#define SRTT_FIRST_NS 1000000LL

struct timing {
	int64_t srtt_ns;
	int64_t base_ns; /* without the time that packets waited on this worker's own link */
	int64_t pace_ns, pace_at; /* time per result; when its present measurement began */
	uint64_t pace_from, pace_until;
	int timed; /* whether a round trip was ever measured */
};

static inline void timing_open(struct timing *t)
{
	*t = (struct timing){.srtt_ns = SRTT_FIRST_NS, .base_ns = SRTT_FIRST_NS};
}

/*
 * The longest time that a result can wait in queues: a window at the pace of the results. A result that took
 * longer waited for some worker's repetition, whose timer follows from round trips: without this bound each
 * loss would lengthen the measured round trips, and with them the next wait.
 */
static inline int64_t timing_longest_ns(const struct timing *t, double window)
{
	return SRTT_FIRST_NS + (int64_t)window * t->pace_ns;
}

/*
 * Measures the time per result over a round. It falls at once, and rises by a sixteenth at most, because a
 * pause is not caused by the network.
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

/*
 * Adds a measured round trip. `queued`: the part of it during which earlier packets of this worker occupied
 * its link.
 */
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
 * How long a silent worker waits before the next probe: two round trips (RFC 8985, section 7.2). It probes
 * again and again, since the cause may be a dark circuit, and a probe costs two packets: traffic resumes soon
 * after it can. In a long silence a pause is a small part of it. Queueing is excluded from the round trip
 * here: the caller adds the time of the frames that are on the link now.
 *
 * All `workers` may be silent, and a switch passes each probe for a sum that is complete there to the place
 * above: the probes meet on the link to that place. `frame_ns`: the time of a frame on this worker's link; 0:
 * it has no rate.
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
