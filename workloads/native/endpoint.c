/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's side of docs/protocol.md: open it, submit vectors, run it until one is summed. It contains no
 * Python: the process's interpreter runs while this waits or works.
 *
 * One thread calls endpoint_run; another may call endpoint_submit. Compiled by setup.py, called by
 * workloads/endpoint.py through ctypes; wire.h has what both share.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "endpoint.h"

#ifndef SOURCES_DIGEST
#define SOURCES_DIGEST "none"
#endif

/* testbed/native.py reads it to find out from which sources this was compiled */
__attribute__((used)) static const char sources_digest[] = SOURCES_DIGEST;

#define MAX_DATAGRAM 65507 /* before segmentation */
#define WAKE_EVERY 32	  /* results per wake-up */

/* ---- opening ---- */

void endpoint_close(struct endpoint *e)
{
	if (!e)
		return;
	if (e->ring)
		munmap(e->ring, e->ring_bytes);
	if (e->wake)
		munmap(e->wake, sysconf(_SC_PAGESIZE));
	for (uint32_t i = 0; i < e->s.trees; i++) {
		free(e->trees[i].at);
		free(e->trees[i].before);
		free(e->trees[i].packets);
		free(e->trees[i].sent_at);
		free(e->trees[i].first_at);
		free(e->trees[i].queued_ns);
		free(e->trees[i].asked_from);
	}
	for (uint32_t i = 0; i < MAX_OPS; i++)
		free(e->ops[i].blocks);
	free(e->votes);
	free(e->question);
	free(e->heard);
	free(e->taken);
	free(e);
}

static void *mapped(int fd, size_t bytes)
{
	void *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? 0 : at;
}

/* Returns whether there was enough memory. */
static int open_tree(struct endpoint *e, struct tree *t, uint32_t number)
{
	const struct way *way = &e->s.ways[number];
	uint64_t limit = e->limit;

	t->number = number;
	t->slot_base = way->slot_base;
	t->takes_empties = way->takes_empties;
	t->ring_first = number * e->s.slots;
	t->to.sin_family = AF_INET;
	t->to.sin_addr.s_addr = way->address;
	t->to.sin_port = htons(e->s.port);
	t->packets = calloc(e->limit, e->packet_bytes);
	t->sent_at = calloc(e->limit, sizeof(*t->sent_at));
	t->first_at = calloc(e->limit, sizeof(*t->first_at));
	t->queued_ns = calloc(e->limit, sizeof(*t->queued_ns));
	t->asked_from = calloc(e->limit, sizeof(*t->asked_from));
	if (!t->packets || !t->sent_at || !t->first_at || !t->queued_ns || !t->asked_from)
		return 0;
	for (uint32_t i = 0; i < e->limit; i++)
		packets_open(e, t, packet(e, t, i));
	if (way->queue_packets)
		limit = lesser(e->s.asks ? questions_beside(way->queue_packets) : way->queue_packets, limit);
	window_open(&t->window, limit, e->s.rate_mbps > 0);
	timing_open(&t->timing);
	return 1;
}

/* The size of struct settings in this library: the caller may have been changed since. */
uint64_t endpoint_settings_bytes(void)
{
	return sizeof(struct settings);
}

/*
 * Returns 0 on failure, with errno set. EEXIST: another process of this generation has used the memory
 * before.
 */
struct endpoint *endpoint_open(const struct settings *settings)
{
	struct endpoint *e = calloc(1, sizeof(*e) + settings->trees * sizeof(e->trees[0]));
	size_t page = sysconf(_SC_PAGESIZE);

