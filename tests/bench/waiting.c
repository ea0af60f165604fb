/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other ways for the endpoint to wait than to sleep at once; tests/bench/tried.py compiles it in with
 * -Dppoll=waiting_ppoll.
 * SPIN_US: looks at its descriptors again and again for so long.
 * BUSY_POLL_US: has the kernel poll the device for so long (SO_BUSY_POLL).
 */
#define _GNU_SOURCE
#undef ppoll
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#ifndef SPIN_US
#define SPIN_US 0
#endif
#ifndef BUSY_POLL_US
#define BUSY_POLL_US 0
#endif

static long long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

int waiting_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	static int prepared;
	long long until = now_us() + SPIN_US;
	char byte;
	int ready;

	if (BUSY_POLL_US && !prepared) {
		struct timeval shortest = {.tv_usec = 1};
		int us = BUSY_POLL_US;

		prepared = 1;
		if (setsockopt(fds[0].fd, SOL_SOCKET, SO_BUSY_POLL, &us, sizeof(us)) ||
		    setsockopt(fds[0].fd, SOL_SOCKET, SO_RCVTIMEO, &shortest, sizeof(shortest)))
			return -1;
	}
	if (BUSY_POLL_US)
		recv(fds[0].fd, &byte, 1, MSG_PEEK); /* a blocking call polls the device first */
	while (SPIN_US && now_us() < until) {
		ready = poll(fds, count, 0);
		if (ready)
			return ready;
	}
	return ppoll(fds, count, timeout, mask);
}
