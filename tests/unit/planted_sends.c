/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into endpoints and timers for tests with --wrap: a test says what the kernel answers to each call,
 * and the datagrams that are taken do leave.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>

#include "../../workloads/native/sends_meaning.h"

/*
 * Says how many of `count` datagrams the kernel takes, or the errno that it answers, negative. The first one
 * is at `first`; with `is_burst` the kernel is to cut it.
 */
int (*planted_send)(const void *first, unsigned int count, int is_burst);

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
int __real_sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags);

/* The datagrams that are taken; none: errno says why. */
static unsigned int taken(const struct msghdr *first, unsigned int count, int is_burst)
{
	int answer = planted_send ? planted_send(first->msg_iov->iov_base, count, is_burst) : (int)count;

	if (answer > 0)
		return (unsigned int)answer < count ? (unsigned int)answer : count;
	errno = -answer;
	return 0;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	return taken(message, 1, 1) ? __real_sendmsg(fd, message, flags) : -1;
}

int __wrap_sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
	unsigned int those = taken(&messages->msg_hdr, count, 0);

	return those ? __real_sendmmsg(fd, messages, those, flags) : -1;
}

int planted_meaning(int code)
{
	return sends_meaning(code);
}
