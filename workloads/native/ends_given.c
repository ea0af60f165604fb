// SPDX-License-Identifier: Apache-2.0
/*
 * The stream that an end sends: up to the credit, and again from the first fragment that is not acknowledged.
 */
#include <arpa/inet.h>
#include <string.h>

#include "ends.h"

#define MEASURED_AT_ONCE 65536 /* elements; then packets are handled */
#define FULL_NS 100000		/* pause before a full socket is tried again */

static uint64_t *start_of(struct given *g, uint64_t number)
{
	return &g->starts[number % (ENDS_REQUESTS + 1)];
}

/* Measures on at the first request whose largest exponent is not known. */
int given_measure(struct end *e)
{
	struct given *g = &e->given;
	struct end_stream *stream = stream_of(e, DIRECTION_GIVEN);
	float scratch[256];

	while (g->measured < __atomic_load_n(&stream->submitted, __ATOMIC_ACQUIRE)) {
		struct end_request *r = request_of(e, DIRECTION_GIVEN, g->measured);
		uint64_t until = ends_least(r->elements, g->measuring + MEASURED_AT_ONCE);

		if (__atomic_load_n(&r->state, __ATOMIC_ACQUIRE) != STATE_SUBMITTED) {
			g->measured++;
			continue;
		}
		while (g->measuring < until) {
			uint64_t count = ends_least(until - g->measuring, 256);
			uint32_t exponent =
				values_exponent(buffer_of(e, r), r->format, g->measuring, count, scratch);

			r->exponent = exponent > r->exponent ? exponent : r->exponent;
			g->measuring += count;
		}
		if (g->measuring == r->elements) {
			g->measuring = 0;
			g->measured++;
			request_settle(r, STATE_MEASURED);
		}
		return 1;
	}
	return 0;
}

/* Assigns numbers to the fragments of requests that are ready. */
int given_open(struct end *e)
{
	struct given *g = &e->given;
	uint64_t submitted = __atomic_load_n(&stream_of(e, DIRECTION_GIVEN)->submitted, __ATOMIC_ACQUIRE);
	uint64_t before = g->opened;

	while (g->opened < submitted) {
		struct end_request *r = request_of(e, DIRECTION_GIVEN, g->opened);
		uint64_t lanes = lanes_in(r);

		if (__atomic_load_n(&r->state, __ATOMIC_ACQUIRE) != STATE_READY)
			break;
		*start_of(g, g->opened) = g->end;
		g->end += lanes ? (lanes + e->s.lanes - 1) / e->s.lanes : 1;
		*start_of(g, ++g->opened) = g->end;
	}
	return g->opened != before;
}

static void write_fragment(struct end *e, uint64_t fragment, struct wire_header *h)
{
	struct given *g = &e->given;
	struct end_request *r;
	uint64_t start, lanes;
	uint32_t count, zeroed;

	while (*start_of(g, g->at + 1) <= fragment)
		g->at++;
	r = request_of(e, DIRECTION_GIVEN, g->at);
	start = (fragment - *start_of(g, g->at)) * e->s.lanes;
	lanes = lanes_in(r);
	count = ends_least(lanes - start, e->s.lanes);
	packet_open(e, h, e->data_op);
	h->fragment = htonl((uint32_t)fragment);
	h->slot = htonl(e->s.role == ROLE_WORKER ? e->s.slot_base + fragment % e->s.slots : 0);
	h->count = htons(count);
	if (start + count == lanes)
		h->flags = WIRE_FLAG_END;
	if (fragment < g->next)
		h->flags |= WIRE_FLAG_RETRANSMIT;
	zeroed = values_give(e, r, start, count, (uint32_t *)(h + 1));
	if (fragment >= g->zeroed) {
		r->zeroed += zeroed;
		g->zeroed = fragment + 1;
	}
	memset((uint32_t *)(h + 1) + count, 0, 4 * (e->s.lanes - count));
}

/* Schedules `run` fragments under way to be sent again, from the first that is not acknowledged. */
static void send_again(struct end *e, uint64_t run)
{
	struct given *g = &e->given;

	g->run = run;
	g->again = g->ack;
	g->until = ends_least(g->ack + run, g->recover);
}

