/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker pushes: packets of fragments, in bursts, as its windows allow. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>

#include "endpoint.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

#define TOS_REPEATED (WIRE_DSCP_REPEATED << 2 | WIRE_ECT)

/* Fills what no fragment changes. */
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

/* Whether the kernel took all of them. */
int packets_send(struct endpoint *e, struct tree *t, struct wire_header *first, uint32_t count)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr aligned;
	} control = {0};
	struct iovec parts[MAX_BURST] = {{.iov_base = first, .iov_len = count * e->packet_bytes}};
	struct msghdr message = {
		.msg_name = &t->to, .msg_namelen = sizeof(t->to), .msg_iov = parts, .msg_iovlen = 1
	};
	uint16_t segment_bytes = e->packet_bytes;

	if (first->op == WIRE_OP_EMPTY) { /* the header only, of each packet's room */
		segment_bytes = sizeof(*first);
		message.msg_iovlen = count;
		for (uint32_t i = 0; i < count; i++)
			parts[i] = (struct iovec){
				.iov_base = (uint8_t *)first + i * e->packet_bytes, .iov_len = segment_bytes
			};
	}

	if (count > 1) {
		struct cmsghdr *c = &control.aligned;

		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(uint16_t));
		c->cmsg_level = SOL_UDP;
		c->cmsg_type = UDP_SEGMENT;
		c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
		*(uint16_t *)CMSG_DATA(c) = segment_bytes;
	} else if (first->flags & WIRE_FLAG_RETRANSMIT) { /* what a sum is completed by is seen on it */
		struct cmsghdr *c = &control.aligned;

		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int));
		c->cmsg_level = IPPROTO_IP;
		c->cmsg_type = IP_TOS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		*(int *)CMSG_DATA(c) = TOS_REPEATED;
	}
	return sendmsg(e->s.socket_fd, &message, MSG_DONTWAIT) >= 0 ||
	       (errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM);
}

void packets_again(struct endpoint *e, struct tree *t, struct wire_header *h, int64_t *sent_at, int64_t now)
{
	if (e->s.lossless) {
		*sent_at = now;
		return;
	}
	h->flags = WIRE_FLAG_RETRANSMIT;
	packets_send(e, t, h, 1);
	*sent_at = now;
	e->counters.retransmitted++;
}

/* Whether a push has zeros alone, which need not be sent. `number` is the fragment's over all trees. */
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
		uint32_t clipped = 0;

		if (block->clipped)
			e->counters.zeroed += lanes_encode_clipped(op->data + start, lanes, count,
								   block->scale, e->bias, &clipped);
		else
			e->counters.zeroed +=
				lanes_encode(op->data + start, lanes, count, block->scale, e->bias);
		e->counters.clipped += clipped;
		e->counters.scaled += count;
	}
	if (count < e->s.lanes)
		memset(lanes + count, 0, 4 * (e->s.lanes - count));
}

/*
 * Pushes what the tree's window has room for, a burst at a time; small rests only if `all`. Whether anything
 * was pushed.
 */
int packets_push(struct endpoint *e, struct tree *t, int all)
{
	uint64_t before = t->sent, room = (uint64_t)t->window.size, burst = e->burst;
	uint64_t votes = t->number ? 0 : votes_under_way(e) + votes_wanted(e);
	uint64_t have = given(e, t, e->next_fragment);

	room = room > votes ? room - votes : 1;
	if (e->s.rate_mbps > 0 && burst > room / 4 + 1) /* where queues may be shorter than a burst */
		burst = room / 4 + 1;
	if (t->pushing < e->reported) /* its entry may be another vector's by now */
		t->pushing = e->reported;
	for (;;) {
		uint64_t until = t->done + room, count = 0, left = 0;
		struct counters unpushed = e->counters;
		int empty = 0;

		if (until > have)
			until = have;
		else
			t->window.full = 1;
		if (t->sent >= until)
			break;
		left = until - t->sent;
		if (left < burst / 2 && !all && until != have)
			break;
		for (; count < left && count < burst; count++) {
			uint64_t fragment = t->sent + count, number = over_all(e, t, fragment);
			struct op *op = &e->ops[NEXT_RING(t->pushing)];

			if (count > 0 && fragment % e->limit == 0)
				break;
			while (op->first + op->count <= number)
				op = &e->ops[NEXT_RING(++t->pushing)];
			if (count == 0)
				empty = is_empty(e, t, op, number);
			else if (empty != is_empty(e, t, op, number)) /* of one size in a burst */
				break;
			write_fragment(e, t, op, fragment, number);
		}
		if (!packets_send(e, t, packet(e, t, t->sent), count)) {
			e->counters = unpushed;
			break; /* the socket is full: the same again later */
		}
		int64_t now = now_ns();

		int64_t queued_ns = repair_on_link_ns(e), frame_ns = repair_frame_ns(e);

		if (t->sent == t->done) /* nobody waited for a result of this tree */
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
