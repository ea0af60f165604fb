/* SPDX-License-Identifier: Apache-2.0 */
/* Calendar queues' slots: which frames leave, by which link, and when. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "calendar.h"
#include "../../../../workloads/native/sends_meaning.h"

#define AHEAD_NS 400000LL /* of a link's queue that is filled at a time: longer than a timer is late */
#define EARLY_NS 5000LL	  /* after the guard before a frame is sent */
#define LAST_NS 60000LL	  /* before the end of a slot no further frame begins; less in short slots */
#define LOOK_NS 5000000LL /* the longest time between two, while frames wait */
#define GRACE_NS 1000000000LL /* after a timetable's end, for frames that only another one leads on */
#define DARK_NS 5000000LL /* between looks at a port whose darkness has no end yet */

static void send_batch(struct calendar *c)
{
	uint32_t done = 0;

	while (done < c->pending && !c->error) {
		int sent = sendmmsg(c->socket_fd, c->out + done, c->pending - done, MSG_DONTWAIT);

		if (sent > 0)
			done += (uint32_t)sent;
		else if (sends_meaning(errno) == MEANS_FAILED)
			c->error = errno;
		else if (errno != EINTR)
			break;
	}
	for (uint32_t i = 0; i < c->pending; i++) {
		if (i >= done) { /* the device had no room */
			const uint8_t *data = c->leaving[i]->data;
			struct queue *queue = c->queues[data[6]] + goal_of(data);

			queue->counts.dropped++;
			queue->counts.sent--;
		}
		free(c->leaving[i]);
	}
	c->pending = 0;
}

struct frame *first_of(struct line *line)
{
	return line->back_first ? line->back_first : line->first;
}

/* The frame that has waited longest of a kind for a goal. */
struct frame *take_out(struct calendar *c, uint32_t unit, uint32_t goal, uint32_t kind, int64_t now)
{
	struct queue *queue = c->queues[unit] + goal;
	struct line *line = queue->lines + kind;
	struct frame *frame = first_of(line);

	if (frame == line->back_first)
		line->back_first = frame->next;
	else
		line->first = frame->next;
	if (!line->first && !line->back_first)
		c->backlog[unit][kind][goal / 64] &= ~(1ULL << (goal & 63));
	line->waiting--;
	line->bytes -= frame->length;
	queue->counts.sent++;
	queue->counts.waiting--;
	queue->counts.waiting_bytes -= frame->length;
	c->bytes -= frame->length;
	if (now - frame->since_ns > queue->counts.longest_ns)
		queue->counts.longest_ns = now - frame->since_ns;
	return frame;
}

/* When a slot's light begins and ends. */
struct span {
	uint32_t matching; /* from 1; 0: outside of timetables */
	int64_t delay_ns;  /* of the links for which it is: frames that leave now arrive in it */
	int64_t begun_ns, end_ns;
	int64_t lit_ns;	 /* of circuits that were not in the matching before */
	int64_t last_ns; /* when its last frame may begin */
};

static struct span span_at(struct calendar *c, int64_t now)
{
	struct timetable *table = &c->table;
	int64_t period = (int64_t)table->period_ns, phase, begun;
	uint32_t low = 0, high = (uint32_t)table->count;
	struct span span = {.matching = 1};

	phase = (now - (int64_t)table->start_ns) % period;
	begun = now - phase;
	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;

		if ((int64_t)table->starts_ns[middle] <= phase)
			low = middle;
		else
			high = middle;
	}
	span.matching = low + 1;
	span.begun_ns = begun + (int64_t)table->starts_ns[low];
	span.lit_ns = span.begun_ns + (int64_t)table->guard_ns + EARLY_NS;
	span.end_ns = begun + (low + 1 < table->count ? (int64_t)table->starts_ns[low + 1] : period);
	/* what leaves last has the way through the kernel before it */
	span.last_ns = (span.end_ns - span.lit_ns) / 8;
	span.last_ns = span.end_ns - (span.last_ns < LAST_NS ? span.last_ns : LAST_NS);
	return span;
}

/* When to look again at a port that is dark; 0: it is lit. */
static int64_t dark_until(struct calendar *c, uint32_t number, int64_t now)
{
	struct circuit circuit;

	if (bpf_map(BPF_MAP_LOOKUP_ELEM, c->circuits_fd, &number, &circuit))
		return 0;
	if (circuit.dark_at_ns > (uint64_t)now || circuit.lit_at_ns <= (uint64_t)(now - EARLY_NS))
		return 0;
	if (circuit.lit_at_ns > (uint64_t)(now + DARK_NS))
		return now + DARK_NS;
	return (int64_t)circuit.lit_at_ns + EARLY_NS;
}

enum service { SENT, NOT_NOW, FULL }; /* FULL: its link has no time for it now */

static int64_t lit_from(struct calendar *c, const struct link *link, const struct span *span)
{
	if (span->matching && has(link->stays, span->matching - 1) &&
	    span->begun_ns > (int64_t)c->table.start_ns)
		return span->begun_ns;
	return span->lit_ns + link->jitter_ns;
}

