/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calendar queues (docs/configuration.md, Timetables): a thread that holds frames for other units while a
 * timetable runs, and sends each in a slot in which a circuit leads to its unit. Units' switches redirect all
 * such frames here (bpf/calendar.h), so that this thread alone knows what a link has under way. A frame
 * begins before its slot ends; the time by which it ends later is taken from the link's next slot.
 *
 * A frame leaves with a pass in the place of its source address: its unit, the port by which it leaves, and
 * when its slot ends. Programs send it back here where it is late, so that a machine that is busy loses
 * nothing.
 *
 * By which ports frames leave in which matching the routes of the timetable say (testbed/ocs/routing.py), for
 * kinds of frames that its routing treats differently each its own.
 *
 * Compiled by setup.py, called by testbed/dataplanes/xdp/calendar_queues.py through ctypes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "calendar.h"

#ifndef SOURCES_DIGEST
#define SOURCES_DIGEST "none"
#endif

/* by which testbed/native.py knows what it was compiled from */
__attribute__((used)) static const char sources_digest[] = SOURCES_DIGEST;

#define PRIORITY 1
#define HEADERS_BYTES 42 /* of Ethernet, IPv4 and UDP */
#define IDLE_NS 2000000LL /* between looks at a timetable that is to begin or has ended */
#define MOST_BATCHES 16	  /* that are received before what waits is served */
#define ROOM_FOR_RETURNS 64
#define MOST_BYTES (1ULL << 29) /* that wait in all queues */
#define DSCP_CS1 8
#define DSCP_LE 1

/* ---- frames that come ---- */

/* As spread.h has it for what is no gradient. */
static uint32_t bucket_of(const uint8_t *data, uint32_t length)
{
	uint32_t from, to, number;
	uint16_t ports[2];

	memcpy(&from, data + 26, 4);
	memcpy(&to, data + 30, 4);
	number = ntohl(from) + ntohl(to);
	if ((data[23] == 6 || data[23] == 17) && !(data[20] & 0x3f) && !data[21] && length >= 38) {
		memcpy(ports, data + 34, 4);
		number += ntohs(ports[0]) + ntohs(ports[1]);
	}
	return number * SPREAD_FACTOR >> (32 - SPREAD_BITS);
}

/* Congestion experienced (RFC 3168), if its sender reacts to it; the header's checksum by RFC 1624. */
static int mark(uint8_t *data)
{
	uint32_t sum;
	uint16_t check;

	if (!(data[15] & 3) || (data[15] & 3) == 3)
		return 0;
	memcpy(&check, data + 24, 2);
	sum = (uint16_t)~ntohs(check) + (uint32_t)(uint16_t)~(data[14] << 8 | data[15]);
	data[15] |= 3;
	sum += (uint32_t)(data[14] << 8 | data[15]);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	check = htons((uint16_t)~sum);
	memcpy(data + 24, &check, 2);
	return 1;
}

static void append(struct frame **first, struct frame **last, struct frame *frame)
{
	frame->next = 0;
	if (*first)
		(*last)->next = frame;
	else
		*first = frame;
	*last = frame;
}

/* What a frame that comes back has had of MOST_RETURNS; 0: it is new. */
static uint32_t returns_of(const uint8_t *data)
{
	uint32_t latest;

	memcpy(&latest, data + 8, sizeof(latest));
	return data[7] == WAITS_AGAIN ? (latest & MOST_RETURNS) + 1 : 0;
}

/* The kind of a unit's frame, as far as the routing treats kinds differently. */
static uint32_t kind_of(struct calendar *c, uint32_t unit, const uint8_t *data)
{
	uint32_t dscp = data[15] >> 2;

	if (is_result(data))
		return FRAMES_RESULT;
	if (data[28] != unit && c->kinds & (1 << FRAMES_CARRIED | 1 << FRAMES_SPARE))
		return FRAMES_CARRIED;
	if (c->kinds & 1 << FRAMES_BULK && (dscp == DSCP_CS1 || dscp == DSCP_LE))
		return FRAMES_BULK;
	return FRAMES_OWN;
}

static int has_queues(struct calendar *c, uint32_t unit)
{
	if (!c->queues[unit])
		c->queues[unit] = calloc(UNITS, sizeof(struct queue));
	return c->queues[unit] != 0;
}

