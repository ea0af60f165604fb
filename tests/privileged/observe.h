/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Put between bpf/maps.h and what follows it by tests/privileged/observed.py: what the programs count and
 * where they ask the kernel to send is written down besides, and the clock is the test's. For
 * BPF_PROG_TEST_RUN, one frame at a time: no lock, no per-CPU copies.
 */
#define SEEN_VERDICTS 4
#define SEEN_PORTS 72
#define SENT_BY_DEVICE 1
#define SENT_TO_GROUP 2

struct seen {
	u32 counted; /* verdicts; the first SEEN_VERDICTS of them: */
	u32 verdicts[SEEN_VERDICTS];
	u32 kind; /* SENT_*, 0: neither */
	u64 flags; /* of the redirect to a group */
	u32 count; /* devices: the one, or all of the group */
	u32 ports[SEEN_PORTS];
	u32 pad;
};

/* Written by the programs, read and emptied by the test between two frames. */
BPF_F_TABLE("array", u32, struct seen, seen, 1, BPF_F_MMAPABLE);
BPF_F_TABLE("array", u32, u64, seen_clock, 1, BPF_F_MMAPABLE);

static __always_inline int note_verdict(u32 verdict, int action)
{
	u32 zero = 0;
	struct seen *s = seen.lookup(&zero);

	if (s && s->counted < SEEN_VERDICTS)
		s->verdicts[s->counted & (SEEN_VERDICTS - 1)] = verdict;
	if (s && verdict < V_COUNT)
		s->counted++;
	return counted(verdict, action);
}

static __always_inline int note_device(u32 ifindex, u64 flags)
{
	u32 zero = 0;
	struct seen *s = seen.lookup(&zero);

	if (s) {
		s->kind = SENT_BY_DEVICE;
		s->count = 1;
		s->ports[0] = ifindex;
	}
	return bpf_redirect(ifindex, flags);
}

static __always_inline long note_group(void *map, u64 key, u64 flags)
{
	u32 zero = 0, at, *ifindex;
	struct seen *s = seen.lookup(&zero);

	if (s) {
		s->kind = SENT_TO_GROUP;
		s->flags = flags;
		for (at = 0; at < SEEN_PORTS; at++) {
			u32 place = at;

			ifindex = inner_lookup(map, &place);
			if (!ifindex)
				break;
			s->ports[at] = *ifindex;
			s->count = at + 1;
		}
	}
	return redirect_to_group(map, key, flags);
}

static __always_inline u64 note_clock(void)
{
	u32 zero = 0;
	u64 *now = seen_clock.lookup(&zero);

	return now ? *now : 0;
}

#define counted note_verdict
#define bpf_redirect note_device
#define redirect_to_group note_group
#define bpf_ktime_get_ns note_clock