/*
 * Takes a link's time for a frame if it has any now, or says when it is to be asked again. All times are
 * those at which frames arrive at the optical switch.
 */
static enum service take_time(struct calendar *c, struct link *link, uint32_t length, const struct span *span,
			      int64_t now, int64_t *due)
{
	int64_t lit_ns = lit_from(c, link, span), begin;

	if (span->matching && link->delay_ns != span->delay_ns)
		return NOT_NOW;
	if (!span->matching && link->number)
		lit_ns = dark_until(c, link->number, now);
	if (lit_ns > now) {
		*due = lit_ns < *due ? lit_ns : *due;
		return NOT_NOW;
	}
	if (link->begun_ns != span->begun_ns) {
		int64_t owes_ns = link->free_ns - link->end_ns; /* what a frame took longer than its slot */

		link->begun_ns = span->begun_ns;
		link->end_ns = span->end_ns;
		link->free_ns = lit_ns + (owes_ns > 0 ? owes_ns : 0);
	}
	begin = link->free_ns > now ? link->free_ns : now;
	if (begin > span->last_ns - (span->matching ? link->jitter_ns : 0))
		return FULL;
	if (begin > now + AHEAD_NS) {
		*due = begin - AHEAD_NS < *due ? begin - AHEAD_NS : *due;
		return FULL;
	}
	link->free_ns = begin;
	if (link->bytes_per_s)
		link->free_ns += (int64_t)(length * 1000000000ULL / link->bytes_per_s);
	return SENT;
}

static struct link *link_for(struct calendar *c, const struct ways *ways, const struct frame *frame)
{
	uint32_t way = ways->count > 1 ? frame->bucket * ways->count >> SPREAD_BITS : 0;

	return c->links + ways->links[way < MOST_WAYS ? way : 0];
}

/* Sends the first frame of a kind for a goal by a link that has time for it. */
static void send_first(struct calendar *c, uint32_t unit, uint32_t goal, uint32_t kind,
		       const struct link *link, const struct span *span, int64_t now)
{
	struct frame *frame = take_out(c, unit, goal, kind, now);
	uint32_t latest = ((uint32_t)(span->end_ns >> 8) & ~(uint32_t)MOST_RETURNS) | frame->returns;

	frame->data[6] = (uint8_t)unit;
	frame->data[7] = (uint8_t)link->port;
	memcpy(frame->data + 8, &latest, sizeof(latest));
	c->leaving[c->pending] = frame;
	c->out_parts[c->pending] = (struct iovec){frame->data, frame->length};
	if (++c->pending == BATCH)
		send_batch(c);
}

/* Sends the first frame of a kind for a goal if its link has time for it. */
static enum service serve(struct calendar *c, uint32_t unit, uint32_t goal, uint32_t kind,
			  const struct span *span, int64_t now, int64_t *due)
{
	struct frame *frame = first_of(c->queues[unit][goal].lines + kind);
	struct ways *ways = ways_of(c, kind, span->matching, unit, goal);
	enum service service;
	struct link *link;

	if (!ways->count && !span->matching && now > c->ended_ns + GRACE_NS) {
		free(take_out(c, unit, goal, kind, now));
		c->queues[unit][goal].counts.sent--;
		c->queues[unit][goal].counts.unlit++;
		return SENT;
	}
	if (!ways->count)
		return NOT_NOW;
	link = link_for(c, ways, frame);
	service = take_time(c, link, frame->length, span, now, due);
	if (service == SENT)
		send_first(c, unit, goal, kind, link, span, now);
	return service;
}

/*
 * Serves a unit's goals in turn, a frame of a kind each, until no link takes any more. The first whose link
 * had no time is the first the next time: so goals that share a link share its time.
 */
static void serve_kind(struct calendar *c, uint32_t unit, uint32_t kind, const struct span *span, int64_t now,
		       int64_t *due)
{
	uint32_t first = c->turn[unit][kind], pass = 0;
	int any = 1, is_turned = 0;

	for (; any; pass++) {
		any = 0;
		for (uint32_t i = 0; i < UNITS; i++) {
			uint32_t goal = (first + i) % UNITS;
			uint64_t rest = c->backlog[unit][kind][goal / 64] >> (goal & 63);
			enum service service;

			if (!rest)
				i += 63 - (goal & 63); /* none up to the next word */
			if (!(rest & 1))
				continue;
			service = serve(c, unit, goal, kind, span, now, due);
			any |= service == SENT;
			if (service == FULL && !pass && !is_turned) {
				is_turned = 1;
				c->turn[unit][kind] = (uint8_t)goal;
			}
		}
	}
}

/*
 * Whether more frames wait for a goal than a slot has time for, or than half of a queue, or no circuit ever
 * leads there; and a neighbour leads there and has room. Hosts of RotorNet agree on that by messages, which
 * here take no time. `slot_bytes` is 0 where links have no rate, so that a slot has time for all.
 */
