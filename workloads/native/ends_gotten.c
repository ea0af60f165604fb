// SPDX-License-Identifier: Apache-2.0
/*
 * The stream that an end receives: stored within its room, passed to requests in order, acknowledged by
 * beats.
 */
#include <arpa/inet.h>
#include <string.h>

#include "ends.h"

#define IDLE_BEATS 64 /* beats' intervals between two beats, at most, while nothing comes */

static struct wire_header *kept(struct end *e, uint64_t fragment)
{
	return (struct wire_header *)(e->gotten.room + fragment % e->s.depth * e->packet_bytes);
}

void gotten_receive(struct end *e, const struct wire_header *h)
{
	struct gotten *g = &e->gotten;
	struct end_stream *stream = stream_of(e, DIRECTION_GOTTEN);
	uint64_t fragment = widened(g->ack, ntohl(h->fragment));

	stream->packets++;
	if ((int64_t)(fragment - g->ack) < 0 || g->held[fragment % e->s.depth] == fragment + 1) {
		stream->again++;
		g->tell = 1; /* the sender lacks a beat */
		return;
	}
	if (fragment >= g->taken + e->s.depth) {
		stream->overflowed++;
		return;
	}
	memcpy(kept(e, fragment), h, e->packet_bytes);
	g->held[fragment % e->s.depth] = fragment + 1;
	while (g->held[g->ack % e->s.depth] == g->ack + 1)
		g->ack++;
	stream->ack = g->ack;
}

/* Fails a request. Those after it fail, too: the two ends' streams no longer match. */
static void fail(struct end *e, struct end_request *r, uint64_t theirs)
{
	struct end_stream *stream = stream_of(e, DIRECTION_GOTTEN);

	if (!r->error)
		r->error = WRONG_LENGTH;
	r->theirs = theirs;
	request_settle(r, STATE_FAILED);
	__atomic_store_n(&stream->done, stream->done + 1, __ATOMIC_RELEASE);
}

/* Passes received fragments, in order, to the requests for them. Returns whether there were any. */
int gotten_take(struct end *e)
{
	struct gotten *g = &e->gotten;
	struct end_stream *stream = stream_of(e, DIRECTION_GOTTEN);
	uint64_t before = g->taken;
	static const uint64_t never = ~0ULL;

	while (stream->done < __atomic_load_n(&stream->submitted, __ATOMIC_ACQUIRE)) {
		struct end_request *r = request_of(e, DIRECTION_GOTTEN, stream->done);
		struct wire_header *h = kept(e, g->taken);
		uint64_t left = lanes_in(r) - g->lanes, count = ends_least(left, e->s.lanes);
		int is_end;

		if (g->lanes == never) {
			r->error = WRONG_EARLIER;
			fail(e, r, 0);
			continue;
		}
		if (g->taken == g->ack)
			break;
		is_end = !!(h->flags & WIRE_FLAG_END);
		if (ntohs(h->count) != count || is_end != (left == count)) {
			fail(e, r, is_end ? g->lanes + ntohs(h->count) : 0);
			g->lanes = never;
			continue;
		}
		values_take(e, r, g->lanes, count, (uint32_t *)(h + 1));
		g->taken++;
		g->lanes = is_end ? 0 : g->lanes + count;
		if (is_end) {
			g->tell = 1; /* the sender may be waiting for this */
			request_settle(r, STATE_DONE);
			__atomic_store_n(&stream->done, stream->done + 1, __ATOMIC_RELEASE);
		}
	}
	stream->next = g->taken;
	return g->taken != before;
}

/* Sends a beat if it is due. Returns whether it did. */
int gotten_beat(struct end *e, int64_t now)
{
	struct gotten *g = &e->gotten;
	struct end_stream *stream = stream_of(e, DIRECTION_GOTTEN);
	int grown = g->ack != g->told_ack || g->taken != g->told_taken;
	uint64_t quarter = e->s.depth / 4 ? e->s.depth / 4 : 1;
	struct wire_header h;

	if (grown && g->every_ns > e->s.beat_us * 1000LL) { /* after a time without packets */
		g->every_ns = e->s.beat_us * 1000LL;
		g->beat_ns = ends_least(g->beat_ns, now + g->every_ns);
	}
	if (!g->tell && now < g->beat_ns && g->taken - g->told_taken < quarter &&
	    !(g->told_full && g->taken != g->told_taken))
		return 0;
	packet_open(e, &h, e->beat_op);
	h.fragment = htonl((uint32_t)g->ack);
	h.slot = htonl((uint32_t)(g->taken + e->s.depth));
	if (!packet_send(e, &h, sizeof(h), 1))
		return 0;
	stream->beats++;
	stream->credit = g->taken + e->s.depth;
	g->every_ns = ends_least(grown || g->tell ? e->s.beat_us * 1000LL : 2 * g->every_ns,
				 IDLE_BEATS * e->s.beat_us * 1000LL);
	g->beat_ns = now + g->every_ns;
	g->told_ack = g->ack;
	g->told_taken = g->taken;
	g->told_full = g->ack == g->taken + e->s.depth;
	g->tell = 0;
	return 1;
}
