/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's half of docs/protocol.md: votes, windows, retransmission, and floats to lanes and back
 * (workloads/quantiser.py says the same in NumPy, and tests compare them bit by bit). No Python in here: the
 * process's interpreter runs on while this waits or works.
 *
 * One thread calls endpoint_run; another may call endpoint_submit. Compiled by setup.py, called by
 * workloads/endpoint.py through ctypes; what both know is in contract.h.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/types.h>

#include "../../bpf/wire.h"
#define RESULT_LANES /* as the fabric's MTU has them, told at run time */
#include "../../bpf/ring.h"
#include "contract.h"
#include "window.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

#define MAX_OPS 256	  /* vectors under way */
#define MAX_DATAGRAM 65507 /* before segmentation */
#define MAX_BURST 64	  /* segments that the kernel makes of one datagram */
#define WAKE_EVERY 32	  /* results per wake-up */
#define RTO_MIN_NS 5000000LL
#define SRTT_FIRST_NS 1000000LL
#define PAUSE_MIN_NS 500000LL /* between two repetitions: other workers may be later than this one */
#define RTO_MAX_NS 250000000LL
#define NEXT_RING(i) ((i) % MAX_OPS)

#define TOS_REPEATED (WIRE_DSCP_REPEATED << 2 | WIRE_ECT)

struct op {
	float *data;
	uint64_t length;
	int raw;     /* lanes as they are, modulo 2^32: no scale */
	int outcome; /* enum event */
	uint32_t told; /* workers with NaN or infinity, or votes that came */
	int scale;
	uint64_t first, count; /* data fragments; known after the vote */
};

struct endpoint {
	struct settings s;
	struct counters counters;
	uint8_t *ring;
	size_t result_bytes, packet_bytes, ring_bytes;
	struct wake *wake;
	uint8_t *packets, *votes; /* limit packets, vote_limit packets */
	int64_t *sent_at;	  /* by fragment % limit: last */
	int64_t *first_at;	  /* and first */
	struct sockaddr_in to;
	uint32_t data_slots, limit, vote_limit, burst;
	uint32_t bias;

	struct op ops[MAX_OPS];
	_Atomic uint64_t submitted;
	/* ops: vote pushed, vote taken, told to the caller; each at most the one before */
	uint64_t voted, known, reported;
	uint64_t pushing, taking;	 /* ops whose data come next; vectors without data may pass them by */
	uint64_t next_fragment;				  /* first one not given to an op */
	uint64_t sent, done;				  /* data fragments */
	int64_t vote_sent_at[MAX_OPS];

	struct window window;
	uint32_t notices_seen;
	uint64_t clean_from; /* since this fragment none was sent again */
	uint64_t waited; /* results of fragments before this one waited for an earlier one's */
	int64_t rto_ns, srtt_ns, rttvar_ns, progress_at, quiet_from;
	int64_t pace_ns, pace_at; /* between two results; since when it is being measured */
	uint64_t pace_from, pace_until;
	int silent, timed; /* expired timers in a row; whether a round trip was ever measured */
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* ---- floats and lanes ---- */

static void encode(const float *restrict values, uint32_t *restrict lanes, size_t count, int scale,
		   uint32_t bias)
{
	float factor = ldexpf(1.0f, scale);

	for (size_t i = 0; i < count; i++)
		lanes[i] = __builtin_bswap32((uint32_t)(int32_t)rintf(values[i] * factor) + bias);
}

static void decode(const uint32_t *restrict lanes, float *restrict values, size_t count, int scale,
		   uint32_t offset)
{
	double factor = ldexp(1.0, -scale);

	for (size_t i = 0; i < count; i++)
		values[i] = (float)((double)(int32_t)(__builtin_bswap32(lanes[i]) - offset) * factor);
}

static void swap(const uint32_t *restrict from, uint32_t *restrict to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] = __builtin_bswap32(from[i]);
}

static uint32_t largest_exponent(const float *values, size_t count)
{
	const uint32_t *bits = (const uint32_t *)values;
	uint32_t largest = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t magnitude = bits[i] & 0x7fffffff;

		largest = magnitude > largest ? magnitude : largest;
	}
	return largest >> 23;
}

