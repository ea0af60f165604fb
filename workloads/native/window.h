/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many fragments a worker may have under way: congestion control by marks, after RFC 8257 (DCTCP);
 * docs/protocol.md says the rule. No clock, no I/O: a function of what results say.
 */
#ifndef WINDOW_H
#define WINDOW_H

#include <stdint.h>

#define MARK_GAIN 0.0625    /* weight of the newest round: g of RFC 8257 */
#define UNMARKED_LEAST 8    /* where no link marks: what losses and notices leave */
#define UNMARKED_LOSS 0.7   /* and what of the window a loss leaves: beta of RFC 9438 */

struct window {
	double size;	   /* fragments */
	double threshold;  /* below it the window doubles each round */
	double congestion; /* smoothed share of marked results: alpha of RFC 8257 */
	double limit;	   /* what the segment has room for */
	double least;
	uint64_t round_end;	 /* the round is over when so many are done */
	uint32_t taken, marked;	 /* results of this round */
	/* whether the window held something back in this round; whether it was cut in it */
	uint32_t full, reduced;
};

/* `marks`: whether the links do. Where they do not, nothing tells how much they hold but losses. */
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

/* A result came: so many are done now, so many were sent. Whether the window was cut. */
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

/* A notice: a slot was taken by an older fragment (section VI-B of the paper). At most once a round. */
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
 * A result is missing before others that came. Where links mark, a full one has marked before: then a loss is
 * no sign of congestion.
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
