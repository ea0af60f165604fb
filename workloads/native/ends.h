/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of an end of an owned tree (docs/luwu-network.md), the memory that it shares with the process
 * that submits requests, and the functions that the end's files provide to each other.
 */
#ifndef ENDS_H
#define ENDS_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <linux/types.h>

#include "../../bpf/wire.h"
#include "ends_contract.h"
#include "sends.h"

#define ENDS_BURST 32 /* the most packets received or sent at once */

/* ---- submitting requests: any process that has mapped the memory ---- */

static inline struct end_stream *ends_stream(struct end_memory *m, uint32_t direction)
{
	return (struct end_stream *)(m + 1) + direction;
}

static inline struct end_request *ends_request(struct end_memory *m, uint32_t direction, uint64_t number)
{
	struct end_request *first = (struct end_request *)(ends_stream(m, DIRECTION_GOTTEN) + 1);

	return first + direction * ENDS_REQUESTS + number % ENDS_REQUESTS;
}

uint64_t ends_head_bytes(void);
int64_t ends_submit(struct end_memory *m, int event_fd, uint32_t direction, uint32_t state, uint32_t format,
		    uint64_t offset, uint64_t elements, int32_t scale, double factor);
void ends_scale(struct end_memory *m, int event_fd, uint64_t number, int32_t scale);
uint32_t ends_wait(struct end_memory *m, uint32_t direction, uint64_t number, uint32_t least,
		   uint64_t limit_ns);
void ends_stop(struct end_memory *m, int event_fd);

/* ---- the end ---- */

/*
 * The stream that is sent; its values stay in the requests' buffers until acknowledged. Fragments are counted
 * from 0 in 64 bits.
 */
struct given {
	uint64_t next, ack, credit, end;
	uint64_t again, until; /* sent again before `next` */
	uint64_t recover; /* `next` when the stream went back */
	uint64_t run;	  /* how many of these are sent at once */
	uint64_t measured;		    /* requests with a known exponent, or that need none */
	uint64_t opened;		    /* requests whose fragments are numbered */
	uint64_t starts[ENDS_REQUESTS + 1]; /* the first fragment of each request, and the end */
	uint64_t at;			    /* the request of `next`, or an earlier one */
	uint64_t measuring;		    /* elements measured of request number `measured` */
	uint64_t zeroed;		    /* fragments before this one are counted in `zeroed` */
	int64_t since_ns, pace_ns;
};

/* The stream that is received; packets are stored until a request takes them. */
struct gotten {
	uint8_t *room;	/* `depth` packets; fragment s is at s modulo depth */
	uint64_t *held; /* by place in `room`: fragment + 1 */
	uint64_t ack, taken, lanes; /* lanes filled of the present request */
	uint64_t told_ack, told_taken;
	int64_t beat_ns, every_ns;
	int told_full, tell;
};

struct end {
	struct end_settings s;
	struct end_memory *memory;
	size_t memory_bytes, packet_bytes;
	struct sockaddr_in to;
	struct sends sends;
	uint32_t bias;
	uint8_t data_op, beat_op; /* the operations that it sends */
	uint8_t data_in, beat_in; /* that it receives */
	struct given given;
	struct gotten gotten;
	uint8_t *sending, *coming;
	float *values; /* of a packet, as binary32 */
};

static inline int64_t ends_now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline struct end_stream *stream_of(struct end *e, uint32_t direction)
{
	return ends_stream(e->memory, direction);
}

static inline struct end_request *request_of(struct end *e, uint32_t direction, uint64_t number)
{
	return ends_request(e->memory, direction, number);
}

static inline uint8_t *buffer_of(struct end *e, const struct end_request *r)
{
	return (uint8_t *)e->memory + r->offset;
}

/* The lanes of a request: one per number, or per four bytes. */
static inline uint64_t lanes_in(const struct end_request *r)
{
	return r->format == FORMAT_BYTES ? (r->elements + 3) / 4 : r->elements;
}

/* The fragment with this number on the wire that is within 2^31 of `near`. */
static inline uint64_t widened(uint64_t near, uint32_t wire)
{
	return near + (int64_t)(int32_t)(wire - (uint32_t)near);
}

static inline uint64_t ends_least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ends_requests.c */
void request_settle(struct end_request *r, uint32_t state);

/* ends_values.c */
uint32_t values_exponent(const void *values, uint32_t format, uint64_t from, uint64_t count, float *scratch);
uint32_t values_give(struct end *e, const struct end_request *r, uint64_t from, uint32_t count,
		     uint32_t *lanes);
void values_take(struct end *e, const struct end_request *r, uint64_t from, uint32_t count,
		 const uint32_t *lanes);

/* ends_packets.c */
void packet_open(struct end *e, struct wire_header *h, uint8_t op);
uint32_t packet_send(struct end *e, void *first, size_t bytes, uint32_t count);
int packets_come(struct end *e, int64_t now);

/* ends_given.c: these return whether they did anything */
int given_measure(struct end *e);
int given_open(struct end *e);
int given_send(struct end *e, int64_t now);
void given_hear(struct end *e, const struct wire_header *h, int64_t now);
int64_t given_timer_ns(const struct end *e);

/* ends_gotten.c */
void gotten_receive(struct end *e, const struct wire_header *h);
int gotten_take(struct end *e);
int gotten_beat(struct end *e, int64_t now);

#endif