void endpoint_encode(const float *values, uint32_t *lanes, uint64_t count, int32_t scale, uint32_t bias)
{
	encode(values, lanes, count, scale, bias);
}

void endpoint_decode(const uint32_t *lanes, float *values, uint64_t count, int32_t scale, uint32_t offset)
{
	decode(lanes, values, count, scale, offset);
}

/* ---- opening ---- */

static struct wire_header *packet(struct endpoint *e, uint64_t fragment)
{
	return (struct wire_header *)(e->packets + fragment % e->limit * e->packet_bytes);
}

static struct wire_header *vote_packet(struct endpoint *e, uint64_t vote)
{
	return (struct wire_header *)(e->votes + vote % e->vote_limit * e->packet_bytes);
}

static uint32_t *lanes_of(struct wire_header *h)
{
	return (uint32_t *)(h + 1);
}

static void fill_header(struct endpoint *e, struct wire_header *h)
{
	h->magic = htons(WIRE_MAGIC);
	h->version = WIRE_VERSION;
	h->op = WIRE_OP_PUSH;
	h->job = htons(e->s.job);
	h->worker = htons(e->s.worker);
	h->contributors = htons(1);
	h->generation = htonl(e->s.generation);
	h->count = htons(e->s.lanes);
	h->lanes = htons(e->s.lanes);
}

void endpoint_close(struct endpoint *e)
{
	if (!e)
		return;
	if (e->ring)
		munmap(e->ring, e->ring_bytes);
	if (e->wake)
		munmap(e->wake, sysconf(_SC_PAGESIZE));
	free(e->packets);
	free(e->votes);
	free(e->sent_at);
	free(e->first_at);
	free(e);
}

static void *mapped(int fd, size_t bytes)
{
	void *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? 0 : at;
}

/* 0 on failure, with errno set; EEXIST: another process of this generation has used the memory before. */
struct endpoint *endpoint_open(const struct settings *settings)
{
	struct endpoint *e = calloc(1, sizeof(*e));
	size_t page = sysconf(_SC_PAGESIZE);

	if (!e)
		return 0;
	e->s = *settings;
	e->result_bytes = sizeof(struct result) + 4 * e->s.lanes;
	e->packet_bytes = sizeof(struct wire_header) + 4 * e->s.lanes;
	e->ring_bytes = (e->result_bytes * e->s.ring_entries + page - 1) / page * page;
	e->data_slots = e->s.slots - e->s.vote_slots;
	e->limit = e->data_slots / 2;
	e->vote_limit = e->s.vote_slots / 2;
	e->burst = MAX_DATAGRAM / e->packet_bytes;
	if (e->burst > MAX_BURST)
		e->burst = MAX_BURST;
	e->bias = (1U << 31) / e->s.workers;
	e->ring = mapped(e->s.ring_fd, e->ring_bytes);
	e->wake = mapped(e->s.wake_fd, page);
	e->packets = calloc(e->limit, e->packet_bytes);
	e->votes = calloc(e->vote_limit, e->packet_bytes);
	e->sent_at = calloc(e->limit, sizeof(*e->sent_at));
	e->first_at = calloc(e->limit, sizeof(*e->first_at));
	if (!e->ring || !e->wake || !e->packets || !e->votes || !e->sent_at || !e->first_at)
		goto failed;
	if (__atomic_fetch_add(&e->wake->attached, 1, __ATOMIC_RELAXED)) {
		errno = EEXIST;
		goto failed;
	}
	for (uint32_t i = 0; i < e->limit; i++)
		fill_header(e, packet(e, i));
	for (uint32_t i = 0; i < e->vote_limit; i++)
		fill_header(e, vote_packet(e, i));
	e->to.sin_family = AF_INET;
	e->to.sin_addr.s_addr = e->s.address;
	e->to.sin_port = htons(e->s.port);
	window_open(&e->window, e->s.share && e->s.share < e->limit ? e->s.share : e->limit,
		    e->s.rate_mbps > 0);
	e->counters.window_min = e->limit;
	e->rto_ns = RTO_MIN_NS;
	e->srtt_ns = SRTT_FIRST_NS;
	return e;
failed:;
	int code = errno;