	if (!e)
		return 0;
	e->s = *settings;
	e->sends.fd = e->s.socket_fd;
	e->result_bytes = sizeof(struct result) + (4 * (size_t)e->s.ring_lanes + 7) / 8 * 8;
	e->packet_bytes = sizeof(struct wire_header) + 4 * e->s.lanes;
	e->ring_bytes = (e->result_bytes * e->s.ring_entries + page - 1) / page * page;
	e->data_slots = e->s.slots - e->s.vote_slots;
	e->limit = e->s.window ? e->s.window : e->data_slots / 2;
	e->vote_limit = e->s.vote_window ? e->s.vote_window : e->s.vote_slots / 2;
	e->burst = lesser(MAX_DATAGRAM / e->packet_bytes, MAX_BURST);
	e->bias = (1U << 31) / e->s.workers;
	e->counters.window_min = e->limit;
	if (getrandom(&e->asking, sizeof(e->asking), 0) < 0)
		goto failed;
	e->ring = mapped(e->s.ring_fd, e->ring_bytes);
	e->wake = mapped(e->s.wake_fd, page);
	e->votes = calloc(e->vote_limit, e->packet_bytes);
	e->taken = calloc(e->s.lanes, sizeof(*e->taken));
	e->question = calloc(1, e->packet_bytes);
	e->heard = calloc(1, e->packet_bytes);
	if (!e->ring || !e->wake || !e->votes || !e->taken || !e->question || !e->heard || !mapping_open(e))
		goto failed;
	for (uint32_t i = 0; i < e->s.trees; i++)
		if (!open_tree(e, &e->trees[i], i))
			goto failed;
	for (uint32_t i = 0; i < e->vote_limit; i++)
		packets_open(e, &e->trees[0], vote_packet(e, i));
	if (__atomic_fetch_add(&e->wake->attached, 1, __ATOMIC_RELAXED)) {
		errno = EEXIST;
		goto failed;
	}
	return e;
failed:;
	int code = errno;

	endpoint_close(e);
	errno = code;
	return 0;
}

/*
 * Submits a vector, and returns its number, which endpoint_run returns when it is settled; -1 if too many are
 * under way or there is no memory. `data` is replaced by the sum. `contributors` has room for each of its
 * fragments, at least one. `kind` is VECTOR_*. This worker's part is the bytes from `from` until `until`.
 */
int64_t endpoint_submit(struct endpoint *e, float *data, uint64_t length, uint32_t kind, uint64_t from,
			uint64_t until, uint32_t *contributors, float *lost)
{
	uint64_t number = atomic_load_explicit(&e->submitted, memory_order_relaxed);
	uint64_t once = 1;

	if (number - __atomic_load_n(&e->reported, __ATOMIC_ACQUIRE) >= MAX_OPS)
		return -1;
	e->ops[NEXT_RING(number)] = (struct op){
		.data = data, .length = length, .raw = kind != VECTOR_FLOATS,
		.gathered = kind == VECTOR_GATHERED, .from = from, .until = until,
		.contributors = contributors, .lost = lost, .event = EVENT_IDLE
	};
	if (!votes_open(e, &e->ops[NEXT_RING(number)]))
		return -1;
	atomic_store_explicit(&e->submitted, number + 1, memory_order_release);
	if (write(e->s.event_fd, &once, sizeof(once)) < 0)
		return -1;
	return (int64_t)number;
}

void endpoint_counters(struct endpoint *e, struct counters *out)
{
	e->counters.window = e->counters.rtt_us = 0;
	for (uint32_t i = 0; i < e->s.trees; i++) {
		double rtt_us = e->trees[i].timing.srtt_ns / 1000.0;

		e->counters.window += e->trees[i].window.size;
		e->counters.rtt_us = rtt_us > e->counters.rtt_us ? rtt_us : e->counters.rtt_us;
	}
	*out = e->counters;
}

/* ---- running ---- */

/* Notices do not name their tree, so that the windows of all trees react. */
static void heed_notices(struct endpoint *e)
{
	uint32_t notices = __atomic_load_n(&e->wake->notices, __ATOMIC_RELAXED);

	if (notices == e->notices_seen)
		return;
	e->counters.notices += notices - e->notices_seen;
	e->notices_seen = notices;
	for (uint32_t i = 0; i < e->s.trees; i++)
		note_cut(e, &e->trees[i], window_notice(&e->trees[i].window));
}

/*
 * Whether results are expected by a tree, or packets must be pushed by it when its timer expires. While
 * vectors are under way, this is true of at least one tree.
 */
static int is_awaited(struct endpoint *e, struct tree *t)
{
	return is_expecting(e, t) || given(e, t, e->next_fragment) > t->sent ||
	       (!t->number && e->votes_refused);
}

/* Reads all new results; returns whether there were any. */
static int take(struct endpoint *e)
{
	int voted = votes_take(e), any = 0;

	for (uint32_t i = 0; i < e->s.trees; i++) {
		struct tree *t = &e->trees[i];

		if (!(results_take(e, t) | (voted && !i)))
			continue;
		any = 1;
		t->silent_from = t->quiet_from = now_ns();
		t->silent = 0;
	}
	return any;
}