/* Sends at most a burst of what the credit and the pace allow. Returns whether anything was sent. */
int given_send(struct end *e, int64_t now)
{
	struct given *g = &e->given;
	struct end_stream *stream = stream_of(e, DIRECTION_GIVEN);
	uint64_t from, until, count, at, sent;
	int is_again;

	if (g->next == g->ack) {
		g->since_ns = now; /* nothing is under way */
	} else if (now - g->since_ns >= e->s.detect_us * 1000LL) {
		g->recover = g->next;
		g->since_ns = now;
		stream->gone_back++;
		send_again(e, 1);
	}
	is_again = g->again < g->until;
	from = is_again ? g->again : g->next;
	until = is_again ? g->until : ends_least(g->credit, g->end);
	if (from >= until || now < g->pace_ns)
		return 0;
	if (is_again)
		g->at = __atomic_load_n(&stream->done, __ATOMIC_RELAXED);
	at = g->at;
	count = ends_least(until - from, e->s.burst);
	for (uint64_t i = 0; i < count; i++)
		write_fragment(e, from + i, (struct wire_header *)(e->sending + i * e->packet_bytes));
	sent = packet_send(e, e->sending, e->packet_bytes, count);
	if (sent < count)
		g->at = at; /* the next packet may belong to an earlier request than the last one written */
	if (!sent) {
		g->pace_ns = now + FULL_NS;
		return 0;
	}
	count = sent;
	stream->packets += count;
	if (is_again) {
		stream->again += count;
		g->again += count;
	} else {
		g->next += count;
		stream->next = g->next;
	}
	if (e->s.rate_mbps > 0) {
		double bits = 8.0 * count * (e->packet_bytes + WIRE_FRAME_HEADERS_BYTES);
		int64_t from = g->pace_ns > now - 1000000 ? g->pace_ns : now; /* a late timer, or a pause */

		g->pace_ns = from + (int64_t)(bits * 1000.0 / e->s.rate_mbps);
	}
	return 1;
}

/* Completes requests whose fragments are all acknowledged. */
static void retire(struct end *e)
{
	struct given *g = &e->given;
	struct end_stream *stream = stream_of(e, DIRECTION_GIVEN);

	for (uint64_t done = stream->done; done < g->opened && *start_of(g, done + 1) <= g->ack;) {
		struct end_request *r = request_of(e, DIRECTION_GIVEN, done);

		g->at = g->at > ++done ? g->at : done;
		request_settle(r, STATE_DONE);
		__atomic_store_n(&stream->done, done, __ATOMIC_RELEASE);
	}
}

/* Handles a beat. The largest acknowledgement and credit count, since beats may overtake each other. */
void given_hear(struct end *e, const struct wire_header *h, int64_t now)
{
	struct given *g = &e->given;
	struct end_stream *stream = stream_of(e, DIRECTION_GIVEN);
	uint64_t ack = widened(g->ack, ntohl(h->fragment)), credit = widened(g->ack, ntohl(h->slot));

	if (ack > g->end && (int64_t)ack >= 0) { /* acknowledges what was never sent */
		e->memory->refused++;
		return;
	}
	stream->beats++;
	if ((int64_t)(ack - g->ack) > 0) {
		g->ack = ack;
		g->since_ns = now;
		g->next = g->next > ack ? g->next : ack;
		if (ack < g->recover)
			send_again(e, ends_least(2 * g->run, e->s.burst));
		else
			g->recover = g->until = 0;
		retire(e);
	}
	if ((int64_t)(credit - g->credit) > 0)
		g->credit = credit;
	stream->ack = g->ack;
	stream->credit = g->credit;
}

/* The time at which there is something to do even if nothing comes; INT64_MAX: never. */
int64_t given_timer_ns(const struct end *e)
{
	const struct given *g = &e->given;
	int64_t at = INT64_MAX;

	if (g->next != g->ack)
		at = g->since_ns + e->s.detect_us * 1000LL;
	if ((g->again < g->until || g->next < ends_least(g->credit, g->end)) && g->pace_ns < at)
		at = g->pace_ns;
	return at;
}
