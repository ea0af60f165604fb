/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The fast path of a unit's switches: IPv4 destination -> port, as the flows in Open vSwitch say. What has
 * no entry goes there.
 */
#ifndef FORWARD_H
#define FORWARD_H

static __always_inline int forward(struct ethhdr *eth, struct iphdr *ip, u32 owner, u32 *verdict)
{
	struct route_key key = {.owner = owner, .ip = ip->daddr, .prefix = 32};
	struct route *route = routes.lookup(&key);

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
	*verdict = V_TO_OVS;
	if (!route || !route->ifindex)
		return XDP_PASS;
	*verdict = V_FORWARDED;
	if (route->mac[0] | route->mac[1] | route->mac[5])
		__builtin_memcpy(eth->h_dest, route->mac, 6);
	return bpf_redirect(route->ifindex, 0);
}

#endif
