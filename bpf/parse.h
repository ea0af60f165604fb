/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Finds the headers of a frame; no state. */
#ifndef PARSE_H
#define PARSE_H

/* Where the parts of a gradient packet are. Pointers and not a packed struct: the lanes start 2 bytes off a 4-byte boundary,
 * and for a packed struct the compiler would read them byte by byte. */
struct gradient_packet {
	struct ethhdr *eth;
	struct iphdr *ip; /* no options */
	struct udphdr *udp;
	struct wire_header *inc;
	__be32 *lanes; /* WIRE_LANES of them */
};

#define UDP_BYTES (sizeof(struct udphdr) + sizeof(struct wire_header) + 4 * WIRE_LANES)

/* The IPv4 header, or 0. Frames with IP options are not ours to look into and go the slow way. */
static __always_inline struct iphdr *ipv4_of(void *data, void *end)
{
	struct ethhdr *eth = data;
	struct iphdr *ip = data + sizeof(*eth);

	if ((void *)(ip + 1) > end)
		return 0;
	if (eth->h_proto != bpf_htons(ETH_P_IP))
		return 0;
	if (ip->ihl != 5)
		return 0;
	return ip;
}

/* Whether an IPv4 frame is addressed to the gradient port. A fragment of a datagram has no port. */
static __always_inline int is_inc(struct iphdr *ip, void *end)
{
	struct udphdr *udp = (void *)(ip + 1);

	return ip->protocol == IPPROTO_UDP && !(ip->frag_off & bpf_htons(0x3fff)) && (void *)(udp + 1) <= end &&
	       udp->dest == bpf_htons(WIRE_UDP_PORT);
}

/* Fills *p and returns 1 if the packet is well formed. Its own lengths must be exact; bytes behind it are ignored. */
static __always_inline int gradients_of(struct gradient_packet *p, void *data, void *end)
{
	p->eth = data;
	p->ip = data + sizeof(*p->eth);
	p->udp = (void *)(p->ip + 1);
	p->inc = (void *)(p->udp + 1);
	p->lanes = (void *)(p->inc + 1);
	if ((void *)(p->lanes + WIRE_LANES) > end)
		return 0;
	if (p->ip->tot_len != bpf_htons(sizeof(*p->ip) + UDP_BYTES))
		return 0;
	if (p->udp->len != bpf_htons(UDP_BYTES))
		return 0;
	if (p->inc->magic != bpf_htons(WIRE_MAGIC) || p->inc->version != WIRE_VERSION)
		return 0;
	return bpf_ntohs(p->inc->count) <= WIRE_LANES;
}

static __always_inline void set_ip_checksum(struct iphdr *ip)
{
	u16 *word = (u16 *)ip;
	u32 sum = 0;
	int i;

	ip->check = 0;
#pragma unroll
	for (i = 0; i < 10; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	ip->check = ~((sum & 0xffff) + (sum >> 16));
}

static __always_inline void readdress(struct gradient_packet *p, __be32 from, __be32 to)
{
	p->ip->saddr = from;
	p->ip->daddr = to;
	p->ip->ttl = 64;
	p->udp->check = 0;
	set_ip_checksum(p->ip);
}

/* RFC 1112: 01:00:5e and the low 23 bits of the group. */
static __always_inline void set_group_mac(struct gradient_packet *p, __be32 group)
{
	u32 ip = bpf_ntohl(group);
	u8 mac[6] = {0x01, 0x00, 0x5e, (ip >> 16) & 0x7f, (ip >> 8) & 0xff, ip & 0xff};

	__builtin_memcpy(p->eth->h_dest, mac, 6);
}

#endif
