/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* The pull side at a worker's interface: results go into the ring that the worker process has mapped; one packet wakes it. */
#ifndef PULL_H
#define PULL_H

static __always_inline int pull(struct gradient_packet *p, struct puller *puller)
{
	u32 fragment = bpf_ntohl(p->inc->fragment), index = fragment % RING_ENTRIES, zero = 0, ring_key = puller->ring;
	u64 sequence = (u64)fragment + 1;
	struct result *r;
	struct wake *wake;
	void *map;
	int i;

	if (bpf_ntohs(p->inc->job) != puller->job)
		return counted(V_BAD_JOB, XDP_DROP);
	if (bpf_ntohl(p->inc->generation) != puller->generation)
		return counted(V_BAD_GENERATION, XDP_DROP);
	map = rings.lookup(&ring_key);
	if (!map)
		return counted(V_BAD_JOB, XDP_DROP);
	r = inner_lookup(map, &index);
	if (!r)
		return counted(V_BAD_JOB, XDP_DROP);
	map = wakes.lookup(&ring_key);
	if (!map)
		return counted(V_BAD_JOB, XDP_DROP);
	wake = inner_lookup(map, &zero);
	if (!wake)
		return counted(V_BAD_JOB, XDP_DROP);
	if (r->sequence >= sequence)
		return counted(V_PULL_DUPLICATE, XDP_DROP);

	r->sequence = 0;
	barrier();
	for (i = 0; i < WIRE_LANES; i++)
		r->lanes[i] = p->lanes[i];
	r->contributors = bpf_ntohs(p->inc->contributors);
	r->flags = p->inc->flags;
	barrier(); /* x86 keeps stores in order; the compiler must, too */
	*(volatile u64 *)&r->sequence = sequence;
	barrier();

	wake->received += 1;
	if (wake->received != *(volatile u32 *)&wake->wake_at)
		return counted(V_PULLED, XDP_DROP);
	__builtin_memcpy(p->eth->h_dest, puller->mac, 6);
	readdress(p, p->ip->saddr, puller->ip);
	return counted(V_PULLED, XDP_PASS);
}

#endif