	endpoint_close(e);
	errno = code;
	return 0;
}

/*
 * The number of the vector, to be found in endpoint_run's answer; -1 if too many are under way. `data` is
 * replaced by the sum.
 */
int64_t endpoint_submit(struct endpoint *e, float *data, uint64_t length, int32_t raw)
{
	uint64_t number = atomic_load_explicit(&e->submitted, memory_order_relaxed);
	uint64_t one = 1;

	if (number - __atomic_load_n(&e->reported, __ATOMIC_ACQUIRE) >= MAX_OPS)
		return -1;
	e->ops[NEXT_RING(number)] =
		(struct op){.data = data, .length = length, .raw = raw, .outcome = EVENT_IDLE};
	atomic_store_explicit(&e->submitted, number + 1, memory_order_release);
	if (write(e->s.event_fd, &one, sizeof(one)) < 0)
		return -1;
	return (int64_t)number;
}

void endpoint_counters(struct endpoint *e, struct counters *out)
{
	e->counters.window = e->window.size;
	e->counters.rtt_us = e->srtt_ns / 1000.0;
	*out = e->counters;
}

/* ---- sending ---- */

/* Whether the kernel took all of them. */
static int send_packets(struct endpoint *e, struct wire_header *first, uint32_t count)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr aligned;
	} control = {0};
	struct iovec part = {.iov_base = first, .iov_len = count * e->packet_bytes};
	struct msghdr message = {
		.msg_name = &e->to, .msg_namelen = sizeof(e->to), .msg_iov = &part, .msg_iovlen = 1
	};

	if (count > 1) {
		struct cmsghdr *c = &control.aligned;

		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(uint16_t));
		c->cmsg_level = SOL_UDP;
		c->cmsg_type = UDP_SEGMENT;
		c->cmsg_len = CMSG_LEN(sizeof(uint16_t));
		*(uint16_t *)CMSG_DATA(c) = e->packet_bytes;
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

/* Whether a vector is so small that its vote carries everybody's values. */
static int is_carried(struct endpoint *e, struct op *op)
{
	return !op->raw && op->length * e->s.workers + VOTE_FIRST <= e->s.lanes;
}

/*
 * Where the lengths' sum is workers * length and so is that of their squares, all are the same. Of the
 * squares 26 bits, for the lane's sake.
 */
static uint32_t length_check(uint64_t length)
{
	return (uint32_t)(length * length * VOTE_CHECK_FACTOR >> VOTE_CHECK_SHIFT);
}

/* Votes go ahead of their vectors' turn, and wait in the same queues as data. */
static uint64_t votes_allowed(struct endpoint *e)
{
	uint64_t half = (uint64_t)e->window.size / 2;

	return half < 1 ? 1 : half < e->vote_limit ? half : e->vote_limit;
}

static void push_votes(struct endpoint *e)
{
	uint64_t submitted = atomic_load_explicit(&e->submitted, memory_order_acquire);

	for (; e->voted < submitted && e->voted - e->known < votes_allowed(e); e->voted++) {
		struct op *op = &e->ops[NEXT_RING(e->voted)];
		struct wire_header *h = vote_packet(e, e->voted);
		uint32_t *lanes = lanes_of(h);

		memset(lanes, 0, 4 * e->s.lanes);
		lanes[0] = htonl((uint32_t)op->length);
		lanes[1] = htonl(length_check(op->length));
		if (is_carried(e, op)) { /* small enough to go along: everybody gets everybody's values */
			for (uint64_t i = 0; i < op->length; i++) {
				uint32_t bits;

				memcpy(&bits, &op->data[i], 4);
				lanes[VOTE_FIRST + e->s.worker * op->length + i] = htonl(bits);
			}
		} else {
			lanes[VOTE_FIRST + (op->raw ? 0 : largest_exponent(op->data, op->length))] = htonl(1);
		}
		h->flags = 0;
		h->slot = htonl(e->s.slot_base + e->data_slots + e->voted % e->s.vote_slots);
		h->fragment = htonl((uint32_t)(e->s.first_vote + e->voted));
		send_packets(e, h, 1);
		e->vote_sent_at[NEXT_RING(e->voted)] = now_ns();
		e->counters.pushed++;
	}
}

