/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The pull side at a worker's interface: results go into the ring that the worker process has mapped; one
 * packet wakes it.
 */
#ifndef PULL_H
#define PULL_H

static __always_inline struct wake *wake_of(struct puller *puller)
{
	u32 zero = 0, index = puller->ring;
	void *map = wakes.lookup(&index);

	return map ? inner_lookup(map, &zero) : 0;
}

/* What a worker at a device waits for, of the packet's tree; or 0. */
static __always_inline struct puller *puller_of(struct gradient_packet *p, u32 ifindex)
{
	struct puller_key key = {.ifindex = ifindex, .tree = p->inc->tree};

	return pullers.lookup(&key);
}

/* The verdict on a result or notice that is not for the worker, or V_FINE. */
static __always_inline u32 is_for(struct gradient_packet *p, struct puller *puller)
{
	if (bpf_ntohs(p->inc->job) != puller->job)
		return V_BAD_JOB;
	if (bpf_ntohs(p->inc->lanes) != puller->lanes)
		return V_MALFORMED;
	return bpf_ntohl(p->inc->generation) == puller->generation ? V_FINE : V_BAD_GENERATION;
}

/* On to the worker's socket. */
static __always_inline int to_socket(struct gradient_packet *p, struct puller *puller)
{
	__builtin_memcpy(p->eth->h_dest, puller->mac, 6);
	readdress(p, p->ip->saddr, puller->ip);
	p->udp->dest = puller->port;
	p->udp->check = 0; /* checked already, and the stack would find it wrong for the new address */
	return XDP_PASS;
}

static __always_inline int pull(struct xdp_md *ctx, struct gradient_packet *p, struct puller *puller,
		u32 *verdict)
{
	u32 fragment = bpf_ntohl(p->inc->fragment), index = puller->ring;
	u32 place = bpf_ntohl(p->inc->slot) - puller->base;
	u64 sequence = (u64)fragment + 1;
	struct wake *wake = wake_of(puller);
	struct result *r = 0;
	void *map;

	*verdict = is_for(p, puller);
	if (*verdict != V_FINE)
		return XDP_DROP;
	*verdict = V_BAD_SLOT;
	if (place >= puller->size)
		return XDP_DROP;
	place += puller->first;
	map = rings.lookup(&index);
	if (map)
		r = inner_lookup(map, &place);
	if (!r || !wake)
		return XDP_DROP;
	*verdict = V_PULL_DUPLICATE;
	if (r->sequence && (s32)(fragment - (u32)(r->sequence - 1)) <= 0)
		return XDP_DROP;

	*verdict = V_PULLED;
	r->sequence = 0;
	barrier();
	if (!p->few)
		bpf_xdp_load_bytes(ctx, (void *)p->lanes - (void *)p->eth, r->lanes, sizeof(r->lanes));
	else
		load_few(ctx, p, r->lanes);
	r->contributors = bpf_ntohs(p->inc->contributors);
	r->flags = p->inc->flags | (is_marked(p) ? RESULT_MARKED : 0);
	if (p->ip->tos >> 2 == WIRE_DSCP_REPEATED)
		r->flags |= RESULT_REPEATED;
	barrier(); /* x86 keeps stores in order; the compiler must, too */
	*(volatile u64 *)&r->sequence = sequence;
	barrier();

	/*
	 * Locked: what follows must not be read before this is written, or both sides miss each other's word.
	 * Where results come by a loop as well, on another CPU at this moment, both may see the sum of both:
	 * then the worker's timer wakes it.
	 */
	__sync_fetch_and_add(&wake->received, 1);
	if (*(volatile u32 *)&wake->received != *(volatile u32 *)&wake->wake_at)
		return XDP_DROP;
	return to_socket(p, puller);
}

/* An answer: the worker reads it from its socket. */
static __always_inline int hear(struct gradient_packet *p, struct puller *puller, u32 *verdict)
{
	*verdict = puller ? is_for(p, puller) : V_BAD_JOB;
	if (*verdict != V_FINE)
		return XDP_DROP;
	*verdict = V_ANSWERED;
	return to_socket(p, puller);
}

/* A packet for the end of a tree with an owner, which reads it from its socket. */
static __always_inline int hand(struct gradient_packet *p, struct puller *puller, u32 *verdict)
{
	*verdict = puller ? is_for(p, puller) : V_BAD_JOB;
	if (*verdict != V_FINE)
		return XDP_DROP;
	*verdict = V_HANDED;
	return to_socket(p, puller);
}

static __always_inline int heed(struct gradient_packet *p, struct puller *puller, u32 *verdict)
{
	struct wake *wake = puller ? wake_of(puller) : 0;

	*verdict = puller && wake ? is_for(p, puller) : V_BAD_JOB;
	if (*verdict == V_FINE) {
		*verdict = V_NOTICE;
		__sync_fetch_and_add(&wake->notices, 1);
	}
	return XDP_DROP;
}

#endif
