/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The delay of links where the kernel has no netem: a thread that holds the frames of delayed directions, and
 * sends each into the token bucket behind its link when its time has come. Frames come over one device pair,
 * with the number of their direction as a VLAN tag (bpf/link_delay.c).
 *
 * Compiled by setup.py, called by testbed/dataplanes/xdp/link_delays.py through ctypes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../../../../workloads/native/sends_meaning.h"

#ifndef SOURCES_DIGEST
#define SOURCES_DIGEST "none"
#endif

/* by which testbed/native.py knows what it was compiled from */
__attribute__((used)) static const char sources_digest[] = SOURCES_DIGEST;

#define BATCH 32
#define DIRECTIONS 65536 /* a number is a VLAN tag's 16 bits */
#define PRIORITY 1
#define MOST_BYTES (1ULL << 30) /* that are held for all links */
#define AGES_NS 1000000000LL	/* between two readings of the socket's losses */

struct frame {
	int64_t due_ns;
	uint64_t order; /* of frames with equal times: the first that came is the first that leaves */
	uint32_t length;
	uint16_t number;
	uint8_t data[];
};

struct direction {
	uint32_t ifindex; /* where its frames leave; 0: it never had a delay */
	int64_t delay_ns, jitter_ns;
	uint64_t room_bytes, held_bytes;
	uint64_t received, dropped; /* for lack of room here or in the link's device */
};

