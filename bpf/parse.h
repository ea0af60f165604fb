/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Finds the headers of a frame; no state. */
#ifndef PARSE_H
#define PARSE_H

/*
 * Where the parts of a gradient packet are. Pointers and not a packed struct: the lanes start 2 bytes off a
 * 4-byte boundary, and for a packed struct the compiler would read them byte by byte.
 */
struct gradient_packet {
	struct ethhdr *eth;
	struct iphdr *ip; /* no options */
	struct udphdr *udp;
	struct wire_header *inc;
	__be32 *lanes; /* WIRE_LANES of them: in the packet, or where it has fewer, in `few` */
	struct few *few; /* or 0 */
};

#define HEADER_BYTES (sizeof(struct udphdr) + sizeof(struct wire_header)) /* UDP length without lanes */
#define UDP_BYTES (HEADER_BYTES + 4 * WIRE_LANES)
#define CSUM_CHUNK 512 /* most that bpf_csum_diff took at once before 6.13 */

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

	return ip->protocol == IPPROTO_UDP && !(ip->frag_off & bpf_htons(0x3fff)) &&
		(void *)(udp + 1) <= end &&
	       udp->dest == bpf_htons(WIRE_UDP_PORT);
}

static __always_inline void point(struct gradient_packet *p, void *data)
{
	p->eth = data;
	p->ip = data + sizeof(*p->eth);
	p->udp = (void *)(p->ip + 1);
	p->inc = (void *)(p->udp + 1);
	p->lanes = (void *)(p->inc + 1);
	p->few = 0;
}

static __always_inline u32 lanes_bytes(struct gradient_packet *p)
{
	return 4 * bpf_ntohs(p->inc->lanes);
}

/*
 * The same where those are fewer than fit, else 4. The compiler must not put both comparisons into one, in
 * which the verifier sees no bounds.
 */
static __always_inline u64 few_bytes(struct gradient_packet *p)
{
	u64 bytes = lanes_bytes(p);

	asm volatile("" : "+r"(bytes));
	if (bytes < 4)
		bytes = 4;
	asm volatile("" : "+r"(bytes));
	if (bytes >= 4 * WIRE_LANES)
		bytes = 4;
	asm volatile("" : "+r"(bytes));
	return bytes;
}

static __always_inline int lengths_are(struct gradient_packet *p, u32 udp_bytes)
{
	return p->ip->tot_len == bpf_htons(sizeof(*p->ip) + udp_bytes) && p->udp->len == bpf_htons(udp_bytes);
}

static __always_inline int is_ours(struct wire_header *inc)
{
	return inc->magic == bpf_htons(WIRE_MAGIC) && inc->version == WIRE_VERSION && WIRE_IS_OP(inc->op) &&
	       bpf_ntohs(inc->count) <= bpf_ntohs(inc->lanes);
}

/* Reads the lanes of a packet that has fewer than fit. Returns 0 if they are not all there. */
static __always_inline int load_few(struct xdp_md *ctx, struct gradient_packet *p, void *into)
{
	return bpf_xdp_load_bytes(ctx, (void *)(p->inc + 1) - (void *)p->eth, into, few_bytes(p)) == 0;
}

/* Has programs work on a copy of such lanes, with zeros behind them. */
static __always_inline int copy_few(struct xdp_md *ctx, struct gradient_packet *p)
{
	u32 zero = 0;
	struct few *few = fews.lookup(&zero);
	int i;

	if (!few)
		return 0;
	for (i = 0; i < WIRE_LANES / 2; i++)
		/* or the compiler would call memset, which is not there */
		*(volatile u64 *)&few->pairs[i] = 0;
	p->lanes = (void *)few;
	p->few = few;
	return load_few(ctx, p, few);
}

/* Puts them back. */
static __always_inline void put_few(struct xdp_md *ctx, struct gradient_packet *p)
{
	bpf_xdp_store_bytes(ctx, (void *)(p->inc + 1) - (void *)p->eth, p->few, few_bytes(p));
}

/*
 * Fills *p and returns 1 if the packet carries lanes and is well formed. Its own lengths must be exact; bytes
 * behind it are ignored.
 */
