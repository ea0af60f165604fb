/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * By which way what a place worked on leaves: every program's one exit but the optical switch's, so that each
 * way is in a program once. What decides returns one of SEND_*, and says here to whom.
 */
#ifndef LEAVE_H
#define LEAVE_H

/* What is to be sent besides what sum.h sends. */
#define SEND_ON 6	    /* the packet as it came, as the ToR's routes say */
#define SEND_TO_STACK 7	    /* the same, to the kernel: at a port Open vSwitch, at a host the worker */
#define SEND_RESULT_ON 8    /* a result from above, to the group without who sent it */
#define SEND_TO_WORKERS 9   /* a notice, likewise to the tree's workers here */

/* Whose way it is. */
struct leaving {
	struct entry *entry; /* of the tree, or 0 where what is sent asks for none */
	u32 owner; /* of the ToR, whose routes it takes */
	u32 eth0;  /* the ifindex of a host's, 0 at a ToR */
	u32 from;  /* the port that it came by */
};

static __always_inline int multiply(void *group, u64 flags, u32 *verdict)
{
	if (!group) {
		*verdict = V_BAD_JOB;
		return XDP_DROP;
	}
	return redirect_to_group(group, 0, BPF_F_BROADCAST | flags);
}

static __always_inline int to_group(struct gradient_packet *p, struct entry *entry, u64 flags, u32 *verdict)
{
	u32 cell = cell_of(entry, bpf_ntohl(p->inc->fragment));

	return multiply(groups.lookup(&cell), flags, verdict);
}

static __always_inline int to_workers(struct entry *entry, u64 flags, u32 *verdict)
{
	u32 index = entry->group;

	return multiply(worker_groups.lookup(&index), flags, verdict);
}

/*
 * Back by the port it came from. Not XDP_TX: veth wakes its peer after that only if the peer has a program of
 * its own, while a redirect wakes any peer that polls (drivers/net/veth.c, veth_xdp_flush and veth_xdp_xmit;
 * seen on 6.18).
 */
static __always_inline int bounce(u32 ifindex)
{
	return bpf_redirect(ifindex, 0);
}

/*
 * To room_port(), twice: the kernel gives each copy but the last a page of its own (net/core/xdp.c,
 * xdpf_clone), in which a sum has room; the last is the buffer that it came in, and ends there. The port is
 * written where a sum has its own sender's address.
 */
static __always_inline int to_room(struct gradient_packet *p, u32 ifindex, u32 *verdict)
{
	u32 zero = 0;

	__builtin_memcpy(p->eth->h_source, &ifindex, sizeof(ifindex));
	return multiply(rooms.lookup(&zero), 0, verdict);
}

/*
 * `at_host`, which is a constant, says that the program is a host's, which has no routes and takes no empty
 * pushes.
 */
static __always_inline int leave(struct xdp_md *ctx, struct gradient_packet *p, struct leaving *by, int send,
		int at_host, u32 *verdict)
{
	u64 others = send == SEND_RESULT_ON ? BPF_F_EXCLUDE_INGRESS : 0;
	u32 way;

	if (send == SEND_NOTHING)
		return XDP_DROP;
	if (send == SEND_TO_STACK)
		return XDP_PASS;
	if (send == SEND_RESULT || (!at_host && send == SEND_RESULT_ON))
		return to_group(p, by->entry, others, verdict);
	if (!at_host && send == SEND_TO_WORKERS)
		return to_workers(by->entry, BPF_F_EXCLUDE_INGRESS, verdict);
	if (send == SEND_NOTICE)
		return make_notice(ctx, by->entry) ? bounce(by->from) : XDP_DROP;
	if (send == SEND_RESULT_BACK)
		return bounce(by->from);
	if (!at_host && send == SEND_FOR_ROOM)
		return to_room(p, by->from, verdict);
	if (at_host || by->eth0)
		return bpf_redirect(by->eth0, 0);
	return forward(p->eth, p->ip, (void *)(long)ctx->data_end, by->owner,
		send == SEND_ON ? verdict : &way);
}

#endif