static void write_fragment(struct endpoint *e, struct op *op, uint64_t fragment)
{
	struct wire_header *h = packet(e, fragment);
	uint32_t *lanes = lanes_of(h);
	uint64_t start = (fragment - op->first) * e->s.lanes, count = op->length - start;

	if (count > e->s.lanes)
		count = e->s.lanes;
	h->flags = 0;
	h->fragment = htonl((uint32_t)fragment);
	h->slot = htonl(e->s.slot_base + e->s.places[fragment % e->data_slots]);
	h->count = htons(count);
	if (op->raw)
		swap((uint32_t *)op->data + start, lanes, count);
	else
		encode(op->data + start, lanes, count, op->scale, e->bias);
	if (count < e->s.lanes)
		memset(lanes + count, 0, 4 * (e->s.lanes - count));
}

/*
 * Pushes what the window has room for, a burst at a time; small rests only if `all`. Whether anything was
 * pushed.
 */
static int push_data(struct endpoint *e, int all)
{
	uint64_t before = e->sent, room = (uint64_t)e->window.size, burst = e->burst;
	uint64_t votes = e->voted - e->known;

	room = room > votes ? room - votes : 1;
	if (e->s.rate_mbps > 0 && burst > room / 4 + 1) /* where queues may be shorter than a burst */
		burst = room / 4 + 1;
	if (e->pushing < e->reported) /* its entry may be another vector's by now */
		e->pushing = e->reported;
	for (;;) {
		uint64_t until = e->done + room, count = 0, left = 0;

		if (until > e->next_fragment)
			until = e->next_fragment;
		else
			e->window.full = 1;
		if (e->sent >= until)
			break;
		left = until - e->sent;
		if (left < burst / 2 && !all && until != e->next_fragment)
			break;
		for (; count < left && count < burst; count++) {
			uint64_t fragment = e->sent + count;
			struct op *op = &e->ops[NEXT_RING(e->pushing)];

			if (count > 0 && fragment % e->limit == 0)
				break;
			while (op->first + op->count <= fragment)
				op = &e->ops[NEXT_RING(++e->pushing)];
			write_fragment(e, op, fragment);
		}
		if (!send_packets(e, packet(e, e->sent), count))
			break; /* the socket is full: the same again later */
		int64_t now = now_ns();

		for (uint64_t i = 0; i < count; i++)
			e->sent_at[(e->sent + i) % e->limit] = e->first_at[(e->sent + i) % e->limit] = now;
		e->sent += count;
		e->counters.pushed += count;
	}
	return e->sent != before;
}

static void push_again(struct endpoint *e, struct wire_header *h, int64_t *sent_at, int64_t now)
{
	h->flags = WIRE_FLAG_RETRANSMIT;
	send_packets(e, h, 1);
	*sent_at = now;
	e->counters.retransmitted++;
}

/* ---- taking ---- */

static struct result *at_place(struct endpoint *e, uint32_t place)
{
	return (struct result *)(e->ring + place * e->result_bytes);
}

/* Fragment numbers have 32 bits on the wire and come round. */
static int has(struct result *r, uint64_t fragment)
{
	return __atomic_load_n(&r->sequence, __ATOMIC_ACQUIRE) == (uint64_t)(uint32_t)fragment + 1;
}

static struct result *vote_place(struct endpoint *e, uint64_t vote)
{
	return at_place(e, e->data_slots + vote % e->s.vote_slots);
}

static int has_data(struct endpoint *e, uint64_t fragment)
{
	return has(at_place(e, e->s.places[fragment % e->data_slots]), fragment);
}

