/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a worker waits before it pushes again: round trips after RFC 6298, and the pace of results;
 * docs/protocol.md says the rule. No clock, no I/O: a function of what it is told. Times are nanoseconds.
 */
#ifndef TIMING_H
#define TIMING_H

#include <stdint.h>

#define RTO_MIN_NS 5000000LL
#define RTO_MAX_NS 250000000LL
#define SRTT_FIRST_NS 1000000LL

struct timing {
	int64_t rto_ns, srtt_ns, rttvar_ns;
	int64_t pace_ns, pace_at; /* between two results; since when it is being measured */
	uint64_t pace_from, pace_until;
	int timed; /* whether a round trip was ever measured */
};

static inline void timing_open(struct timing *t)
{
	*t = (struct timing){.rto_ns = RTO_MIN_NS, .srtt_ns = SRTT_FIRST_NS};
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

static inline void timing_round_trip(struct timing *t, int64_t rtt, double window)
{
	int64_t longest = timing_longest_ns(t, window), off;

	rtt = rtt < longest ? rtt : longest;
	off = rtt > t->srtt_ns ? rtt - t->srtt_ns : t->srtt_ns - rtt;
	if (t->timed) {
		t->rttvar_ns += (off - t->rttvar_ns) / 4;
		t->srtt_ns += (rtt - t->srtt_ns) / 8;
	} else {
		t->timed = 1;
		t->srtt_ns = rtt;
		t->rttvar_ns = rtt / 2;
	}
}

/* Results came: the timer is what round trips say again. */
static inline void timing_reset(struct timing *t)
{
	int64_t slow = t->srtt_ns + 4 * t->rttvar_ns;

	t->rto_ns = slow > RTO_MIN_NS ? slow : RTO_MIN_NS;
}

static inline void timing_back_off(struct timing *t)
{
	if (t->rto_ns < RTO_MAX_NS)
		t->rto_ns = t->rto_ns * 2 < RTO_MAX_NS ? t->rto_ns * 2 : RTO_MAX_NS;
}

/*
 * When a worker that hears nothing probes, which costs a packet: after two round trips (RFC 8985, section
 * 7.2). Their deviation is not in it: where links lose, it is made of others' repairs, and every timer would
 * wait for those.
 */
static inline int64_t timing_probe_ns(const struct timing *t)
{
	return 2 * t->srtt_ns > RTO_MIN_NS ? 2 * t->srtt_ns : RTO_MIN_NS;
}

#endif