static void take_in(struct calendar *c, const uint8_t *data, uint32_t length, int64_t now)
{
	uint32_t unit = data[6], goal = goal_of(data), returns = returns_of(data), kind;
	struct counts *counts;
	struct queue *queue;
	struct line *line;
	struct frame *frame = 0;

	if (!has_queues(c, unit))
		return;
	queue = c->queues[unit] + goal;
	kind = kind_of(c, unit, data);
	line = queue->lines + kind;
	counts = &queue->counts;
	if (returns && counts->sent)
		counts->sent--;
	if (!c->plan || !has(c->reached[unit], goal)) {
		counts->unlit++;
		return;
	}
	if (line->waiting < c->packets + (returns ? ROOM_FOR_RETURNS : 0) && returns <= MOST_RETURNS &&
	    c->bytes < MOST_BYTES)
		frame = malloc(sizeof(*frame) + length);
	if (!frame) {
		counts->dropped++;
		return;
	}
	memcpy(frame->data, data, length);
	frame->length = length;
	frame->since_ns = now;
	frame->bucket = bucket_of(data, length);
	frame->returns = returns;
	if (returns) {
		counts->missed++;
		append(&line->back_first, &line->back_last, frame);
	} else {
		counts->held++;
		if (line->waiting >= c->mark_from)
			counts->marked += mark(frame->data);
		append(&line->first, &line->last, frame);
	}
	line->waiting++;
	line->bytes += length;
	counts->waiting++;
	counts->waiting_bytes += length;
	c->bytes += length;
	include(c->backlog[unit][kind], goal);
}

/* A result that comes from its place: a frame for each unit that its tree has workers in. */
static void take_result(struct calendar *c, uint8_t *data, uint32_t length, int64_t now)
{
	struct wire_header *inc = (void *)(data + HEADERS_BYTES);
	struct entry_key key = {.owner = data[28], .job = ntohs(inc->job), .tree = inc->tree};
	struct unit_set units;

	data[6] = data[28];
	if (bpf_map(BPF_MAP_LOOKUP_ELEM, c->trees_fd, &key, &units)) { /* it is not to wait any more */
		if (has_queues(c, key.owner))
			c->queues[key.owner][key.owner].counts.unlit++;
		return;
	}
	for (uint32_t goal = 1; goal < UNITS; goal++) {
		if (!has((const uint64_t *)units.bits, goal))
			continue;
		data[5] = (uint8_t)goal;
		take_in(c, data, length, now);
	}
}

static void take(struct calendar *c, uint8_t *data, uint32_t length, int64_t now)
{
	if (length < HEADERS_BYTES || length > c->frame_bytes || data[12] != 8 || data[13])
		return;
	if (is_result(data) && data[7] != WAITS_AGAIN && length >= HEADERS_BYTES + sizeof(struct wire_header))
		take_result(c, data, length, now);
	else if (is_result(data) || data[30] == 10)
		take_in(c, data, length, now);
}

static int receive(struct calendar *c)
{
	int count = recvmmsg(c->socket_fd, c->in, BATCH, MSG_DONTWAIT, 0);
	int64_t now = now_ns();

	for (int i = 0; i < count; i++)
		take(c, c->in_parts[i].iov_base, c->in[i].msg_len, now);
	return count;
}

/* ---- the thread ---- */

static void wait_until(struct calendar *c, int64_t due)
{
	struct pollfd files[] = {{c->socket_fd, POLLIN, 0}, {c->wake_fd, POLLIN, 0}};
	int64_t left = due - now_ns();
	struct timespec timeout;

	if (left <= 0)
		return;
	timeout = (struct timespec){left / 1000000000LL, left % 1000000000LL};
	ppoll(files, 2, &timeout, 0);
	if (files[1].revents) {
		uint64_t number;

		if (read(c->wake_fd, &number, sizeof(number)) < 0)
			return;
	}
}

/* The kernel's count starts anew with each reading. */
static void count_overrun(struct calendar *c)
{
	struct tpacket_stats stats;
	socklen_t length = sizeof(stats);

	if (getsockopt(c->socket_fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length))
		return;
	pthread_mutex_lock(&c->lock);
	c->overrun += stats.tp_drops;
	pthread_mutex_unlock(&c->lock);
}

static uint64_t start_of(struct calendar *c)
{
	struct timetable table;
	uint32_t zero = 0;

	return bpf_map(BPF_MAP_LOOKUP_ELEM, c->timetable_fd, &zero, &table) ? 0 : table.start_ns;
}

static void *run(void *of)
{
	struct calendar *c = of;
	int64_t looked_ns = 0, due = 0;
	uint64_t start_ns = 0;
	struct sched_param priority = {.sched_priority = PRIORITY};

	pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
	while (!__atomic_load_n(&c->is_ending, __ATOMIC_RELAXED) && !c->error) {
		int64_t now;

		wait_until(c, due);
		now = now_ns();
		if (!start_ns || now - looked_ns > IDLE_NS) { /* does another run, or this one still? */
			uint64_t starts_ns = start_of(c);

			if (start_ns && !starts_ns)
				c->ended_ns = now;
			if (starts_ns != start_ns && read_plan(c)) /* again at the next look */
				starts_ns = 0;
			start_ns = starts_ns;
			looked_ns = now;
			count_overrun(c);
		}
		if (c->seen_serial != __atomic_load_n(&c->rate_serial, __ATOMIC_ACQUIRE))
			take_rates(c);
		for (int batches = 0; batches < MOST_BATCHES && receive(c) == BATCH; batches++)
			;
		now = now_ns();
		if (start_ns && now < (int64_t)start_ns)
			due = (int64_t)start_ns;
		else if (c->plan)
			due = start_ns ? serve_all(c, now) : flush(c, now);
		else
			due = now + 1000000000LL;
	}
	return 0;
}

