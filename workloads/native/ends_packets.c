// SPDX-License-Identifier: Apache-2.0
/* Sends and receives an end's packets. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "ends.h"

/* Fills the header fields that are the same for all fragments. */
void packet_open(struct end *e, struct wire_header *h, uint8_t op)
{
	*h = (struct wire_header){
		.magic = htons(WIRE_MAGIC),
		.version = WIRE_VERSION,
		.op = op,
		.tree = e->s.tree,
		.job = htons(e->s.job),
		.worker = htons(e->s.role == ROLE_WORKER ? e->s.worker : WIRE_NO_WORKER),
		.contributors = htons(op == WIRE_OP_PUSH),
		.generation = htonl(e->s.generation),
		.lanes = htons(e->s.lanes),
	};
}

/*
 * Sends packets of `bytes` bytes each. Returns how many have left: 0 if no send can succeed any more, which
 * stops the end.
 */
uint32_t packet_send(struct end *e, void *first, size_t bytes, uint32_t count)
{
	struct packets packets = {.first = first, .bytes = bytes, .stride = bytes, .count = count};
	int taken = sends_packets(&e->sends, &e->to, &packets, 0);

	return taken < 0 ? 0 : taken;
}

/* Whether a packet belongs to this tree, is for this end, and is complete. */
static int is_ours(struct end *e, const struct wire_header *h, uint32_t bytes)
{
	if (bytes < sizeof(*h) || h->magic != htons(WIRE_MAGIC) || h->version != WIRE_VERSION ||
	    h->job != htons(e->s.job) || h->generation != htonl(e->s.generation) || h->tree != e->s.tree)
		return 0;
	if (h->op == e->beat_in)
		return 1;
	return h->op == e->data_in && bytes == e->packet_bytes && ntohs(h->lanes) == e->s.lanes &&
	       ntohs(h->count) <= e->s.lanes;
}

/* Reads how many packets the kernel had no room for since the socket was made. */
static void note_dropped(struct end *e, struct msghdr *message)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL)
			e->memory->dropped = *(uint32_t *)CMSG_DATA(c);
}

/* Handles what came, a burst at most. Returns whether it was a full burst, so that more may have come. */
int packets_come(struct end *e, int64_t now)
{
	struct mmsghdr messages[ENDS_BURST];
	struct iovec parts[ENDS_BURST];
	union {
		char bytes[CMSG_SPACE(sizeof(uint32_t))];
		struct cmsghdr aligned;
	} controls[ENDS_BURST];
	int count;

	for (int i = 0; i < ENDS_BURST; i++) {
		parts[i] = (struct iovec){e->coming + i * e->packet_bytes, e->packet_bytes};
		messages[i].msg_hdr = (struct msghdr){
			.msg_iov = &parts[i], .msg_iovlen = 1,
			.msg_control = &controls[i], .msg_controllen = sizeof(controls[i])
		};
	}
	count = recvmmsg(e->s.socket_fd, messages, ENDS_BURST, MSG_DONTWAIT, 0);
	if (count < 0)
		sends_note(&e->sends, errno);
	for (int i = 0; i < count; i++) {
		const struct wire_header *h = parts[i].iov_base;

		note_dropped(e, &messages[i].msg_hdr);
		if (!is_ours(e, h, messages[i].msg_hdr.msg_flags & MSG_TRUNC ? 0 : messages[i].msg_len))
			e->memory->refused++;
		else if (h->op == e->beat_in)
			given_hear(e, h, now);
		else
			gotten_receive(e, h);
	}
	return count == ENDS_BURST;
}
