/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket programs that the microbenchmarks compare XDP with, as lean as sockets allow, and the timer of
 * packets. Compiled by native.py; addresses are IPv4, sizes bytes.
 *
 *   sum PORT WORKERS CHUNK FILE         adds a chunk from each worker, sends the sum to the first
 *   push ADDRESS PORT CHUNK INTERVAL_NS sends ones; discards what it receives
 *   copy PORT RECEIVERS CHUNK INTERVAL_NS FILE   sends every chunk to each receiver
 *   pull ADDRESS PORT                   discards what it receives
 *   answer PORT                         adds its own gradients to each packet and sends it back
 *   time tcp|udp ADDRESS INTERVAL_NS COUNT LIMIT_NS FILE    sends packets, records the round trips
 *
 * FILE is mapped: it has the number of bytes received, or sent, until now. For `time` it has the round-trip
 * times in nanoseconds; `time` prints how many packets it sent, how many were answered, and the nanoseconds
 * that it took. Servers print "ready" when they listen.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "micro.h"

#define MAX_PEERS 64
#define SPIN_NS 100000 /* a shorter wait spins instead of sleeping */

typedef unsigned long long u64;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static u64 now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void wait_until(u64 due)
{
	struct timespec t = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000};
	u64 now = now_ns();

	if (due > now + SPIN_NS)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
	while (now_ns() < due)
		;
}

static void *mapped(const char *path, size_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	void *at;

	if (fd < 0 || ftruncate(fd, bytes))
		fail(path);
	at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		fail(path);
	return at;
}

/* Receive exactly `bytes`. Return 0 if the other end has closed. */
static int take(int fd, void *into, size_t bytes)
{
	ssize_t got = recv(fd, into, bytes, MSG_WAITALL);

	return got == (ssize_t)bytes;
}

static int put(int fd, const char *from, size_t bytes)
{
	while (bytes) {
		ssize_t sent = send(fd, from, bytes, MSG_NOSIGNAL);

		if (sent < 0)
			return 0;
		from += sent;
		bytes -= sent;
	}
	return 1;
}

static struct sockaddr_in address_of(const char *address, const char *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};

	at.sin_addr.s_addr = inet_addr(address);
	return at;
}

static void serve(const char *port, int *fds, int count)
{
	struct sockaddr_in at = address_of("0.0.0.0", port);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, count))
		fail("listen");
	puts("ready");
	fflush(stdout);
	for (int i = 0; i < count; i++) {
		fds[i] = accept(listener, 0, 0);
		if (fds[i] < 0)
			fail("accept");
		setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
}

