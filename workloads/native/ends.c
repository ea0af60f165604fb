// SPDX-License-Identifier: Apache-2.0
/*
 * An end of an owned tree, a worker's or the owner's (docs/luwu-network.md). A thread of its own runs it, in
 * the process that submits requests or in another. It contains no Python.
 *
 * Compiled by setup.py, called by workloads/luwu/nic.py through ctypes; ends_contract.h has what both share.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ends.h"

#define MAX_DATAGRAM 65507 /* before segmentation */

void ends_close(struct end *e)
{
	if (!e)
		return;
	if (e->memory)
		munmap(e->memory, e->memory_bytes);
	free(e->gotten.room);
	free(e->gotten.held);
	free(e->sending);
	free(e->coming);
	free(e->values);
	free(e);
}

/* Returns 0 on failure, with errno set. */
struct end *ends_open(const struct end_settings *settings)
{
	struct end *e = calloc(1, sizeof(*e));
	struct stat facts;
	int on = 1, code;
	void *at;

	if (!e)
		return 0;
	e->s = *settings;
	e->sends.fd = e->s.socket_fd;
	e->packet_bytes = sizeof(struct wire_header) + 4 * (size_t)e->s.lanes;
	e->to.sin_family = AF_INET;
	e->to.sin_addr.s_addr = e->s.address;
	e->to.sin_port = htons(e->s.port);
	e->bias = (1U << 31) / e->s.workers;
	e->s.burst = ends_least(ends_least(e->s.burst, ENDS_BURST), MAX_DATAGRAM / e->packet_bytes);
	if (e->s.role == ROLE_WORKER) {
		e->data_op = WIRE_OP_PUSH, e->beat_op = WIRE_OP_PARAMETER_BEAT;
		e->data_in = WIRE_OP_PARAMETERS, e->beat_in = WIRE_OP_GRADIENT_BEAT;
	} else {
		e->data_op = WIRE_OP_PARAMETERS, e->beat_op = WIRE_OP_GRADIENT_BEAT;
		e->data_in = WIRE_OP_SUM, e->beat_in = WIRE_OP_PARAMETER_BEAT;
	}
	e->gotten.every_ns = e->s.beat_us * 1000LL;
	e->gotten.room = calloc(e->s.depth, e->packet_bytes);
	e->gotten.held = calloc(e->s.depth, sizeof(*e->gotten.held));
	e->sending = calloc(ENDS_BURST, e->packet_bytes);
	e->coming = calloc(ENDS_BURST, e->packet_bytes);
	e->values = calloc(e->s.lanes, sizeof(*e->values));
	if (!e->gotten.room || !e->gotten.held || !e->sending || !e->coming || !e->values)
		goto failed;
	if (fstat(e->s.memory_fd, &facts) < 0)
		goto failed;
	e->memory_bytes = facts.st_size;
	at = mmap(0, e->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, e->s.memory_fd, 0);
	if (at == MAP_FAILED)
		goto failed;
	e->memory = at;
	if (setsockopt(e->s.socket_fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof(on)) < 0)
		goto failed;
	return e;
failed:
	code = errno;
	ends_close(e);
	errno = code;
	return 0;
}

/* Sleeps until a packet comes, a request is submitted, or a timer expires. */
static void sleep_on(struct end *e, int64_t now, int64_t began_ns)
{
	int64_t at = given_timer_ns(e), left;
	struct pollfd awaited[] = {{e->s.socket_fd, POLLIN, 0}, {e->s.event_fd, POLLIN, 0}};
	struct timespec limit;
	uint64_t asked;

	at = at < e->gotten.beat_ns ? at : e->gotten.beat_ns;
	left = at > now ? at - now : 0;
	limit = (struct timespec){left / 1000000000, left % 1000000000};
	e->memory->busy_ns = ends_now_ns(CLOCK_THREAD_CPUTIME_ID) - began_ns;
	if (ppoll(awaited, 2, &limit, 0) < 0)
		sends_note(&e->sends, errno);
	e->memory->events++;
	if (awaited[1].revents && read(e->s.event_fd, &asked, sizeof(asked)) < 0)
		sends_note(&e->sends, errno);
}

/* Carries out requests until ends_stop, or until sending fails for good. */
void ends_run(struct end *e)
{
	int64_t began_ns = ends_now_ns(CLOCK_THREAD_CPUTIME_ID);

	__atomic_store_n(&e->memory->running, 1, __ATOMIC_RELEASE);
	while (!e->sends.error && !__atomic_load_n(&e->memory->stop, __ATOMIC_ACQUIRE)) {
		int64_t now = ends_now_ns(CLOCK_MONOTONIC);
		int done = packets_come(e, now);

		done |= gotten_take(e);
		gotten_beat(e, now);
		done |= given_open(e);
		done |= given_send(e, now);
		done |= given_measure(e);
		if (!done)
			sleep_on(e, now, began_ns);
	}
	__atomic_store_n(&e->memory->error, e->sends.error, __ATOMIC_RELEASE);
	__atomic_store_n(&e->memory->running, 0, __ATOMIC_RELEASE);
}
