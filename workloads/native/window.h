/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many fragments a worker may have under way: congestion control by marks, after RFC 8257 (DCTCP);
 * docs/protocol.md has the rule. No clock, no I/O: a function of the results.
 */
#ifndef WINDOW_H
#define WINDOW_H

#include <stdint.h>

#define MARK_GAIN 0.0625    /* weight of the newest round: g of RFC 8257 */
#define UNMARKED_LEAST 8    /* where no link marks: the least that losses and notices leave */
#define UNMARKED_LOSS 0.7   /* where no link marks: what share a loss leaves: beta of RFC 9438 */

struct window {
	double size;	   /* fragments */
	double threshold;  /* below it the window doubles each round */
	double congestion; /* smoothed share of marked results: alpha of RFC 8257 */
	double limit;	   /* the room of the segment */
	double least;
	uint64_t round_end;	 /* the round ends when this many fragments are done */
	uint32_t taken, marked;	 /* results of this round */
	/* in this round: whether the window delayed a push; whether it was cut */
	uint32_t full, reduced;
};

/* `marks`: whether the links mark packets. If not, only losses show how much they hold. */
static inline void window_open(struct window *w, double limit, int marks)
{
	*w = (struct window){.threshold = limit, .congestion = 1, .limit = limit};
	w->least = marks ? 1 : limit < UNMARKED_LEAST ? limit : UNMARKED_LEAST;
	w->size = marks ? 1 : limit / 4 > w->least ? limit / 4 : w->least;
}

static inline void window_cut(struct window *w, double factor)
{
	w->size = w->size * factor > w->least ? w->size * factor : w->least;
}

/* Handles a result, with the fragments done and sent so far. Returns whether the window was cut. */
static inline int window_take(struct window *w, int marked, uint64_t done, uint64_t sent)
{
	int cut;

	w->taken++;
	if (marked) {
		w->marked++;
		if (w->threshold > w->size)
			w->threshold = w->size;
	} else if (w->full) {
		w->size += w->size < w->threshold ? 1 : 1 / w->size;
		w->size = w->size < w->limit ? w->size : w->limit;
	}
	if (done < w->round_end)
		return 0;
	cut = w->marked && !w->reduced;
	w->congestion += ((double)w->marked / w->taken - w->congestion) * MARK_GAIN;
	if (cut) {
		window_cut(w, 1 - w->congestion / 2);
		w->threshold = w->size;
	}
	w->round_end = sent;
	w->taken = w->marked = w->full = w->reduced = 0;
	return cut;
}

/*
 * Handles a notice: a slot was occupied by an older fragment (section VI-B of the paper). Cuts the window
 * once a round at most; returns whether it did.
 */
static inline int window_notice(struct window *w)
{
	if (w->reduced)
		return 0;
	w->reduced = 1;
	window_cut(w, 0.5);
	w->threshold = w->size;
	return 1;
}

/*
 * Handles a loss: a result is missing before others that came. Where links mark, a full link has marked
 * before, so that a loss is no sign of congestion. Returns whether the window was cut.
 */
static inline int window_lost(struct window *w)
{
	if (w->least == 1 || w->reduced)
		return 0;
	w->reduced = 1;
	window_cut(w, UNMARKED_LOSS);
	w->threshold = w->size;
	return 1;
}

#endif
