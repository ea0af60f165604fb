/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recovery by ALEPH's integrity check (its algorithm 2; docs/protocol.md, "Questions"): a worker asks a place
 * which of the fragments under way it has, and pushes again those that the place lacks.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "endpoint.h"

#define PATIENCE 4	/* timers that expire before repetitions become rarer */
#define NUMBERS_KEPT 4096 /* the last questions whose answers are accepted */

/* The most fragments of one question. */
static uint64_t most(struct endpoint *e)
{
	return lesser(e->s.lanes, QUESTION_MOST);
}

/* How many fragments may be under way where queues hold `packets`: one of these may be a question. */
uint64_t questions_beside(uint64_t packets)
{
	return packets > 1 ? packets - 1 : 1;
}

static void ask(struct endpoint *e, struct tree *t, uint64_t first, uint64_t count, uint8_t flags)
{
	struct wire_header *h = (struct wire_header *)e->question;

	packets_open(e, t, h);
	h->op = WIRE_OP_QUESTION;
	h->flags = flags;
	h->fragment = htonl((uint32_t)first);
	h->slot = htonl(e->asking);
	h->count = htons((uint16_t)count);
	memset(lanes_of(h), 0, 4 * e->s.lanes);
	for (uint64_t i = 0; i < count; i++)
		lanes_of(h)[i] = htonl(e->s.places[(first + i) % e->data_slots]);
	packets_send(e, t, h, 1); /* lost if the socket is full: the timer asks again */
	e->asking++;
	e->counters.asked++;
}

/* Asks for all fragments under way when nothing is left to push: at the end of a vector, as in the paper. */
void questions_push(struct endpoint *e, struct tree *t)
{
	if (t->asked == t->sent || t->sent < given(e, t, e->next_fragment))
		return;
	for (uint64_t first = t->done; first < t->sent; first += most(e))
		ask(e, t, first, lesser(t->sent - first, most(e)), 0);
	t->asked = t->sent;
}

/*
 * Asks for the first fragments again; places that have sent their sums up pass the question to the places
 * above.
 */
void questions_again(struct endpoint *e, struct tree *t)
{
	t->asked_again = e->asking;
	t->asked_at = now_ns();
	if (t->sent > t->done)
		ask(e, t, t->done, lesser(t->sent - t->done, most(e)), WIRE_FLAG_RETRANSMIT);
}

/* The fragment after the last one that has a result. */
static uint64_t newest(struct endpoint *e, struct tree *t)
{
	uint64_t last = t->sent;

	while (last > t->done && !has_data(e, t, last - 1))
		last--;
	return last;
}

/*
 * Asks for what is missing although a later push has its result, once a round trip. Returns after how many ns
 * this is due again, -1 if nothing is missing there.
 */
int64_t questions_gaps(struct endpoint *e, struct tree *t)
{
	int64_t due;

	if (newest(e, t) == t->done)
		return -1;
	due = t->asked_at + repair_pause_ns(e, t) - now_ns();
	if (due > 0)
		return due;
	questions_again(e, t);
	return repair_pause_ns(e, t);
}

/*
 * How old a push must be before it is repeated: as old as packets may overtake each other by. In a long
 * silence this doubles with each timer, since a place may lack the fragment as long as other workers are
 * late. The first fragment is excepted: it is asked for at the timer's pace.
 */
static int64_t least_age_ns(struct endpoint *e, struct tree *t, uint64_t fragment)
{
	int64_t grace_ns = repair_grace_ns(e, &t->timing);

	if (t->silent <= PATIENCE || fragment == t->done)
		return grace_ns;
	return grace_ns + lesser(t->timing.base_ns << lesser(t->silent - PATIENCE, 8), PROBE_MAX_NS);
}

/*
 * Pushes again what an answer shows to be lost: a contribution or, if a sum is complete, its result to this
 * worker. An answer covers only pushes before its question.
 *
 * Where a later result has come, a sum that was sent up was lost above, or its result was: the places there
 * are asked. If a sum is still reported only as sent up, although the places above were to be asked, the
 * first fragment is pushed again: no one passes on the questions of a host's own worker.
 *
 * First repetitions are followed by a question at once; losses of later ones show by gaps and timers.
 */
static void heed_answer(struct endpoint *e, struct tree *t, struct wire_header *h)
{
	uint64_t first = t->done + (int64_t)(int32_t)(ntohl(h->fragment) - (uint32_t)t->done);
	uint64_t count = lesser(ntohs(h->count), e->s.lanes), last = newest(e, t);
	uint64_t lost = 0, fresh = 0, open = 0;
	uint32_t number = ntohl(h->slot);
	int64_t now = now_ns();

	for (uint64_t i = 0; i < count; i++) {
		uint64_t fragment = first + i, place = fragment % e->limit;
		uint32_t state = ntohl(lanes_of(h)[i]) >> FOUND_SHIFT;

		if ((int64_t)(fragment - t->done) < 0 || fragment >= t->sent || has_data(e, t, fragment))
			continue;
		if (state == FOUND_SUMMED && !(h->flags & WIRE_FLAG_RETRANSMIT)) {
			open += fragment < last;
			continue;
		}
		if (state == FOUND_HELD || (state == FOUND_SUMMED && fragment > t->done))
			continue;
		if ((int32_t)(number - t->asked_from[place]) < 0 ||
		    now - t->sent_at[place] < least_age_ns(e, t, fragment))
			continue;
		fresh += !(packet(e, t, fragment)->flags & WIRE_FLAG_RETRANSMIT);
		packets_again(e, t, packet(e, t, fragment), &t->sent_at[place], now);
		t->asked_from[place] = e->asking;
		t->waited = t->clean_from = t->sent;
		lost += state != FOUND_SUMMED;
	}
	if (lost)
		note_cut(e, t, window_lost(&t->window));
	if ((fresh || open) && (int32_t)(number - t->asked_again) >= 0)
		questions_again(e, t);
}

/* Whether a packet answers one of the last questions: anyone may send to a socket. */
static int is_answer(struct endpoint *e, struct wire_header *h)
{
	return h->magic == htons(WIRE_MAGIC) && h->op == WIRE_OP_ANSWER && h->job == htons(e->s.job) &&
	       h->generation == htonl(e->s.generation) &&
	       (uint32_t)(e->asking - 1 - ntohl(h->slot)) < lesser(NUMBERS_KEPT, e->counters.asked) &&
	       (uint32_t)h->tree - e->s.first_tree < e->s.trees;
}

/* Reads what came to the socket: answers, and results that only wake this thread. */
void questions_listen(struct endpoint *e)
{
	struct wire_header *h = (struct wire_header *)e->heard;
	ssize_t bytes;

	while ((bytes = recv(e->s.socket_fd, e->heard, e->packet_bytes, MSG_DONTWAIT | MSG_TRUNC)) >= 0)
		if ((size_t)bytes == e->packet_bytes && is_answer(e, h))
			heed_answer(e, &e->trees[h->tree - e->s.first_tree], h);
	sends_note(&e->sends, errno);
}
