/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The one of several parallel circuits that a packet takes: testbed/wire/spreading.py. While that is
 * dark, as a transceiver sees by its own light, it takes another.
 */
#ifndef SPREAD_H
#define SPREAD_H

static __always_inline u32 bucket_of_number(u32 number)
{
	return (u32)(number * SPREAD_FACTOR) >> (32 - SPREAD_BITS);
}

static __always_inline u32 circuit_of(u32 bucket, u32 circuits)
{
	return bucket * circuits >> SPREAD_BITS;
}

/* The bucket by which a packet is tried in a turn. */
static __always_inline u32 tried_bucket(u32 bucket, u32 turn)
{
	return (bucket + turn * (SPREAD_BUCKETS / SPREAD_TRIES)) & (SPREAD_BUCKETS - 1);
}

/* Ports are there in a first fragment alone, so no fragment of a datagram goes by them. */
static __always_inline int has_ports(struct iphdr *ip, void *end)
{
	struct udphdr *udp = (void *)(ip + 1);

	return (ip->protocol == IPPROTO_UDP || ip->protocol == IPPROTO_TCP) &&
	       !(ip->frag_off & bpf_htons(0x3fff)) && (void *)(udp + 1) <= end;
}

static __always_inline u32 bucket_of(struct iphdr *ip, void *end)
{
	struct udphdr *udp = (void *)(ip + 1);
	struct wire_header *inc = (void *)(udp + 1);
	u32 number = bpf_ntohl(ip->saddr) + bpf_ntohl(ip->daddr);

	if (is_inc(ip, end) && (void *)(inc + 1) <= end)
		number = bpf_ntohl(inc->fragment);
	else if (has_ports(ip, end))
		number += bpf_ntohs(udp->source) + bpf_ntohs(udp->dest);
	return bucket_of_number(number);
}

/* The cell of groups by which a result leaves, or one that is none. */
static __always_inline u32 cell_of(struct entry *entry, u32 fragment)
{
	u32 bucket = bucket_of_number(fragment), first = MAX_GROUP_CELLS, turn, i;
	u64 now = 0;

#pragma unroll
	for (turn = 0; turn < SPREAD_TRIES; turn++) {
		u32 at = entry->group * SPREAD_BUCKETS + tried_bucket(bucket, turn), dark = 0;
		struct group_way *way = group_ways.lookup(&at);

		if (!way)
			return first;
		if (!way->checked[0])
			return way->cell; /* nothing is parallel */
		if (!turn) {
			first = way->cell;
			now = bpf_ktime_get_ns();
		}
#pragma unroll
		for (i = 0; i < SPREAD_CHECKED; i++)
			dark |= way->checked[i] && !has_light(way->checked[i], now);
		if (!dark)
			return way->cell;
	}
	return first;
}

#endif
