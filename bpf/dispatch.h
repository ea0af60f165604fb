/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Which program works on what comes to a place: a tree's entry says. A system that the core's sum does not
 * serve brings systems/NAME.h with two functions of the shape of add() and tick(), a number in
 * testbed/contract/places.py (Program) and a case in each function here.
 */
#ifndef DISPATCH_H
#define DISPATCH_H

/* A contribution; `is_empty`, which is a constant, says of which kind. Returns one of SEND_*. */
static __always_inline int work_on(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		u32 *verdict, int is_empty)
{
	switch (entry->program) {
	case PROGRAM_SUM:
		return add(ctx, p, entry, verdict, is_empty);
	}
	*verdict = V_BAD_JOB;
	return SEND_NOTHING;
}

/* A tick. */
static __always_inline int work_on_tick(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		u32 *verdict)
{
	switch (entry->program) {
	case PROGRAM_SUM:
		return tick(ctx, p, entry, verdict);
	}
	*verdict = V_BAD_JOB;
	return SEND_NOTHING;
}

#endif
