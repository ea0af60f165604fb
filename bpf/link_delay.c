/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Delay of a link, for kernels without netem: one program at the ingress of a wire's inner ends, ahead of the
 * redirect or the bridge that joins them. It hands each frame to a thread that holds it
 * (testbed/dataplanes/xdp/native/delays.c), with the number of its direction as a VLAN tag; a frame's own tag
 * moves into the frame. Loaded by testbed/dataplanes/xdp/link_delays.py.
 */
#include <uapi/linux/bpf.h>
#include <uapi/linux/if_ether.h>
#include <uapi/linux/pkt_cls.h>

#include "link_delay.h"

/*
 * By ifindex of the inner end where the frames arrive. Made and removed by the daemon, otherwise written
 * here. No lock: a veth device has one receive queue, polled by one CPU at a time.
 */
BPF_F_TABLE("hash", u32, struct delayed, delayed, 65536, BPF_F_NO_PREALLOC);

int link_delay(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex;
	struct delayed *direction = delayed.lookup(&ifindex);

	if (!direction)
		return TC_ACT_UNSPEC;
	if (bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), direction->number)) {
		direction->failed++;
		return TC_ACT_SHOT;
	}
	direction->handed++;
	return bpf_redirect(direction->device, 0);
}