struct delays {
	pthread_t thread;
	pthread_mutex_t lock; /* of `directions` and `overrun` */
	struct direction *directions;
	uint64_t overrun; /* frames that came while the socket had no room */
	int is_ending, wake_fd, socket_fd;
	int error; /* errno of a send that no later one makes good, which ends the thread */
	uint32_t frame_bytes;
	/* a heap: a frame leaves before those of the positions 2n + 1 and 2n + 2 */
	struct frame **heap;
	size_t count, room;
	uint64_t bytes, order, random;
	/* batches */
	uint8_t *buffers;
	struct iovec parts[BATCH];
	struct mmsghdr messages[BATCH];
	union {
		char bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
		struct cmsghdr aligned;
	} control[BATCH];
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* ---- the heap ---- */

static int leaves_before(const struct frame *a, const struct frame *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static int put(struct delays *d, struct frame *frame)
{
	size_t at = d->count;

	if (at == d->room) {
		size_t room = d->room ? 2 * d->room : 1024;
		struct frame **heap = realloc(d->heap, room * sizeof(*heap));

		if (!heap)
			return -1;
		d->heap = heap;
		d->room = room;
	}
	d->count++;
	for (; at && leaves_before(frame, d->heap[(at - 1) / 2]); at = (at - 1) / 2)
		d->heap[at] = d->heap[(at - 1) / 2];
	d->heap[at] = frame;
	return 0;
}

static struct frame *take(struct delays *d)
{
	struct frame *first = d->heap[0], *last = d->heap[--d->count];
	size_t at = 0, below;

	for (; (below = 2 * at + 1) < d->count; at = below) {
		if (below + 1 < d->count && leaves_before(d->heap[below + 1], d->heap[below]))
			below++;
		if (leaves_before(last, d->heap[below]))
			break;
		d->heap[at] = d->heap[below];
	}
	d->heap[at] = last;
	return first;
}

/* ---- frames that come ---- */

static int number_of(struct msghdr *message)
{
	struct cmsghdr *header = CMSG_FIRSTHDR(message);
	struct tpacket_auxdata data;

	for (; header; header = CMSG_NXTHDR(message, header)) {
		if (header->cmsg_level != SOL_PACKET || header->cmsg_type != PACKET_AUXDATA)
			continue;
		memcpy(&data, CMSG_DATA(header), sizeof(data));
		return data.tp_status & TP_STATUS_VLAN_VALID ? data.tp_vlan_tci : -1;
	}
	return -1;
}

/* A number from -span to span, by xorshift64*. */
static int64_t varied(struct delays *d, int64_t span)
{
	uint64_t x = d->random;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	d->random = x;
	return (int64_t)((__uint128_t)(x * 0x2545F4914F6CDD1DULL) * (uint64_t)(2 * span + 1) >> 64) - span;
}

/* Called with the lock. */
static void hold(struct delays *d, int number, const uint8_t *data, uint32_t length, int64_t now)
{
	struct direction *direction = d->directions + number;
	struct frame *frame = 0;

	direction->received++;
	if (direction->ifindex && length <= d->frame_bytes && d->bytes + length <= MOST_BYTES &&
	    direction->held_bytes + length <= direction->room_bytes)
		frame = malloc(sizeof(*frame) + length);
	if (!frame) {
		direction->dropped++;
		return;
	}
	frame->due_ns = now + direction->delay_ns;
	if (direction->jitter_ns)
		frame->due_ns += varied(d, direction->jitter_ns);
	frame->order = d->order++;
	frame->length = length;
	frame->number = (uint16_t)number;
	memcpy(frame->data, data, length);
	if (put(d, frame)) {
		direction->dropped++;
		free(frame);
		return;
	}
	direction->held_bytes += length;
	d->bytes += length;
}

static int receive(struct delays *d)
{
	int64_t now;
	int count;

	for (int i = 0; i < BATCH; i++)
		d->messages[i].msg_hdr.msg_controllen = sizeof(d->control[i].bytes);
	count = recvmmsg(d->socket_fd, d->messages, BATCH, MSG_DONTWAIT, 0);
	now = now_ns();
	pthread_mutex_lock(&d->lock);
	for (int i = 0; i < count; i++) {
		int number = number_of(&d->messages[i].msg_hdr);

		if (number >= 0) /* else it is the kernel's own, sent over the pair */
			hold(d, number, d->parts[i].iov_base, d->messages[i].msg_len, now);
	}
	pthread_mutex_unlock(&d->lock);
	return count;
}

/* ---- frames that leave ---- */

static void send_frame(struct delays *d, struct frame *frame)
{
	struct sockaddr_ll to = {.sll_family = AF_PACKET};
	const struct sockaddr *address = (void *)&to;
	struct direction *direction = d->directions + frame->number;
	long sent;

	pthread_mutex_lock(&d->lock);
	to.sll_ifindex = (int)direction->ifindex;
	direction->held_bytes -= frame->length;
	pthread_mutex_unlock(&d->lock);
	do
		sent = sendto(d->socket_fd, frame->data, frame->length, MSG_DONTWAIT, address, sizeof(to));
	while (sent < 0 && errno == EINTR);
	if (sent >= 0 || errno == ENOBUFS) /* ENOBUFS: the link's queue is full, and has counted it */
		return;
	if (sends_meaning(errno) == MEANS_FAILED && errno != ENXIO)
		d->error = errno;
	pthread_mutex_lock(&d->lock);
	direction->dropped++;
	pthread_mutex_unlock(&d->lock);
}

/* Sends what is due; returns when the next is, or 0: nothing is held. */
static int64_t send_due(struct delays *d)
{
	while (d->count && d->heap[0]->due_ns <= now_ns() && !d->error) {
		struct frame *frame = take(d);

		d->bytes -= frame->length;
		send_frame(d, frame);
		free(frame);
	}
	return d->count ? d->heap[0]->due_ns : 0;
}

/* ---- the thread ---- */

static void wait_until(struct delays *d, int64_t due)
{
	struct pollfd files[] = {{d->socket_fd, POLLIN, 0}, {d->wake_fd, POLLIN, 0}};
	int64_t left = due ? due - now_ns() : AGES_NS;
	struct timespec timeout;

	if (left <= 0)
		return;
	timeout = (struct timespec){left / 1000000000LL, left % 1000000000LL};
	ppoll(files, 2, &timeout, 0);
}

/* The kernel's count starts anew with each reading. */
static void count_overrun(struct delays *d)
{
	struct tpacket_stats stats;
	socklen_t length = sizeof(stats);

	if (getsockopt(d->socket_fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length))
		return;
	pthread_mutex_lock(&d->lock);
	d->overrun += stats.tp_drops;
	pthread_mutex_unlock(&d->lock);
}

static void *run(void *of)
{
	struct delays *d = of;
	struct sched_param priority = {.sched_priority = PRIORITY};
	int64_t due = 0;

	pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
	while (!__atomic_load_n(&d->is_ending, __ATOMIC_RELAXED) && !d->error) {
		wait_until(d, due);
		while (receive(d) == BATCH && (!d->count || d->heap[0]->due_ns > now_ns()))
			;
		due = send_due(d);
	}
	return 0;
}

/* ---- for Python ---- */

/*
 * Starts the thread, for frames of `frame_bytes` at most with their headers and tags. The socket is the
 * caller's, who keeps it open. 0 and errno: it failed.
 */
struct delays *delays_open(int socket_fd, uint32_t frame_bytes)
{
	struct delays *d = calloc(1, sizeof(*d));
	int code;

	if (!d)
		return 0;
	d->socket_fd = socket_fd;
	d->frame_bytes = frame_bytes;
	d->random = 0x9E3779B97F4A7C15ULL;
	pthread_mutex_init(&d->lock, 0);
	d->wake_fd = eventfd(0, EFD_CLOEXEC);
	d->buffers = malloc((size_t)BATCH * frame_bytes);
	d->directions = calloc(DIRECTIONS, sizeof(*d->directions));
	for (int i = 0; d->buffers && i < BATCH; i++) {
		d->parts[i] = (struct iovec){d->buffers + (size_t)i * frame_bytes, frame_bytes};
		d->messages[i].msg_hdr.msg_iov = d->parts + i;
		d->messages[i].msg_hdr.msg_iovlen = 1;
		d->messages[i].msg_hdr.msg_control = d->control[i].bytes;
	}
	if (d->wake_fd < 0 || !d->buffers || !d->directions)
		code = errno;
	else
		code = pthread_create(&d->thread, 0, run, d);
	if (!code)
		return d;
	if (d->wake_fd >= 0)
		close(d->wake_fd);
	free(d->buffers);
	free(d->directions);
	free(d);
	errno = code;
	return 0;
}

/* Sets the delay of a direction, for frames that come from now on; they leave by the device `ifindex`. */
void delays_set(struct delays *d, uint16_t number, uint32_t ifindex, int64_t delay_ns, int64_t jitter_ns,
		uint64_t room_bytes)
{
	struct direction *direction = d->directions + number;

	pthread_mutex_lock(&d->lock);
	direction->ifindex = ifindex;
	direction->delay_ns = delay_ns;
	direction->jitter_ns = jitter_ns;
	direction->room_bytes = room_bytes;
	pthread_mutex_unlock(&d->lock);
}

/* Writes how many of a direction's frames came, and how many were dropped for lack of room. */
void delays_counts(struct delays *d, uint16_t number, uint64_t *received, uint64_t *dropped)
{
	pthread_mutex_lock(&d->lock);
	*received = d->directions[number].received;
	*dropped = d->directions[number].dropped;
	pthread_mutex_unlock(&d->lock);
}

/* Counts the frames, of whatever direction, that came faster than the thread took them. */
uint64_t delays_overrun(struct delays *d)
{
	uint64_t overrun;

	count_overrun(d);
	pthread_mutex_lock(&d->lock);
	overrun = d->overrun;
	pthread_mutex_unlock(&d->lock);
	return overrun;
}

int delays_error(struct delays *d)
{
	return d->error;
}

void delays_close(struct delays *d)
{
	uint64_t number = 1;

	__atomic_store_n(&d->is_ending, 1, __ATOMIC_RELAXED);
	if (write(d->wake_fd, &number, sizeof(number)) < 0)
		return;
	pthread_join(d->thread, 0);
	for (size_t i = 0; i < d->count; i++)
		free(d->heap[i]);
	close(d->wake_fd);
	free(d->heap);
	free(d->buffers);
	free(d->directions);
	free(d);
}