static int push(struct endpoint *e, int all)
{
	int pushed = 0;

	votes_push(e);
	for (uint32_t i = 0; i < e->s.trees; i++) {
		pushed |= packets_push(e, &e->trees[i], all);
		if (e->s.asks)
			questions_push(e, &e->trees[i]);
	}
	return pushed;
}

/*
 * Writes this worker's progress to the board, and whether it has pushed its part of what comes next, which
 * others may still lack.
 */
static void tell_progress(struct endpoint *e)
{
	int waits = votes_under_way(e) > 0;

	for (uint32_t i = 0; i < e->s.trees; i++)
		waits |= e->trees[i].sent > e->trees[i].done;
	*(volatile uint64_t *)e->s.progress = 2 * e->summed + waits;
}

/*
 * Whether a result can be read. The result of a fragment that is not pushed yet cannot: where sums age out,
 * other workers may be ahead.
 */
static int any_data(struct endpoint *e)
{
	for (uint32_t i = 0; i < e->s.trees; i++) {
		struct tree *t = &e->trees[i];

		if (t->done < t->sent && has_data(e, t, t->done))
			return 1;
	}
	return 0;
}

/* Whether some tree can push nothing before the next vote's result. */
static int is_vote_awaited(struct endpoint *e)
{
	if (votes_under_way(e))
		for (uint32_t i = 0; i < e->s.trees; i++)
			if (e->trees[i].sent == given(e, &e->trees[i], e->next_fragment))
				return 1;
	return 0;
}

/*
 * Sleeps until enough of the `outstanding` results arrive, a vector is submitted, or the timer expires.
 * Returns whether it was not the timer.
 */
static int wait_for_more(struct endpoint *e, uint64_t outstanding, int64_t timeout_ns)
{
	uint64_t drained, awaited;
	struct pollfd fds[2] = {
		{.fd = e->s.socket_fd, .events = POLLIN},
		{.fd = e->s.event_fd, .events = POLLIN},
	};
	uint32_t received = __atomic_load_n(&e->wake->received, __ATOMIC_ACQUIRE);
	struct timespec timeout = {.tv_sec = timeout_ns / 1000000000LL, .tv_nsec = timeout_ns % 1000000000LL};
	int ready;

	if (is_vote_awaited(e)) /* any result may be the vote's */
		outstanding = 1;
	awaited = outstanding < 2 * WAKE_EVERY ? (outstanding + 1) / 2 : WAKE_EVERY;
	__atomic_store_n(&e->wake->wake_at, received + (uint32_t)awaited, __ATOMIC_SEQ_CST);
	/* results that came before wake_at was written wake nobody: check for them */
	if (__atomic_load_n(&e->wake->received, __ATOMIC_SEQ_CST) != received || any_data(e) ||
	    (votes_under_way(e) && votes_has(e, e->votes_taken)))
		return 1;
	if (!e->votes_refused && votes_ready(e))
		return 1;
	ready = ppoll(fds, 2, &timeout, 0);
	if (ready < 0)
		sends_note(&e->sends, errno);
	if (ready <= 0)
		return __atomic_load_n(&e->wake->received, __ATOMIC_ACQUIRE) != received;
	e->counters.wakes++;
	if (fds[0].revents && e->s.asks)
		questions_listen(e);
	else if (fds[0].revents)
		sends_drain(&e->sends);
	if (fds[1].revents && read(e->s.event_fd, &drained, sizeof(drained)) < 0)
		sends_note(&e->sends, errno);
	return 1;
}

/*
 * Whether to report a silence to the caller: when it is twice as long as at the last report, or a quarter of
 * a second longer.
 */
static int is_worth_telling(struct endpoint *e, int64_t silent_ns)
{
	int64_t more = e->told_quiet_ns < PROBE_MAX_NS ? e->told_quiet_ns : PROBE_MAX_NS;

	if (silent_ns < e->told_quiet_ns + more)
		return 0;
	e->told_quiet_ns = silent_ns;
	return 1;
}

