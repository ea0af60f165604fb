/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The pull side at a worker's interface: results go into the ring that the worker process has mapped; one
 * packet wakes it.
 */
#ifndef PULL_H
#define PULL_H

/* Hands the packet to the worker's socket if it waits for this many results. */
static __always_inline int maybe_wake(struct gradient_packet *p, struct puller *puller, struct wake *wake,
				      u32 verdict)
{
	if (*(volatile u32 *)&wake->received != *(volatile u32 *)&wake->wake_at)
		return counted(verdict, XDP_DROP);
	__builtin_memcpy(p->eth->h_dest, puller->mac, 6);
	readdress(p, p->ip->saddr, puller->ip);
	p->udp->check = 0; /* checked already, and the stack would find it wrong for the new address */
	return counted(verdict, XDP_PASS);
}

static __always_inline struct wake *wake_of(struct puller *puller)
{
	u32 zero = 0, index = puller->ring;
	void *map = wakes.lookup(&index);

	return map ? inner_lookup(map, &zero) : 0;
}

static __always_inline int pull(struct xdp_md *ctx, struct gradient_packet *p, struct puller *puller)
{
	u32 fragment = bpf_ntohl(p->inc->fragment), place = bpf_ntohl(p->inc->slot) - puller->base;
	u32 index = puller->ring;
	u64 sequence = (u64)fragment + 1;
	struct wake *wake = wake_of(puller);
	struct result *r;
	void *map;

	if (bpf_ntohs(p->inc->job) != puller->job)
		return counted(V_BAD_JOB, XDP_DROP);
	if (bpf_ntohl(p->inc->generation) != puller->generation)
		return counted(V_BAD_GENERATION, XDP_DROP);
	if (place >= puller->size)
		return counted(V_BAD_SLOT, XDP_DROP);
	map = rings.lookup(&index);
	if (!map || !wake)
		return counted(V_BAD_JOB, XDP_DROP);
	r = inner_lookup(map, &place);
	if (!r)
		return counted(V_BAD_SLOT, XDP_DROP);
	if (r->sequence && (s32)(fragment - (u32)(r->sequence - 1)) <= 0)
		return counted(V_PULL_DUPLICATE, XDP_DROP);

	r->sequence = 0;
	barrier();
	bpf_xdp_load_bytes(ctx, (void *)p->lanes - (void *)p->eth, r->lanes, sizeof(r->lanes));
	r->contributors = bpf_ntohs(p->inc->contributors);
	r->flags = p->inc->flags | (is_marked(p) ? RESULT_MARKED : 0) |
		   (p->ip->tos >> 2 == WIRE_DSCP_REPEATED ? RESULT_REPEATED : 0);
	barrier(); /* x86 keeps stores in order; the compiler must, too */
	*(volatile u64 *)&r->sequence = sequence;
	barrier();

	/*
	 * locked: what follows must not be read before this is written, or both sides miss each other's word
	 */
	__sync_fetch_and_add(&wake->received, 1);
	return maybe_wake(p, puller, wake, V_PULLED);
}

static __always_inline int heed(struct gradient_packet *p, struct puller *puller)
{
	struct wake *wake = wake_of(puller);

	if (!wake || bpf_ntohs(p->inc->job) != puller->job)
		return counted(V_BAD_JOB, XDP_DROP);
	if (bpf_ntohl(p->inc->generation) != puller->generation)
		return counted(V_BAD_GENERATION, XDP_DROP);
	*(volatile u32 *)&wake->notices += 1;
	return counted(V_NOTICE, XDP_DROP);
}

#endif