static int is_to_spare(struct calendar *c, uint32_t unit, uint32_t goal, uint32_t other, uint64_t slot_bytes)
{
	struct line *line = c->queues[unit][goal].lines + FRAMES_OWN;
	int is_more = slot_bytes && (line->bytes > slot_bytes || line->waiting > c->packets / 2);

	if (goal == other || !has(leads_on(c, FRAMES_CARRIED, other), goal))
		return 0;
	if (has(c->leads[FRAMES_OWN][unit], goal) && !is_more)
		return 0;
	return !c->queues[other] ||
	       c->queues[other][goal].lines[FRAMES_CARRIED].waiting < (c->packets + 1) / 2;
}

/* The goal of which a frame is to leave to a neighbour, each in turn; 0: none. */
static uint32_t goal_to_spare(struct calendar *c, uint32_t unit, uint32_t other, uint64_t slot_bytes)
{
	for (uint32_t i = 1; i <= UNITS; i++) {
		uint32_t goal = (c->spare_turn[unit] + i) % UNITS;
		uint64_t rest = c->backlog[unit][FRAMES_OWN][goal / 64] >> (goal & 63);

		if (!rest)
			i += 63 - (goal & 63);
		if ((rest & 1) && is_to_spare(c, unit, goal, other, slot_bytes))
			return goal;
	}
	return 0;
}

/* Sends frames to neighbours by the time that their links have left. */
static void serve_spare(struct calendar *c, uint32_t unit, const struct span *span, int64_t now, int64_t *due)
{
	struct neighbours *near = neighbours_of(c, span->matching, unit);

	for (uint32_t n = 0; near && n < near->count; n++) {
		struct ways *ways = ways_of(c, FRAMES_SPARE, span->matching, unit, near->units[n]);
		uint32_t goal;

		for (;;) {
			uint64_t slot_ns = (uint64_t)(span->end_ns - span->lit_ns), slot_bytes;
			struct link *link = c->links + ways->links[0];

			slot_bytes = ways->count * (link->bytes_per_s * slot_ns / 1000000000ULL);
			goal = goal_to_spare(c, unit, near->units[n], slot_bytes);
			if (!goal)
				break;
			link = link_for(c, ways, first_of(c->queues[unit][goal].lines + FRAMES_OWN));
			if (take_time(c, link, first_of(c->queues[unit][goal].lines + FRAMES_OWN)->length,
				      span, now, due) != SENT)
				break;
			send_first(c, unit, goal, FRAMES_OWN, link, span, now);
			c->spare_turn[unit] = (uint8_t)goal;
		}
	}
}

/* Results go first, then what is on its way already, and bulk traffic last. */
static void serve_unit(struct calendar *c, uint32_t unit, const struct span *span, int64_t now, int64_t *due)
{
	serve_kind(c, unit, FRAMES_RESULT, span, now, due);
	serve_kind(c, unit, FRAMES_CARRIED, span, now, due);
	serve_kind(c, unit, FRAMES_OWN, span, now, due);
	serve_kind(c, unit, FRAMES_BULK, span, now, due);
	if (c->kinds & 1 << FRAMES_SPARE && span->matching)
		serve_spare(c, unit, span, now, due);
}

static int has_backlog(struct calendar *c, uint32_t unit)
{
	uint64_t any = 0;

	for (uint32_t kind = 0; kind < KINDS; kind++)
		for (uint32_t word = 0; word < WORDS; word++)
			any |= c->backlog[unit][kind][word];
	return any != 0;
}

/* Sends what may leave now by links of a delay, and says when to do so again. */
static void serve_delayed(struct calendar *c, int64_t now, int64_t delay_ns, int64_t *due)
{
	struct span span = span_at(c, now + delay_ns);
	int64_t next = span.end_ns;

	span.delay_ns = delay_ns;
	for (uint32_t unit = 0; unit < UNITS; unit++)
		if (has_backlog(c, unit))
			serve_unit(c, unit, &span, now + delay_ns, &next);
	if (next - delay_ns < *due)
		*due = next - delay_ns;
}

static int any_backlog(struct calendar *c)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		if (has_backlog(c, unit))
			return 1;
	return 0;
}

/* Sends what may leave now; returns when to do so again. */
int64_t serve_all(struct calendar *c, int64_t now)
{
	int64_t due = now + LOOK_NS;

	if (!any_backlog(c))
		return now + 1000000000LL;
	for (uint32_t i = 0; i < c->delay_count; i++)
		serve_delayed(c, now, c->delays_ns[i], &due);
	if (c->pending)
		send_batch(c);
	return due;
}

/* Where no timetable runs, frames leave as plain routes say, one after the other. */
int64_t flush(struct calendar *c, int64_t now)
{
	struct span span = {.matching = 0, .end_ns = INT64_MAX / 2, .last_ns = INT64_MAX / 2};
	int64_t due = now + LOOK_NS;
	int any = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++) {
		if (!has_backlog(c, unit))
			continue;
		any = 1;
		serve_unit(c, unit, &span, now, &due);
	}
	if (c->pending)
		send_batch(c);
	return any ? due : now + 1000000000LL;
}
