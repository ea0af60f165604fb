/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The fast path of a unit's switches: IPv4 destination -> port, as the flows in Open vSwitch say. What has
 * no entry goes there; what is for a unit that none leads to counts as lost for want of a circuit. While a
 * timetable holds each matching has routes of its own between units, and such packets are lost here.
 */
#ifndef FORWARD_H
#define FORWARD_H

#include "calendar.h"
#include "timetable.h"

#define FIRST_PORT(unit) (((unit) - 1) * OPTICAL_STRIDE) /* of its optical ports' numbers, and none itself */

/* Of the parallel circuits of a route, the packet's own, or while that is dark the next that is lit. */
static __always_inline struct route *spread(struct route_key *key, struct route *route, struct iphdr *ip,
		void *end)
{
	u32 bucket = bucket_of(ip, end), ways = route->ways, turn;
	struct route *own = 0, *other;
	u64 now = bpf_ktime_get_ns();

#pragma unroll
	for (turn = 0; turn < SPREAD_TRIES; turn++) {
		key->way = circuit_of(tried_bucket(bucket, turn), ways);
		other = key->way ? routes.lookup(key) : route;
		if (!own)
			own = other;
		if (other && has_light(other->number, now))
			return other;
	}
	return own ? own : route;
}

/* Counts a plain packet that a host sent. */
static __always_inline void count_plain(struct iphdr *ip, void *end, u64 bytes)
{
	struct flow key = {.from_ip = ip->saddr, .to_ip = ip->daddr, .protocol = ip->protocol};
	__be16 *ends = (void *)(ip + 1);
	u64 *so_far;

	if ((ip->protocol == IPPROTO_TCP || ip->protocol == IPPROTO_UDP) &&
			!(ip->frag_off & bpf_htons(0x1fff)) && (void *)(ends + 2) <= end) {
		u32 from = bpf_ntohs(ends[0]), to = bpf_ntohs(ends[1]);

		key.port = from < to ? from : to;
	}
	so_far = flows.lookup(&key);
	if (so_far)
		__sync_fetch_and_add(so_far, bytes);
	else
		flows.update(&key, &bytes);
}

/* Whether a packet is for another unit than the switch's own. */
static __always_inline int is_elsewhere(struct iphdr *ip, u32 owner)
{
	u32 goal = bpf_ntohl(ip->daddr);

	return goal >> 24 == 10 && (goal >> 8 & 0xff) != (owner & 0xff);
}

static __always_inline int forward(struct ethhdr *eth, struct iphdr *ip, void *end, u32 owner, u32 *verdict)
{
	u64 now = 0, since_ns;
	struct timetable *table = timetable_now(&now);
	struct route_key key = {.owner = owner, .ip = ip->daddr, .prefix = 32};
	struct route *route;

	if (table && owner <= MOST_UNITS && is_elsewhere(ip, owner)) {
		u32 device = calendar_device();

		if (device)
			return wait_behind(device, eth, owner, verdict);
		key.owner |= (matching_of(table, now, &since_ns) + 1) << MATCHING_SHIFT;
	}
	route = routes.lookup(&key);
	if (!route) {
		key.ip = ip->daddr & bpf_htonl(0xffffff00);
		key.prefix = 24;
		route = routes.lookup(&key);
	}
	if (!route) { /* of a pod's ToR, up to the pod switch */
		key.ip = 0;
		key.prefix = 0;
		route = routes.lookup(&key);
	}
	if (!route && is_elsewhere(ip, owner)) { /* Open vSwitch knows no way to it either */
		count_crossing(FIRST_PORT(owner & 0xff), V_UNLIT);
		if (table) {
			*verdict = V_UNLIT;
			return XDP_DROP;
		}
	}
	*verdict = V_TO_OVS;
	if (!route || !route->ifindex)
		return XDP_PASS;
	*verdict = V_FORWARDED;
	if (route->ways > 1)
		route = spread(&key, route, ip, end);
	if (has_pass(eth)) /* the queues send none here */
		restore_source(eth, ip);
	if (route->mac[0] | route->mac[1] | route->mac[5])
		__builtin_memcpy(eth->h_dest, route->mac, 6);
	return bpf_redirect(route->ifindex, 0);
}

#endif