/* ---- for Python ---- */

/*
 * Starts the thread, for `packets` frames of a unit for another, of `frame_bytes` at most with their headers.
 * The descriptors of maps are the caller's, who keeps them open. 0 and errno: it failed.
 */
struct calendar *calendar_open(int socket_fd, int timetable_fd, int routes_fd, int circuits_fd, int trees_fd,
			       uint32_t packets, uint32_t frame_bytes)
{
	struct calendar *c = calloc(1, sizeof(*c));
	int code;

	if (!c)
		return 0;
	c->socket_fd = socket_fd;
	c->timetable_fd = timetable_fd;
	c->routes_fd = routes_fd;
	c->circuits_fd = circuits_fd;
	c->trees_fd = trees_fd;
	c->packets = packets;
	c->mark_from = packets / 4 ? packets / 4 : 1;
	c->frame_bytes = frame_bytes;
	pthread_mutex_init(&c->lock, 0);
	c->wake_fd = eventfd(0, EFD_CLOEXEC);
	c->buffers = malloc((size_t)BATCH * frame_bytes);
	for (int i = 0; c->buffers && i < BATCH; i++) {
		c->in_parts[i] = (struct iovec){c->buffers + (size_t)i * frame_bytes, frame_bytes};
		c->in[i].msg_hdr.msg_iov = c->in_parts + i;
		c->in[i].msg_hdr.msg_iovlen = 1;
		c->out[i].msg_hdr.msg_iov = c->out_parts + i;
		c->out[i].msg_hdr.msg_iovlen = 1;
	}
	code = c->wake_fd < 0 || !c->buffers ? errno : pthread_create(&c->thread, 0, run, c);
	if (!code)
		return c;
	if (c->wake_fd >= 0)
		close(c->wake_fd);
	free(c->buffers);
	free(c);
	errno = code;
	return 0;
}

/* Sets the rate of the link at a device; 0: it has none. */
int calendar_rate(struct calendar *c, uint32_t ifindex, uint64_t bytes_per_s)
{
	int at;

	pthread_mutex_lock(&c->lock);
	at = rate_at(c, ifindex);
	if (at >= 0) {
		c->rates[at].ifindex = ifindex;
		c->rates[at].bytes_per_s = bytes_per_s;
		__atomic_add_fetch(&c->rate_serial, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&c->lock);
	return at < 0 ? -1 : 0;
}

/* Sets the delay of the link at a device, and by how much more or less that of each frame differs. */
int calendar_delay(struct calendar *c, uint32_t ifindex, int64_t delay_ns, int64_t jitter_ns)
{
	int at;

	pthread_mutex_lock(&c->lock);
	at = rate_at(c, ifindex);
	if (at >= 0) {
		c->rates[at].ifindex = ifindex;
		c->rates[at].delay_ns = delay_ns;
		c->rates[at].jitter_ns = jitter_ns;
		__atomic_add_fetch(&c->rate_serial, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&c->lock);
	return at < 0 ? -1 : 0;
}

/* Copies the counts of a unit's frames for each unit, 256 of them; 0: it had none. */
int calendar_counts(struct calendar *c, uint32_t unit, struct counts *counts)
{
	struct queue *queues = unit < UNITS ? c->queues[unit] : 0;

	for (uint32_t goal = 0; queues && goal < UNITS; goal++)
		counts[goal] = queues[goal].counts;
	return queues != 0;
}

uint64_t calendar_overrun(struct calendar *c)
{
	uint64_t overrun;

	count_overrun(c);
	pthread_mutex_lock(&c->lock);
	overrun = c->overrun;
	pthread_mutex_unlock(&c->lock);
	return overrun;
}

int calendar_error(struct calendar *c)
{
	return c->error;
}

void calendar_close(struct calendar *c)
{
	uint64_t one = 1;

	__atomic_store_n(&c->is_ending, 1, __ATOMIC_RELAXED);
	if (write(c->wake_fd, &one, sizeof(one)) < 0)
		return;
	pthread_join(c->thread, 0);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		for (uint32_t goal = 0; c->queues[unit] && goal < UNITS; goal++) {
			struct queue *queue = c->queues[unit] + goal;

			for (uint32_t kind = 0; kind < KINDS; kind++)
				while (first_of(queue->lines + kind))
					free(take_out(c, unit, goal, kind, 0));
		}
		free(c->queues[unit]);
	}
	close(c->wake_fd);
	free(c->plan);
	free(c->ways);
	free(c->neighbours);
	free(c->links);
	free(c->buffers);
	free(c);
}