static __always_inline int gradients_of(struct xdp_md *ctx, struct gradient_packet *p, void *data, void *end)
{
	point(p, data);
	if ((void *)(p->inc + 1) > end)
		return 0;
	if (!lengths_are(p, HEADER_BYTES + lanes_bytes(p)) || !is_ours(p->inc) || !WIRE_HAS_LANES(p->inc->op))
		return 0;
	if (p->inc->lanes != bpf_htons(WIRE_LANES))
		return p->inc->lanes && bpf_ntohs(p->inc->lanes) < WIRE_LANES && copy_few(ctx, p);
	return (void *)(p->lanes + WIRE_LANES) <= end;
}

/* The same for a packet that ends with the header: a notice, or an empty push. */
static __always_inline int bare_of(struct gradient_packet *p, void *data, void *end)
{
	point(p, data);
	if ((void *)(p->inc + 1) > end)
		return 0;
	return lengths_are(p, HEADER_BYTES) && is_ours(p->inc) && bpf_ntohs(p->inc->lanes) <= WIRE_LANES &&
		p->inc->lanes &&
	       !WIRE_HAS_LANES(p->inc->op);
}

/* A worker's contribution, with its lanes or without. */
static __always_inline int of_worker(struct wire_header *inc)
{
	return inc->op == WIRE_OP_PUSH || inc->op == WIRE_OP_EMPTY;
}

/* What a worker sends by its own port alone. */
static __always_inline int by_worker(struct wire_header *inc)
{
	return of_worker(inc) || inc->op == WIRE_OP_PARAMETER_BEAT;
}

/* What the owner of a tree sends, and nobody else. */
static __always_inline int by_owner(struct wire_header *inc)
{
	return inc->op == WIRE_OP_PARAMETERS || inc->op == WIRE_OP_GRADIENT_BEAT;
}

/* What a host hands to the end of a tree with an owner that it has. */
static __always_inline int for_end(struct wire_header *inc)
{
	return inc->op >= WIRE_OP_SUM && inc->op <= WIRE_OP_GRADIENT_BEAT;
}

/* 239/8 is for results. */
static __always_inline int is_group(__be32 ip)
{
	return (ip & bpf_htonl(0xff000000)) == bpf_htonl((u32)WIRE_GROUP_BYTE << 24);
}

static __always_inline u32 part_sum(void *at, u32 bytes, u32 part)
{
	u32 done;

#pragma unroll
	for (done = 0; done < bytes; done += CSUM_CHUNK)
		part = bpf_csum_diff(0, 0, at + done, bytes - done < CSUM_CHUNK ? bytes - done : CSUM_CHUNK,
			part);
	return part;
}

/*
 * The 16-bit ones' complement sum of the datagram and its pseudo header (RFC 768); 0xffff if its checksum is
 * in it and right.
 */
static __always_inline u16 datagram_sum(struct gradient_packet *p, u32 bytes)
{
	u64 sum = (u64)p->ip->saddr + p->ip->daddr + bpf_htons(IPPROTO_UDP) + p->udp->len;
	u32 part;

	sum = (sum & 0xffffffff) + (sum >> 32);
	part = (u32)((sum & 0xffffffff) + (sum >> 32));
	if (bytes == UDP_BYTES && p->few)
		part = part_sum(p->few, 4 * WIRE_LANES, part_sum(p->udp, HEADER_BYTES, part));
	else
		part = part_sum(p->udp, bytes, part);
	part = (part & 0xffff) + (part >> 16);
	return (part & 0xffff) + (part >> 16);
}

/* `bytes` is HEADER_BYTES of a packet without lanes, else UDP_BYTES. */
static __always_inline int is_intact(struct gradient_packet *p, u32 bytes)
{
	return p->udp->check && datagram_sum(p, bytes) == 0xffff;
}

static __always_inline void set_udp_checksum(struct gradient_packet *p, u32 bytes)
{
	u16 sum;

	p->udp->check = 0;
	sum = ~datagram_sum(p, bytes);
	p->udp->check = sum ? sum : 0xffff;
}

/* Whether a queue on its way was long (RFC 3168: congestion experienced). */
static __always_inline int is_marked(struct gradient_packet *p)
{
	return (p->ip->tos & WIRE_CE) == WIRE_CE;
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
	p->ip->ttl = WIRE_TTL;
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
