/* SPDX-License-Identifier: Apache-2.0 */
/* How compiled endpoints send: a burst in one call if the kernel can cut it. */
#ifndef SENDS_H
#define SENDS_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#include "sends_meaning.h"

#define MAX_BURST 64 /* segments that the kernel makes of one datagram */

/* Packets of equal length that lie `stride` bytes apart. */
struct packets {
	const void *first;
	size_t bytes, stride;
	uint32_t count;
};

struct sends {
	int fd;
	int error; /* errno of the first failure that does not pass; 0: none so far */
	int64_t single_until_ns; /* send packets singly until then: the kernel has refused to cut a burst */
};

int sends_packets(struct sends *s, const struct sockaddr_in *to, const struct packets *packets, int tos);
void sends_note(struct sends *s, int code);
void sends_drain(struct sends *s);

#endif
