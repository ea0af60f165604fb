/* SPDX-License-Identifier: Apache-2.0 */
/* Pushes packets of fragments, in bursts, as the windows allow. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <string.h>

#include "endpoint.h"

#define TOS_REPEATED (WIRE_DSCP_REPEATED << 2 | WIRE_ECT)

/* Fills the header fields that are the same for all fragments. */
void packets_open(struct endpoint *e, struct tree *t, struct wire_header *h)
{
	h->magic = htons(WIRE_MAGIC);
	h->version = WIRE_VERSION;
	h->op = WIRE_OP_PUSH;
	h->tree = e->s.first_tree + t->number;
	h->job = htons(e->s.job);
	h->worker = htons(e->s.sender);
	h->contributors = htons(1);
	h->generation = htonl(e->s.generation);
	h->count = htons(e->s.lanes);
	h->lanes = htons(e->s.lanes);
}

/*
 * Sends consecutive packets. Returns how many have left: 0 if the socket is full, or if no send can succeed
 * any more, which breaks the endpoint.
 */
uint32_t packets_send(struct endpoint *e, struct tree *t, struct wire_header *first, uint32_t count)
{
	struct packets packets = {
		.first = first, .bytes = e->packet_bytes, .stride = e->packet_bytes, .count = count
	};
	int is_repeated = count == 1 && first->flags & WIRE_FLAG_RETRANSMIT, taken;

	if (first->op == WIRE_OP_EMPTY) /* only the header of each packet */
		packets.bytes = sizeof(*first);
	/* the packet that completes a sum passes on whether it was a repetition */
	taken = sends_packets(&e->sends, &t->to, &packets, is_repeated ? TOS_REPEATED : 0);
	return taken < 0 ? 0 : taken;
}

void packets_again(struct endpoint *e, struct tree *t, struct wire_header *h, int64_t *sent_at, int64_t now)
{
	if (e->s.lossless) {
		*sent_at = now;
		return;
	}
	h->flags |= WIRE_FLAG_RETRANSMIT;
	packets_send(e, t, h, 1);
	*sent_at = now;
	e->counters.retransmitted++;
}

/* Whether a push has only zeros, which need not be sent. `number` is the fragment's over all trees. */
static int is_empty(struct endpoint *e, struct tree *t, struct op *op, uint64_t number)
{
	return op->gathered && t->takes_empties &&
	       !parts_has(op, (number - op->first) * e->s.lanes, e->s.lanes);
}

static void write_fragment(struct endpoint *e, struct tree *t, struct op *op, uint64_t fragment,
			   uint64_t number)
{
	struct wire_header *h = packet(e, t, fragment);
	uint32_t *lanes = lanes_of(h);
	uint64_t start = (number - op->first) * e->s.lanes, count = lesser(op->length - start, e->s.lanes);

	h->op = WIRE_OP_PUSH;
	h->flags = 0;
	h->contributors = htons(1);
	h->fragment = htonl((uint32_t)fragment);
	h->slot = htonl(t->slot_base + e->s.places[fragment % e->data_slots]);
	h->count = htons(count);
	if (is_empty(e, t, op, number)) {
		h->op = WIRE_OP_EMPTY;
		return;
	}
	if (op->gathered) {
		parts_write(op, lanes, start, count);
	} else if (op->raw) {
		lanes_swap((uint32_t *)op->data + start, lanes, count);
	} else {
		struct block *block = block_of(e, op, number);

		if (block->beyond) { /* a contribution without values */
			h->flags = WIRE_FLAG_DEGRADED;
			h->contributors = 0;
			memset(lanes, 0, 4 * count);
			e->counters.left_out += count;
		} else {
			e->counters.zeroed +=
				lanes_encode(op->data + start, lanes, count, block->scale, e->bias);
			e->counters.scaled += count;
		}
	}
	if (count < e->s.lanes)
		memset(lanes + count, 0, 4 * (e->s.lanes - count));
}

/*
 * Writes up to `most` of the tree's next packets: packets of one size, up to the end of the packet buffer.
 * Returns their number.
 */
static uint32_t write_burst(struct endpoint *e, struct tree *t, uint64_t most)
{
	uint32_t count = 0;
	int empty = 0;

	for (; count < most; count++) {
		uint64_t fragment = t->sent + count, number = over_all(e, t, fragment);
		struct op *op = &e->ops[NEXT_RING(t->pushing)];

		if (count > 0 && fragment % e->limit == 0)
			break;
		while (op->first + op->count <= number)
			op = &e->ops[NEXT_RING(++t->pushing)];
		if (count == 0)
			empty = is_empty(e, t, op, number);
		else if (empty != is_empty(e, t, op, number))
			break;
		write_fragment(e, t, op, fragment, number);
	}
	return count;
}

/* Writes and sends the tree's next packets; returns how many have left. The others are not counted. */
static uint32_t push_burst(struct endpoint *e, struct tree *t, uint64_t most)
{
	struct counters counters = e->counters;
	uint64_t pushing = t->pushing;
	uint32_t count = write_burst(e, t, most), taken = packets_send(e, t, packet(e, t, t->sent), count);

	if (taken == count)
		return count;
	e->counters = counters;
	t->pushing = pushing; /* the next packet may belong to an earlier vector than the last one written */
	return taken ? write_burst(e, t, taken) : 0;
}

/*
 * Pushes as many fragments as the tree's window allows, a burst at a time; a small remainder only if `all`.
 * Returns whether anything was pushed.
 */
int packets_push(struct endpoint *e, struct tree *t, int all)
{
	uint64_t before = t->sent, room = (uint64_t)t->window.size, burst = e->burst;
	uint64_t votes = t->number ? 0 : votes_under_way(e) + votes_wanted(e);
	uint64_t have = given(e, t, e->next_fragment);

	room = room > votes ? room - votes : 1;
	if (e->s.rate_mbps > 0 && burst > room / 4 + 1) /* a shaped link's queue may be short */
		burst = room / 4 + 1;
	if (t->pushing < e->reported) /* its entry may belong to another vector by now */
		t->pushing = e->reported;
	for (;;) {
		uint64_t until = t->done + room, count, left;

		if (until > have)
			until = have;
		else
			t->window.full = 1;
		if (t->sent >= until)
			break;
		left = until - t->sent;
		if (left < burst / 2 && !all && until != have)
			break;
		count = push_burst(e, t, lesser(left, burst));
		if (!count)
			break; /* the socket is full: try again later */

		int64_t now = now_ns(), queued_ns = repair_on_link_ns(e), frame_ns = repair_frame_ns(e);

		if (t->sent == t->done) /* nothing was expected by this tree: the silence begins now */
			t->silent_from = t->quiet_from = now;
		for (uint64_t i = 0; i < count; i++) {
			uint64_t place = (t->sent + i) % e->limit;

			t->sent_at[place] = t->first_at[place] = now;
			t->queued_ns[place] = queued_ns + (int64_t)i * frame_ns;
			t->asked_from[place] = e->asking;
		}
		t->sent += count;
		e->counters.pushed += count;
	}
	return t->sent != before;
}
