// SPDX-License-Identifier: Apache-2.0
/*
 * Sends for both kinds of compiled endpoint. An error that does not pass ends the job, with its errno
 * (sends_meaning.h).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "sends.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

/* A device's offloads can change during a job: try bursts again after this time. */
#define SINGLE_NS 1000000000LL

union control {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr aligned;
};

static int64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Records the first error that does not pass, of a send or of another call on the socket. */
void sends_note(struct sends *s, int code)
{
	if (!s->error && sends_meaning(code) == MEANS_FAILED)
		s->error = code;
}

/* Discards what came to the socket; its only purpose is to wake a waiting thread. */
void sends_drain(struct sends *s)
{
	char byte;

	while (recv(s->fd, &byte, 1, MSG_DONTWAIT) >= 0)
		;
	sends_note(s, errno);
}

static void put_control(struct msghdr *message, union control *room, int level, int type, const void *value,
			size_t bytes)
{
	struct cmsghdr *c = &room->aligned;

	memset(room, 0, sizeof(*room));
	message->msg_control = room;
	message->msg_controllen = CMSG_SPACE(bytes);
	c->cmsg_level = level;
	c->cmsg_type = type;
	c->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(c), value, bytes);
}

static struct iovec part_of(const struct packets *packets, uint32_t at)
{
	return (struct iovec){
		.iov_base = (uint8_t *)packets->first + at * packets->stride, .iov_len = packets->bytes
	};
}

/* Sends all packets in one call, as one datagram that the kernel cuts. Returns 0 or an errno. */
static int send_whole(struct sends *s, const struct sockaddr_in *to, const struct packets *packets)
{
	struct iovec parts[MAX_BURST] = {{(void *)packets->first, packets->count * packets->bytes}};
	struct msghdr message = {
		.msg_name = (void *)to, .msg_namelen = sizeof(*to), .msg_iov = parts, .msg_iovlen = 1
	};
	uint16_t segment_bytes = packets->bytes;
	union control room;

	if (packets->stride != packets->bytes) {
		message.msg_iovlen = packets->count;
		for (uint32_t i = 0; i < packets->count; i++)
			parts[i] = part_of(packets, i);
	}
	put_control(&message, &room, SOL_UDP, UDP_SEGMENT, &segment_bytes, sizeof(segment_bytes));
	return sendmsg(s->fd, &message, MSG_DONTWAIT) < 0 ? errno : 0;
}

/* Sends a datagram for each packet. Returns as sends_packets does. */
static int send_singly(struct sends *s, const struct sockaddr_in *to, const struct packets *packets, int tos)
{
	struct mmsghdr messages[MAX_BURST];
	struct iovec parts[MAX_BURST];
	union control room;
	uint32_t taken = 0;

	for (uint32_t i = 0; i < packets->count; i++) {
		parts[i] = part_of(packets, i);
		messages[i] = (struct mmsghdr){.msg_hdr = {
			.msg_name = (void *)to, .msg_namelen = sizeof(*to),
			.msg_iov = &parts[i], .msg_iovlen = 1
		}};
		if (tos)
			put_control(&messages[i].msg_hdr, &room, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
	}
	while (taken < packets->count) {
		int done = sendmmsg(s->fd, messages + taken, packets->count - taken, MSG_DONTWAIT);

		if (done > 0) {
			taken += done;
			continue;
		}
		switch (sends_meaning(errno)) {
		case MEANS_FULL:
			return taken;
		case MEANS_LOST:
			taken++;
			break;
		default:
			sends_note(s, errno);
			return -1;
		}
	}
	return taken;
}

/*
 * Sends up to MAX_BURST packets, with type of service `tos` if it is not 0. Returns how many have left or are
 * lost on a link that is down; the caller sends the others later. -1: nothing leaves any more, and `error`
 * has the reason.
 *
 * A kernel before 6.11 cuts no datagrams for a device without checksum offload: EIO, for every burst.
 */
int sends_packets(struct sends *s, const struct sockaddr_in *to, const struct packets *packets, int tos)
{
	int code;

	if (s->error)
		return -1;
	if (packets->count < 2 || tos || (s->single_until_ns && clock_ns() < s->single_until_ns))
		return send_singly(s, to, packets, tos);
	code = send_whole(s, to, packets);
	if (!code)
		return packets->count;
	if (code == EIO) {
		s->single_until_ns = clock_ns() + SINGLE_NS;
		return send_singly(s, to, packets, tos);
	}
	switch (sends_meaning(code)) {
	case MEANS_FULL:
		return 0;
	case MEANS_LOST:
		return packets->count;
	default:
		sends_note(s, code);
		return -1;
	}
}
