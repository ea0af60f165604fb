/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP aggregator and its workers, as lean as sockets allow: the aggregator takes a chunk from each worker
 * in turn, adds it while it is in the cache, and sends the sum to all. Compiled and run by
 * tests/bench/aggregators.py.
 *
 *   tcp_sum sum ADDRESS PORT WORKERS CHUNK_BYTES
 *       prints "ready", and at the end its CPU seconds and the gradients that it received
 *   tcp_sum work ADDRESS PORT WORKERS CHUNK_BYTES CHUNKS
 *       pushes ones and takes sums
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_WORKERS 64

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static double cpu_s(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void add(float *restrict sum, const float *restrict part, size_t count)
{
	for (size_t i = 0; i < count; i++)
		sum[i] += part[i];
}

static int take(int fd, void *into, size_t bytes)
{
	ssize_t got = recv(fd, into, bytes, MSG_WAITALL);

	if (got < 0)
		fail("receive");
	return (size_t)got == bytes;
}

static void put(int fd, const char *from, size_t bytes)
{
	while (bytes) {
		ssize_t sent = send(fd, from, bytes, MSG_NOSIGNAL);

		if (sent < 0)
			fail("send");
		from += sent;
		bytes -= sent;
	}
}

static void sum(struct sockaddr_in *at, int workers, size_t chunk)
{
	float *total = malloc(chunk), *part = malloc(chunk);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fds[MAX_WORKERS], one = 1;
	unsigned long received = 0;
	double before;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)at, sizeof(*at)) || listen(listener, workers))
		fail("listen");
	puts("ready");
	fflush(stdout);
	for (int w = 0; w < workers; w++) {
		fds[w] = accept(listener, 0, 0);
		if (fds[w] < 0)
			fail("accept");
		setsockopt(fds[w], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
	before = cpu_s();
	for (;; received += workers * (chunk / 4)) {
		if (!take(fds[0], total, chunk))
			break;
		for (int w = 1; w < workers; w++) {
			if (!take(fds[w], part, chunk))
				exit(1);
			add(total, part, chunk / 4);
		}
		for (int w = 0; w < workers; w++)
			put(fds[w], (char *)total, chunk);
	}
	printf("%f %lu\n", cpu_s() - before, received);
}

static void work(struct sockaddr_in *at, int workers, size_t chunk, unsigned long chunks)
{
	float *ones = malloc(chunk), *sums = malloc(chunk);
	size_t to_send = chunk * chunks, to_take = chunk * chunks, sent_of = 0, taken_of = 0;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	for (size_t i = 0; i < chunk / 4; i++)
		ones[i] = 1.0f;
	if (connect(fd, (struct sockaddr *)at, sizeof(*at)))
		fail("connect");
	fcntl(fd, F_SETFL, O_NONBLOCK);
	while (to_take) {
		struct pollfd p = {.fd = fd, .events = POLLIN | (to_send ? POLLOUT : 0)};
		ssize_t n;

		if (poll(&p, 1, -1) < 0)
			fail("poll");
		if (p.revents & POLLOUT && to_send) {
			n = send(fd, (char *)ones + sent_of, chunk - sent_of, MSG_NOSIGNAL);
			if (n < 0 && errno != EAGAIN)
				fail("send");
			if (n > 0) {
				to_send -= n;
				sent_of = (sent_of + n) % chunk;
			}
		}
		if (p.revents & POLLIN) {
			n = recv(fd, (char *)sums + taken_of, chunk - taken_of, 0);
			if (n == 0 || (n < 0 && errno != EAGAIN))
				fail("receive");
			if (n > 0) {
				to_take -= n;
				taken_of = (taken_of + n) % chunk;
				if (!taken_of && (sums[0] != workers || sums[chunk / 4 - 1] != workers)) {
					fprintf(stderr, "a sum of %d ones is %f\n", workers, sums[0]);
					exit(1);
				}
			}
		}
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};

	if (argc < 6)
		return 2;
	at.sin_addr.s_addr = inet_addr(argv[2]);
	at.sin_port = htons(atoi(argv[3]));
	if (atoi(argv[4]) < 1 || atoi(argv[4]) > MAX_WORKERS)
		return 2;
	if (!strcmp(argv[1], "sum"))
		sum(&at, atoi(argv[4]), atol(argv[5]));
	else
		work(&at, atoi(argv[4]), atol(argv[5]), atol(argv[6]));
	return 0;
}