static void sum_carried(struct endpoint *e, struct op *op, const uint32_t *lanes)
{
	op->outcome = EVENT_DONE;
	for (uint32_t w = 0; w < e->s.workers; w++)
		for (uint64_t i = 0; i < op->length; i++)
			if ((ntohl(lanes[VOTE_FIRST + w * op->length + i]) >> 23 & 0xff) == VOTE_SPECIAL) {
				op->outcome = EVENT_NOT_FINITE;
				op->told++;
				break;
			}
	for (uint64_t i = 0; i < op->length && op->outcome == EVENT_DONE; i++) {
		double sum = 0;

		for (uint32_t w = 0; w < e->s.workers; w++) {
			uint32_t bits = ntohl(lanes[VOTE_FIRST + w * op->length + i]);
			float value;

			memcpy(&value, &bits, 4);
			sum += value;
		}
		op->data[i] = (float)sum;
	}
}

static void count_votes(struct endpoint *e, struct op *op, const uint32_t *lanes)
{
	uint32_t votes = 0, largest = 0;
	int log_workers = 0;

	for (uint32_t i = 0; i < VOTE_EXPONENTS; i++) {
		uint32_t here = ntohl(lanes[VOTE_FIRST + i]);

		votes += here;
		largest = here ? i : largest;
	}
	op->told = votes;
	if (votes != e->s.workers) {
		op->outcome = EVENT_DISAGREE;
	} else if (largest == VOTE_SPECIAL) {
		op->outcome = EVENT_NOT_FINITE;
		op->told = ntohl(lanes[VOTE_FIRST + VOTE_SPECIAL]);
	} else {
		while ((1U << log_workers) < e->s.workers)
			log_workers++;
		op->scale = 30 - log_workers - ((int)largest - 126);
		op->scale = op->scale > VOTE_SCALE_MAX ? VOTE_SCALE_MAX : op->scale;
		op->count = (op->length + e->s.lanes - 1) / e->s.lanes;
		if (!op->count)
			op->outcome = EVENT_DONE;
	}
}

/* What the frames under way take on this worker's link at its rate of now: no result comes sooner. */
static int64_t on_link_ns(struct endpoint *e)
{
	double rate_mbps = e->s.rate_now ? *(volatile const double *)e->s.rate_now : 0;

	if (!(rate_mbps > 0))
		rate_mbps = e->s.rate_mbps;
	if (!(rate_mbps > 0))
		return 0;
	return (int64_t)((e->sent - e->done + 1) * (WIRE_FRAME_HEADERS_BYTES + e->packet_bytes) * 8000 /
			 rate_mbps);
}

/*
 * No result waits longer than this in queues: a window at the pace of the results. What took longer waited
 * for somebody's repetition, which is made of round trips again: without a bound each loss would make them,
 * and the next wait, longer.
 */
static int64_t longest_wait_ns(struct endpoint *e)
{
	return SRTT_FIRST_NS + (int64_t)e->window.size * e->pace_ns;
}

/*
 * A round's time by its results. It falls at once, and rises by a sixteenth at most: a pause is none of the
 * network's.
 */
static void measure_pace(struct endpoint *e, int64_t now)
{
	int64_t pace;

	if (e->done < e->pace_until)
		return;
	pace = (now - e->pace_at) / (int64_t)(e->done - e->pace_from);
	if (e->pace_ns && pace > e->pace_ns + e->pace_ns / 16)
		pace = e->pace_ns + e->pace_ns / 16;
	e->pace_ns = pace + 1;
	e->pace_at = now;
	e->pace_from = e->done;
	e->pace_until = e->sent > e->done ? e->sent : e->done + 1;
}

/*
 * RFC 6298, from the first push, of a fragment since which nothing was sent again: others wait for workers
 * that a loss held up, whose timers are made of such waits. And of one that was sent again in vain, since no
 * repetition completed its sum, nobody's: as in RFC 3522, that tells a switch that is slower than the timer
 * from a lost packet.
 */
