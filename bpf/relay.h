/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Copies of results, one for each member of a place at a host. A redirect multiplies a result to the outer
 * ends of pairs of devices, of which the host has one for each member; where a copy comes out of the inner
 * end it gets that member's addresses, and leaves by the host's own link. (ALEPH, section 5.4, figure 4.)
 *
 * Not by a program of the device map's cells: of frames that leave by one device in one turn the kernel asks
 * the first alone for its program (kernel/bpf/devmap.c, bq_enqueue), and partial sums leave by eth0, too;
 * and in generic mode the copies share one buffer until they come in again somewhere.
 */
#ifndef RELAY_H
#define RELAY_H

/* The addresses alone change, so the checksum is told the difference (RFC 1624). */
static __always_inline void readdress_copy(struct gradient_packet *p, struct copy *copy)
{
	u64 sum = (u16)~p->udp->check;
	u16 check;

	sum += (u64)(u32)~p->ip->saddr + (u32)~p->ip->daddr + copy->from_ip + copy->to_ip;
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	check = ~(u16)sum;
	p->udp->check = check ? check : 0xffff;
	__builtin_memcpy(p->eth->h_dest, copy->mac, 6);
	readdress(p, copy->from_ip, copy->to_ip);
}

/* What the host's own programs sent there is whole; whatever else somebody there sends is not to leave so. */
static __always_inline int relay(struct xdp_md *ctx, u32 *verdict)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u32 ifindex = ctx->ingress_ifindex;
	struct gradient_packet packet, *p = &packet;
	struct iphdr *ip = ipv4_of(data, end);
	struct copy *copy;

	*verdict = V_BAD_SENDER;
	if (!ip)
		return XDP_DROP;
	point(p, data);
	if ((void *)(p->inc + 1) > end || !is_inc(ip, end) || p->inc->op != WIRE_OP_RESULT)
		return XDP_DROP;
	copy = copies.lookup(&ifindex);
	if (!copy)
		return XDP_DROP;
	*verdict = V_FORWARDED;
	readdress_copy(p, copy);
	return bpf_redirect(copy->ifindex, 0);
}

#endif
