/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The optical switch: light that enters a port leaves the port at the other end of its circuit. A change of
 * circuits is written before it begins, and begins and ends by the clock here: whenever processes run, no
 * frame sees it earlier or later.
 */
#ifndef OPTICS_H
#define OPTICS_H

#include "calendar.h"
#include "timetable.h"

/* The controller's probes are answered, seen and not counted. */
static __always_inline int glimpsed(u32 number, u64 now, int dark, int lit)
{
	struct glimpse *seen = glimpses.lookup(&number);

	if (seen && dark) {
		if (!seen->dark_ns)
			seen->dark_ns = now;
		seen->still_dark_ns = now;
	} else if (seen && !seen->dark_ns) {
		seen->lit_ns = now;
	} else if (seen && !seen->lit_again_ns) {
		seen->lit_again_ns = now;
	}
	return lit ? XDP_TX : XDP_DROP;
}

/* Whether frames cross, and where to. */
struct light {
	u32 peer, ifindex;
	int dark;
};

/* By the timetable that holds now. */
static __always_inline void light_of(struct timetable *table, u32 number, u64 now, struct light *light)
{
	struct meeting_key key = {.port = number};
	struct meeting *meeting;
	u64 since_ns = 0;

	key.matching = matching_of(table, now, &since_ns);
	meeting = meetings.lookup(&key);
	light->peer = meeting ? meeting->peer : 0;
	light->ifindex = meeting ? meeting->ifindex : 0;
	light->dark = since_ns < table->guard_ns &&
		      !(meeting && meeting->stays && now - table->start_ns >= table->guard_ns);
}

/* By what the port was turned to last. */
static __always_inline void turned_to(struct circuit *circuit, u64 now, struct light *light)
{
	union {
		u64 word; /* read at once: both of one circuit */
		struct {
			u32 peer;
			u32 ifindex;
		};
	} end;
	u64 lit_at_ns;
	int early;

	end.word = *(volatile u64 *)&circuit->peer;
	lit_at_ns = *(volatile u64 *)&circuit->lit_at_ns;
	early = now < *(volatile u64 *)&circuit->dark_at_ns;
	if (early)
		end.word = *(volatile u64 *)&circuit->before;
	light->peer = end.peer;
	light->ifindex = end.ifindex;
	light->dark = !early && now < lit_at_ns;
}

/*
 * Whether a frame that arrives at a port now would cross. While a timetable holds, which says by which
 * circuits and when, nothing is sent by another.
 */
static __always_inline int has_light(u32 number, u64 now)
{
	struct circuit *circuit = circuits.lookup(&number);
	struct light light;
	u64 at;

	if (!circuit)
		return 0;
	if (timetable_now(&at))
		return 1;
	turned_to(circuit, now, &light);
	return !light.dark && light.peer;
}

/* Leaves the verdict as it is for the probe. */
static __always_inline int cross(struct xdp_md *ctx, u32 number, u32 *verdict)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct circuit *circuit = circuits.lookup(&number);
	u64 now = bpf_ktime_get_ns();
	struct timetable *table = timetable_now(&now);
	struct light light;

	if (!circuit || (void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	if (table)
		light_of(table, number, now, &light);
	else
		turned_to(circuit, now, &light);
	if (eth->h_proto == bpf_htons(WIRE_PROBE_ETHERTYPE))
		return glimpsed(number, now, light.dark, !light.dark && light.peer);
	*verdict = light.dark ? V_DARK : light.peer ? V_LIT : V_UNLIT;
	if (has_pass(eth) && eth->h_proto == bpf_htons(ETH_P_IP) && calendar_device()) {
		struct iphdr *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) > (void *)(long)ctx->data_end)
			return XDP_DROP;
		if (*verdict != V_LIT || (table && is_over(eth, now)))
			return wait_again(eth, verdict);
		restore_source(eth, ip);
	}
	count_crossing(number, *verdict);
	return *verdict == V_LIT ? bpf_redirect(light.ifindex, 0) : XDP_DROP;
}

#endif