static int connected(const char *address, const char *port)
{
	struct sockaddr_in at = address_of(address, port);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (connect(fd, (struct sockaddr *)&at, sizeof(at)))
		fail("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void add(int *restrict sum, const int *restrict part, size_t count)
{
	for (size_t i = 0; i < count; i++)
		sum[i] += part[i];
}

static void sum(const char *port, int workers, size_t chunk, const char *file)
{
	int fds[MAX_PEERS], *total = malloc(chunk), *part = malloc(chunk);
	volatile u64 *taken = mapped(file, sizeof(*taken));

	serve(port, fds, workers);
	for (;;) {
		if (!take(fds[0], total, chunk))
			return;
		for (int w = 1; w < workers; w++) {
			if (!take(fds[w], part, chunk))
				return;
			add(total, part, chunk / sizeof(int));
		}
		if (total[0] != workers || total[chunk / sizeof(int) - 1] != workers) {
			fprintf(stderr, "a sum of %d ones is %d\n", workers, total[0]);
			exit(1);
		}
		*taken += workers * chunk;
		if (!put(fds[0], (char *)total, chunk))
			return;
	}
}

static void *drain(void *fd)
{
	static char into[1 << 18];

	while (recv(*(int *)fd, into, sizeof(into), 0) > 0)
		;
	return 0;
}

static void push(int fd, size_t chunk, u64 interval)
{
	int *ones = malloc(chunk);
	u64 due = now_ns();
	pthread_t thread;

	for (size_t i = 0; i < chunk / sizeof(int); i++)
		ones[i] = 1;
	if (pthread_create(&thread, 0, drain, &fd))
		fail("thread");
	for (;; due += interval) {
		if (interval)
			wait_until(due);
		if (!put(fd, (char *)ones, chunk))
			return;
	}
}

static void copy(const char *port, int receivers, size_t chunk, u64 interval, const char *file)
{
	volatile u64 *sent = mapped(file, sizeof(*sent));
	char *from = calloc(1, chunk);
	int fds[MAX_PEERS];
	u64 due;

	serve(port, fds, receivers);
	for (due = now_ns();; due += interval) {
		if (interval)
			wait_until(due);
		for (int r = 0; r < receivers; r++)
			if (!put(fds[r], from, chunk))
				return;
		*sent += receivers * chunk;
	}
}

static void answer(const char *port)
{
	struct gradients packet;
	int own[LANES] = {0}, fd;

	serve(port, &fd, 1);
	while (take(fd, &packet, sizeof(packet))) {
		add((int *)packet.lanes, own, LANES);
		if (!put(fd, (char *)&packet, sizeof(packet)))
			return;
	}
}

struct timing {
	int fd;
	int is_tcp;
	unsigned int *delays;
	volatile u64 taken;
	u64 count;
};

static void *take_answers(void *argument)
{
	struct timing *t = argument;
	struct gradients packet;

	for (; t->taken < t->count; t->taken++) {
		if (t->is_tcp ? !take(t->fd, &packet, sizeof(packet))
			      : recv(t->fd, &packet, sizeof(packet), 0) != sizeof(packet))
			break;
		t->delays[t->taken] = now_ns() - packet.sent_ns;
	}
	return 0;
}

static void time_packets(int is_tcp, const char *address, u64 interval, u64 count, u64 limit,
		const char *file)
{
	char port[8];
	struct timing t = {.is_tcp = is_tcp, .count = count, .delays = mapped(file, count * sizeof(int))};
	struct gradients packet = {.magic = MICRO_MAGIC, .workers = 1};
	struct sockaddr_in at;
	u64 due, begin, sent;
	pthread_t thread;

	snprintf(port, sizeof(port), "%d", MICRO_PORT);
	at = address_of(address, port);
	if (is_tcp) {
		t.fd = connected(address, port);
	} else {
		t.fd = socket(AF_INET, SOCK_DGRAM, 0);
		if (connect(t.fd, (struct sockaddr *)&at, sizeof(at)))
			fail("connect");
	}
	if (pthread_create(&thread, 0, take_answers, &t))
		fail("thread");
	begin = due = now_ns();
	for (sent = 0; sent < count && now_ns() < begin + limit; sent++, due += interval) {
		wait_until(due);
		packet.segment = sent;
		packet.sent_ns = now_ns();
		if (is_tcp ? !put(t.fd, (char *)&packet, sizeof(packet))
			   : send(t.fd, &packet, sizeof(packet), 0) < 0)
			break;
	}
	u64 took = now_ns() - begin;
	usleep(100000); /* for the last answers */
	printf("%llu %llu %llu\n", sent, (u64)t.taken, took);
	exit(0);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "sum") && argc == 6)
		sum(argv[2], atoi(argv[3]), atol(argv[4]), argv[5]);
	else if (!strcmp(what, "push") && argc == 6)
		push(connected(argv[2], argv[3]), atol(argv[4]), atoll(argv[5]));
	else if (!strcmp(what, "copy") && argc == 7)
		copy(argv[2], atoi(argv[3]), atol(argv[4]), atoll(argv[5]), argv[6]);
	else if (!strcmp(what, "pull") && argc == 4)
		drain(&(int){connected(argv[2], argv[3])});
	else if (!strcmp(what, "answer") && argc == 3)
		answer(argv[2]);
	else if (!strcmp(what, "time") && argc == 8)
		time_packets(!strcmp(argv[2], "tcp"), argv[3], atoll(argv[4]), atoll(argv[5]), atoll(argv[6]),
			     argv[7]);
	else
		return 2;
	return 0;
}