static void measure_round_trip(struct endpoint *e, uint64_t fragment, int64_t rtt)
{
	int64_t longest = longest_wait_ns(e), off;

	if (at_place(e, e->s.places[fragment % e->data_slots])->flags & RESULT_REPEATED)
		return;
	if (fragment < e->clean_from && !(packet(e, fragment)->flags & WIRE_FLAG_RETRANSMIT))
		return;
	rtt = rtt < longest ? rtt : longest;
	off = rtt > e->srtt_ns ? rtt - e->srtt_ns : e->srtt_ns - rtt;
	if (e->timed) {
		e->rttvar_ns += (off - e->rttvar_ns) / 4;
		e->srtt_ns += (rtt - e->srtt_ns) / 8;
	} else {
		e->timed = 1;
		e->srtt_ns = rtt;
		e->rttvar_ns = rtt / 2;
	}
}

static int64_t rto(struct endpoint *e)
{
	int64_t slow = e->srtt_ns + 4 * e->rttvar_ns;

	return slow > RTO_MIN_NS ? slow : RTO_MIN_NS;
}

/*
 * When a worker that hears nothing probes, which costs a packet: after two round trips (RFC 8985, section
 * 7.2). Their deviation is not in it: where links lose, it is made of others' repairs, and every timer would
 * wait for those.
 */
static int64_t probe_ns(struct endpoint *e)
{
	return 2 * e->srtt_ns > RTO_MIN_NS ? 2 * e->srtt_ns : RTO_MIN_NS;
}

static int take_votes(struct endpoint *e)
{
	uint64_t before = e->known;

	for (; e->known < e->voted; e->known++) {
		struct op *op = &e->ops[NEXT_RING(e->known)];
		struct result *r = vote_place(e, e->known);

		if (!has(r, e->s.first_vote + e->known))
			break;
		if (ntohl(r->lanes[0]) != (uint32_t)(op->length * e->s.workers) ||
		    ntohl(r->lanes[1]) != length_check(op->length) * e->s.workers)
			op->outcome = EVENT_DISAGREE;
		else if (is_carried(e, op))
			sum_carried(e, op, r->lanes);
		else
			count_votes(e, op, r->lanes);
		op->first = e->next_fragment;
		e->next_fragment += op->count;
	}
	return e->known != before;
}

static void note_cut(struct endpoint *e, int cut)
{
	e->counters.reductions += cut;
	if (cut && e->window.size < e->counters.window_min)
		e->counters.window_min = e->window.size;
}

static int take_data(struct endpoint *e)
{
	uint64_t before = e->done;
	int64_t now;

	if (e->taking < e->reported)
		e->taking = e->reported;
	for (; e->done < e->sent && has_data(e, e->done); e->done++) {
		struct op *op;
		struct result *r = at_place(e, e->s.places[e->done % e->data_slots]);
		uint64_t start, count;

		while (e->ops[NEXT_RING(e->taking)].first + e->ops[NEXT_RING(e->taking)].count <= e->done)
			e->taking++;
		op = &e->ops[NEXT_RING(e->taking)];
		start = (e->done - op->first) * e->s.lanes;
		count = op->length - start;
		if (count > e->s.lanes)
			count = e->s.lanes;
		if (op->raw)
			swap(r->lanes, (uint32_t *)op->data + start, count);
		else
			decode(r->lanes, op->data + start, count, op->scale, e->s.workers * e->bias);
		if (e->done + 1 == op->first + op->count)
			op->outcome = EVENT_DONE;
		e->counters.marked += !!(r->flags & RESULT_MARKED);
		note_cut(e, window_take(&e->window, r->flags & RESULT_MARKED, e->done + 1, e->sent));
	}
	if (e->done == before)
		return 0;
	now = now_ns();
	measure_pace(e, now);
	if (e->done > e->waited)
		measure_round_trip(e, e->done - 1, now - e->first_at[(e->done - 1) % e->limit]);
	e->counters.window_sum += e->window.size;
	e->counters.window_samples++;
	*(volatile uint64_t *)e->s.progress = e->done;
	return 1;
}

/* ---- losses ---- */

