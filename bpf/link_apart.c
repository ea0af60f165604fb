/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Users' jobs apart: one program where each host sends into its link, before any switch, whatever the
 * switch's engine. A frame from a host of one user's job to a host of another's is lost, and counted. Who
 * sends is told by the device, not by an address. Loaded by testbed/dataplanes/xdp/link_apart.py.
 */
#include <uapi/linux/bpf.h>
#include <uapi/linux/if_ether.h>
#include <uapi/linux/in.h>
#include <uapi/linux/ip.h>
#include <uapi/linux/pkt_cls.h>

#include "link_apart.h"

/* By ifindex of a host's interface. Made and written by the daemon; programs count, by atomic addition. */
BPF_F_TABLE("hash", u32, struct tenant, tenants, 16384, BPF_F_NO_PREALLOC);

/* The interface of the host that has this address, as testbed/topology/addresses.py numbers them. */
static __always_inline u32 interface_of(u32 ip)
{
	return HOST_IFINDEXES + ((ip >> 16 & 0xff) << 20) + ((ip >> 8 & 0xff) << 8) + (ip & 0xff);
}

int link_apart(struct __sk_buff *skb)
{
	u32 own = skb->ifindex, other, ip;
	struct tenant *from = tenants.lookup(&own), *to;

	if (!from || !from->user || skb->protocol != bpf_htons(ETH_P_IP))
		return TC_ACT_UNSPEC;
	if (bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct iphdr, daddr), &ip, sizeof(ip)))
		return TC_ACT_UNSPEC;
	ip = bpf_ntohl(ip);
	other = interface_of(ip);
	to = ip >> 24 == 10 ? tenants.lookup(&other) : 0;
	if (!to || !to->user || to->user == from->user)
		return TC_ACT_UNSPEC;
	__sync_fetch_and_add(&from->dropped, 1);
	return TC_ACT_SHOT;
}