/* Waits while there is nothing to repair. Returns whether a timer of any tree expired. */
static int wait_or_repair(struct endpoint *e)
{
	int64_t next = INT64_MAX, now = now_ns();
	uint64_t outstanding = 0; /* of the tree with the fewest, which must not wait for another's */
	int expired = 0;

	votes_repeat(e);
	for (uint32_t i = 0; i < e->s.trees; i++) {
		struct tree *t = &e->trees[i];
		int64_t gap_ns = e->s.asks ? questions_gaps(e, t) : repair_gaps(e, t), left_ns;
		uint64_t own = gap_ns < 0 && !e->s.asks ? t->sent - t->done + (i ? 0 : votes_under_way(e)) :
							  repair_missing(e, t);

		if (own && (!outstanding || own < outstanding))
			outstanding = own;
		if (gap_ns >= 0 && gap_ns < next)
			next = gap_ns;
		if (!is_awaited(e, t))
			continue;
		left_ns = t->quiet_from + repair_timeout_ns(e, t) - now;
		next = left_ns < next ? left_ns : next;
	}
	if (wait_for_more(e, outstanding, next > 0 ? next : 0))
		return 0;
	now = now_ns();
	for (uint32_t i = 0; i < e->s.trees; i++) {
		struct tree *t = &e->trees[i];

		if (is_awaited(e, t) && now - t->quiet_from >= repair_timeout_ns(e, t)) {
			repair_expired(e, t);
			expired = 1;
		}
	}
	return expired;
}

/* Returns a settled vector to the caller. */
static int report(struct endpoint *e, int event, uint64_t *number)
{
	struct op *op = &e->ops[NEXT_RING(e->reported)];

	free(op->blocks);
	op->blocks = 0;
	*number = e->reported;
	e->progress_at = 0;
	__atomic_store_n(&e->reported, e->reported + 1, __ATOMIC_RELEASE);
	return event;
}

/*
 * Whether no vector is settled any more. Later results are not read: they may belong to a vector that was
 * returned to the caller.
 */
static int is_over(struct endpoint *e)
{
	return e->broken == EVENT_OVERTAKEN || e->broken == EVENT_REFUSED;
}

/*
 * Whether the next vector will never be settled. A known vector has all its scales, and is still completed.
 */
static int is_broken(struct endpoint *e)
{
	if (!e->broken || e->reported == atomic_load_explicit(&e->submitted, memory_order_acquire))
		return 0;
	return is_over(e) || e->reported >= e->known;
}

/*
 * If the socket can send no more, no further vector is settled, not even those that another break allows to
 * complete. If there are none of these, the other break stays the reason.
 */
static void heed_refusal(struct endpoint *e)
{
	if (!e->sends.error || is_over(e) || (e->broken && e->reported >= e->known))
		return;
	e->broken = EVENT_REFUSED;
	e->broken_workers = e->sends.error;
}

/*
 * Works until a vector is settled (*number is its number, *workers the number of workers that its event is
 * about), nothing is left to do, or a silence is to be reported (*silent_ns).
 */
int endpoint_run(struct endpoint *e, uint64_t *number, uint32_t *workers, int64_t *silent_ns)
{
	if (!e->progress_at) { /* the caller was busy elsewhere: not a silence */
		e->progress_at = now_ns();
		e->told_quiet_ns = 0;
		for (uint32_t i = 0; i < e->s.trees; i++)
			e->trees[i].silent_from = e->trees[i].quiet_from = e->progress_at;
	}
	for (;;) {
		int moved = !is_over(e) && take(e), again;

		heed_notices(e);
		if (moved) {
			e->progress_at = now_ns();
			e->told_quiet_ns = 0;
		}
		again = !is_over(e) && push(e, !moved);
		heed_refusal(e);
		tell_progress(e);
		if (again)
			continue;
		if (e->reported < e->known && e->ops[NEXT_RING(e->reported)].event != EVENT_IDLE) {
			struct op *op = &e->ops[NEXT_RING(e->reported)];
			int event = op->event;

			*workers = op->workers;
			return report(e, event, number);
		}
		if (is_broken(e)) {
			*workers = e->broken_workers;
			return report(e, e->broken, number);
		}
		if (moved)
			continue;
		if (e->reported == atomic_load_explicit(&e->submitted, memory_order_acquire)) {
			e->progress_at = 0;
			return EVENT_IDLE;
		}
		if (wait_or_repair(e)) {
			*silent_ns = now_ns() - e->progress_at;
			if (is_worth_telling(e, *silent_ns))
				return EVENT_QUIET;
		}
	}
}