static void heed_notices(struct endpoint *e)
{
	uint32_t notices = __atomic_load_n(&e->wake->notices, __ATOMIC_RELAXED);

	if (notices == e->notices_seen)
		return;
	e->counters.notices += notices - e->notices_seen;
	e->notices_seen = notices;
	note_cut(e, window_notice(&e->window));
}
/*
 * Pushes again what is missing before a result that came: links keep order, and so do sums, so that the first
 * time it is lost for certain. Then once a round trip, in silence twice as seldom after each timer; answers
 * in how many ns the next one is due, -1 if nothing is missing there.
 */
static int64_t close_gaps(struct endpoint *e)
{
	int64_t now, next = -1, pause = e->srtt_ns;
	uint64_t last = e->sent;

	while (last > e->done + 1 && !has_data(e, last - 1))
		last--;
	if (last <= e->done + 1)
		return next;
	e->waited = last;
	if (pause < PAUSE_MIN_NS)
		pause = PAUSE_MIN_NS;
	pause = e->silent > 8 || pause << e->silent > e->rto_ns ? e->rto_ns : pause << e->silent;
	now = now_ns();
	for (uint64_t f = e->done; f < last; f++) {
		int64_t *sent_at = &e->sent_at[f % e->limit], due;

		if (has_data(e, f))
			continue;
		due = packet(e, f)->flags & WIRE_FLAG_RETRANSMIT ? *sent_at + pause - now : 0;
		if (due <= 0) {
			due = pause;
			push_again(e, packet(e, f), sent_at, now);
			e->clean_from = e->sent;
			note_cut(e, window_lost(&e->window));
		}
		next = next < 0 || due < next ? due : next;
	}
	return next;
}

/*
 * The same for votes: at once where a later one's result is there; by itself, since data may flow on
 * meanwhile, after a while.
 */
static void repeat_votes(struct endpoint *e)
{
	uint64_t last = e->voted;
	int64_t now, alone = 2 * e->rto_ns > RTO_MAX_NS / 4 ? 2 * e->rto_ns : RTO_MAX_NS / 4;

	if (e->known == e->voted)
		return;
	while (last > e->known + 1 && !has(vote_place(e, last - 1), e->s.first_vote + last - 1))
		last--;
	now = now_ns();
	for (uint64_t v = e->known; v < e->voted; v++) {
		int64_t *sent_at = &e->vote_sent_at[NEXT_RING(v)];
		int64_t pause_ns = v + 1 < last ? e->srtt_ns : alone;

		if (!has(vote_place(e, v), e->s.first_vote + v) && now - *sent_at > pause_ns)
			push_again(e, vote_packet(e, v), sent_at, now);
	}
}

/* Results to come. */
static uint64_t missing(struct endpoint *e)
{
	uint64_t count = e->voted - e->known;

	for (uint64_t f = e->done; f < e->sent; f++)
		count += !has_data(e, f);
	return count;
}

/*
 * The last one first, a probe as in RFC 8985, section 7: its result tells of all gaps before it, and
 * close_gaps needs no timer for them.
 */
static void expire(struct endpoint *e)
{
	uint64_t limit = 1ULL << (3 * e->silent < 7 ? 3 * e->silent : 7), pushed = 0, last = e->sent;
	int64_t now = now_ns();

	e->counters.timeouts++;
	e->silent++;
	e->quiet_from = now;
	e->clean_from = e->sent;
	for (uint64_t v = e->known; v < e->voted; v++)
		push_again(e, vote_packet(e, v), &e->vote_sent_at[NEXT_RING(v)], now);
	while (last > e->done && has_data(e, last - 1))
		last--;
	if (last > e->done) {
		push_again(e, packet(e, last - 1), &e->sent_at[(last - 1) % e->limit], now);
		pushed++;
	}
	for (uint64_t f = e->done; f + 1 < last && pushed < limit; f++)
		if (!has_data(e, f)) {
			push_again(e, packet(e, f), &e->sent_at[f % e->limit], now);
			pushed++;
		}
	if (e->rto_ns < RTO_MAX_NS)
		e->rto_ns = e->rto_ns * 2 < RTO_MAX_NS ? e->rto_ns * 2 : RTO_MAX_NS;
}

