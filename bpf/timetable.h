/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The timetable: which matching it is, by the clock alone. The optical switch keeps it, and ToRs
 * send by it.
 */
#ifndef TIMETABLE_H
#define TIMETABLE_H

/* The one that holds, and what time it is then; none: circuits are as they were turned. */
static __always_inline struct timetable *timetable_now(u64 *now)
{
	u32 zero = 0;
	struct timetable *table = timetables.lookup(&zero);
	u64 start_ns = table ? *(volatile u64 *)&table->start_ns : 0;

	if (!start_ns || !table->period_ns)
		return 0;
	*now = bpf_ktime_get_ns();
	return *now >= start_ns ? table : 0;
}

/*
 * When a matching starts. Without the barrier clang takes the mask away, by which the verifier knows the
 * bound.
 */
static __always_inline u64 start_of(struct timetable *table, u64 matching)
{
	asm volatile("" : "+r"(matching));
	return table->starts_ns[matching & (MAX_MATCHINGS - 1)];
}

/*
 * The number of the matching, and how long it has lasted: by bisection, without a branch, so that the
 * verifier follows it once.
 */
static __always_inline u32 matching_of(struct timetable *table, u64 now, u64 *since_ns)
{
	u64 phase_ns = (now - table->start_ns) % table->period_ns, matching = 0, step, is_later;

#pragma unroll
	for (step = MAX_MATCHINGS / 2; step; step /= 2) {
		is_later = (phase_ns - start_of(table, matching + step)) >> 63;
		matching += step & (is_later - 1);
	}
	*since_ns = phase_ns - start_of(table, matching);
	return matching;
}

static __always_inline void count_crossing(u32 number, u32 verdict)
{
	struct crossings *crossed = crossings.lookup(&number);

	if (!crossed)
		return;
	if (verdict == V_LIT)
		crossed->lit += 1;
	else if (verdict == V_DARK)
		crossed->dark += 1;
	else
		crossed->unlit += 1;
}

#endif
