/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses by ALEPH's integrity check (its algorithm 2; docs/protocol.md, "Questions"): behind a range of
 * fragments the place is asked which of them it has, and what it lacks is pushed again.
 */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "endpoint.h"

/* Two of them are under way: a quarter of the segment, and no more than a question has lanes for. */
static uint64_t range_of(struct endpoint *e)
{
	uint64_t range = lesser(e->limit / 2, lesser(e->s.lanes, QUESTION_MOST));

	return range ? range : 1;
}

/* Before which fragment a tree's pushes end: a range begins when the one before the last has all results. */
uint64_t questions_limit(struct endpoint *e, struct tree *t)
{
	uint64_t range = range_of(e);

	return (t->done / range + 2) * range;
}

static void ask(struct endpoint *e, struct tree *t, uint64_t first, uint64_t count, uint8_t flags)
{
	struct wire_header *h = (struct wire_header *)e->question;

	packets_open(e, t, h);
	h->op = WIRE_OP_QUESTION;
	h->flags = flags;
	h->fragment = htonl((uint32_t)first);
	h->count = htons((uint16_t)count);
	memset(lanes_of(h), 0, 4 * e->s.lanes);
	for (uint64_t i = 0; i < count; i++)
		lanes_of(h)[i] = htonl(e->s.places[(first + i) % e->data_slots]);
	packets_send(e, t, h, 1); /* lost where the socket is full: the timer asks again */
	e->counters.asked++;
}

/*
 * Asks for what was pushed since the last question: range by range, or by what half a window holds where that
 * is less; where nothing is left to push, for the rest.
 */
void questions_push(struct endpoint *e, struct tree *t)
{
	uint64_t step = lesser(range_of(e), (uint64_t)t->window.size / 2 + 1), count;
	int is_end = t->sent == given(e, t, e->next_fragment);

	if (t->asked < t->done)
		t->asked = t->done;
	for (; (count = lesser(t->sent - t->asked, step)) && (is_end || count == step); t->asked += count)
		ask(e, t, t->asked, count, 0);
}

/* Asks for the first range again, and if its sums went up, the place above as well. */
void questions_again(struct endpoint *e, struct tree *t)
{
	uint64_t count = lesser(t->sent - t->done, range_of(e));

	if (count)
		ask(e, t, t->done, count, WIRE_FLAG_RETRANSMIT);
}

/*
 * Pushes again what an answer says is lost: a contribution, or of a sum that is complete the result to this
 * worker. What was pushed again within a round trip the answer knows nothing of.
 */
static void heed_answer(struct endpoint *e, struct tree *t, struct wire_header *h)
{
	uint64_t first = t->done + (int64_t)(int32_t)(ntohl(h->fragment) - (uint32_t)t->done);
	uint64_t count = lesser(ntohs(h->count), e->s.lanes), again = 0;
	int64_t now = now_ns();

	for (uint64_t i = 0; i < count; i++) {
		uint32_t state = ntohl(lanes_of(h)[i]) >> FOUND_SHIFT;
		uint64_t fragment = first + i;
		int64_t *sent_at = &t->sent_at[fragment % e->limit];

		if (state != FOUND_LACKS && state != FOUND_FINAL)
			continue;
		if ((int64_t)(fragment - t->done) < 0 || fragment >= t->sent || has_data(e, t, fragment))
			continue;
		if (packet(e, t, fragment)->flags & WIRE_FLAG_RETRANSMIT &&
		    now - *sent_at < t->timing.base_ns)
			continue;
		packets_again(e, t, packet(e, t, fragment), sent_at, now);
		again++;
	}
	if (!again)
		return;
	t->waited = t->clean_from = t->sent;
	note_cut(e, t, window_lost(&t->window));
	questions_again(e, t);
}

/* Takes what came to the socket: answers, and results that only wake. */
void questions_listen(struct endpoint *e)
{
	struct wire_header *h = (struct wire_header *)e->heard;
	ssize_t bytes;

	while ((bytes = recv(e->s.socket_fd, e->heard, e->packet_bytes, MSG_DONTWAIT)) >= 0) {
		uint32_t number = (uint32_t)h->tree - e->s.first_tree;

		if ((size_t)bytes == e->packet_bytes && h->op == WIRE_OP_ANSWER && number < e->s.trees)
			heed_answer(e, &e->trees[number], h);
	}
}
