// SPDX-License-Identifier: Apache-2.0
/*
 * The submitter's side of requests: they are written into the memory, and their completion word is waited
 * for. One thread at a time submits to a stream.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ends.h"

uint64_t ends_head_bytes(void)
{
	return sizeof(struct end_memory) + 2 * sizeof(struct end_stream) +
	       2 * ENDS_REQUESTS * sizeof(struct end_request);
}

/* The size of the settings in this library: the caller may have been changed since. */
uint64_t ends_settings_bytes(void)
{
	return sizeof(struct end_settings);
}

static void wake(int event_fd)
{
	uint64_t once = 1;

	if (write(event_fd, &once, sizeof(once)) < 0)
		return; /* the counter is at its limit: the end is awake */
}

/* Submits a request. Returns its number in the stream, for ends_wait; -1 if too many are under way. */
int64_t ends_submit(struct end_memory *m, int event_fd, uint32_t direction, uint32_t state, uint32_t format,
		    uint64_t offset, uint64_t elements, int32_t scale, double factor)
{
	struct end_stream *stream = ends_stream(m, direction);
	uint64_t number = stream->submitted;
	struct end_request *r = ends_request(m, direction, number);

	if (number - __atomic_load_n(&stream->done, __ATOMIC_ACQUIRE) >= ENDS_REQUESTS)
		return -1;
	*r = (struct end_request){
		.format = format, .offset = offset, .elements = elements, .scale = scale, .factor = factor
	};
	__atomic_store_n(&r->state, state, __ATOMIC_RELEASE);
	__atomic_store_n(&stream->submitted, number + 1, __ATOMIC_RELEASE);
	wake(event_fd);
	return (int64_t)number;
}

/* Sets the scale of a request whose largest exponent was measured. */
void ends_scale(struct end_memory *m, int event_fd, uint64_t number, int32_t scale)
{
	struct end_request *r = ends_request(m, DIRECTION_GIVEN, number);
	uint32_t measured = STATE_MEASURED;

	r->scale = scale;
	__atomic_compare_exchange_n(&r->state, &measured, STATE_READY, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	wake(event_fd);
}

/* Waits until a request's state is at least `least`, or for limit_ns. Returns the state. */
uint32_t ends_wait(struct end_memory *m, uint32_t direction, uint64_t number, uint32_t least,
		   uint64_t limit_ns)
{
	struct end_request *r = ends_request(m, direction, number);
	int64_t until = ends_now_ns(CLOCK_MONOTONIC) + (int64_t)limit_ns, left;

	for (;;) {
		uint32_t state = __atomic_load_n(&r->state, __ATOMIC_ACQUIRE);

		left = until - ends_now_ns(CLOCK_MONOTONIC);
		if (state >= least || left <= 0)
			return state;

		struct timespec limit = {left / 1000000000, left % 1000000000};

		syscall(SYS_futex, &r->state, FUTEX_WAIT, state, &limit, 0, 0);
	}
}

void ends_stop(struct end_memory *m, int event_fd)
{
	__atomic_store_n(&m->stop, 1, __ATOMIC_RELEASE);
	wake(event_fd);
}

/* ---- the end's side ---- */

void request_settle(struct end_request *r, uint32_t state)
{
	__atomic_store_n(&r->state, state, __ATOMIC_RELEASE);
	syscall(SYS_futex, &r->state, FUTEX_WAKE, INT_MAX, 0, 0, 0);
}