/*
 * Sleeps until results come (`outstanding` are to come), a vector is submitted, or the timer expires; whether
 * it was not the timer.
 */
static int wait_for_more(struct endpoint *e, uint64_t outstanding, int64_t timeout_ns)
{
	uint64_t submitted = atomic_load(&e->submitted), drained, awaited;
	struct pollfd fds[2] = {
		{.fd = e->s.socket_fd, .events = POLLIN},
		{.fd = e->s.event_fd, .events = POLLIN},
	};
	uint32_t received = __atomic_load_n(&e->wake->received, __ATOMIC_ACQUIRE);
	struct timespec timeout = {.tv_sec = timeout_ns / 1000000000LL, .tv_nsec = timeout_ns % 1000000000LL};
	char byte;
	int ready;

	if (e->voted > e->known) /* a vote decides what can be pushed: any result may be it */
		outstanding = 1;
	awaited = outstanding < 2 * WAKE_EVERY ? (outstanding + 1) / 2 : WAKE_EVERY;
	__atomic_store_n(&e->wake->wake_at, received + (uint32_t)awaited, __ATOMIC_SEQ_CST);
	/* what came between the last look and now will not wake us */
	if (__atomic_load_n(&e->wake->received, __ATOMIC_SEQ_CST) != received || has_data(e, e->done) ||
	    (e->known < e->voted && has(vote_place(e, e->known), e->s.first_vote + e->known)))
		return 1;
	if (submitted > e->voted && e->voted - e->known < votes_allowed(e))
		return 1;
	ready = ppoll(fds, 2, &timeout, 0);
	if (ready <= 0)
		return __atomic_load_n(&e->wake->received, __ATOMIC_ACQUIRE) != received;
	e->counters.wakes++;
	if (fds[0].revents)
		while (recv(e->s.socket_fd, &byte, 1, MSG_DONTWAIT) >= 0)
			;
	if (fds[1].revents && read(e->s.event_fd, &drained, sizeof(drained)) < 0)
		return 1;
	return 1;
}

/*
 * Works until a vector is done (its number is in *number, what went wrong in *told), nothing is left to do,
 * or a timer expired in silence.
 */
int endpoint_run(struct endpoint *e, uint64_t *number, uint32_t *told, int64_t *silent_ns)
{
	if (!e->progress_at) /* the caller was away; that was no silence */
		e->progress_at = e->quiet_from = now_ns();
	for (;;) {
		int moved = take_votes(e);
		uint64_t outstanding;
		int64_t gap_ns, timeout_ns;

		moved |= take_data(e);
		heed_notices(e);
		if (moved) {
			e->progress_at = e->quiet_from = now_ns();
			e->silent = 0;
			e->rto_ns = rto(e);
		}
		push_votes(e);
		if (push_data(e, !moved))
			continue;
		if (e->reported < e->known && e->ops[NEXT_RING(e->reported)].outcome != EVENT_IDLE) {
			struct op *op = &e->ops[NEXT_RING(e->reported)];
			int outcome = op->outcome;

			*number = e->reported;
			*told = op->told;
			e->progress_at = 0;
			__atomic_store_n(&e->reported, e->reported + 1, __ATOMIC_RELEASE);
			return outcome;
		}
		if (moved)
			continue;
		if (e->reported == atomic_load_explicit(&e->submitted, memory_order_acquire)) {
			e->progress_at = 0;
			return EVENT_IDLE;
		}
		repeat_votes(e);
		gap_ns = close_gaps(e);
		outstanding = gap_ns < 0 ? e->sent - e->done + (e->voted - e->known) : missing(e);
		timeout_ns = (e->silent ? e->rto_ns : probe_ns(e)) + on_link_ns(e);
		if (wait_for_more(e, outstanding, gap_ns >= 0 && gap_ns < timeout_ns ? gap_ns : timeout_ns))
			continue;
		if (now_ns() - e->quiet_from < timeout_ns)
			continue;
		*silent_ns = now_ns() - e->progress_at;
		expire(e);
		return EVENT_QUIET;
	}
}
