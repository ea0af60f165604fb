/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The XDP programs: at a ToR's port, at an optical switch's port, at a host's interface, at the loop of a
 * host that is a place; where empty pushes get room for a sum; and one that is attached nowhere, and run by
 * the agent alone, for ticks. Each takes a packet in once and counts one verdict where it ends.
 */
#include <uapi/linux/bpf.h>
#include <uapi/linux/if_ether.h>
#include <uapi/linux/in.h>
#include <uapi/linux/ip.h>
#include <uapi/linux/udp.h>

#include "maps.h"
#include "parse.h"
#include "optics.h"
#include "spread.h"
#include "forward.h"
#include "sum.h"
#include "dispatch.h"
#include "pull.h"

#define LOST 0
#define IS_BARE 1
#define HAS_LANES 2

/* What every program does first with a gradient packet. Sets the verdict if it is LOST. */
static __always_inline int intake(struct xdp_md *ctx, struct gradient_packet *p, u32 *verdict)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	*verdict = V_CORRUPT;
	if (bare_of(p, data, end))
		return is_intact(p, HEADER_BYTES) ? IS_BARE : LOST;
	if (!gradients_of(ctx, p, data, end)) {
		*verdict = V_MALFORMED;
		return LOST;
	}
	return is_intact(p, UDP_BYTES) ? HAS_LANES : LOST;
}

static __always_inline int lost(u32 *verdict, u32 why)
{
	*verdict = why;
	return XDP_DROP;
}

static __always_inline int multiply(void *group, u64 flags, u32 *verdict)
{
	if (!group)
		return lost(verdict, V_BAD_JOB);
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
 * By which way what was made of a contribution or a tick leaves. `eth0` is the ifindex of a host's, 0 at the
 * ToR of `owner`; `from` the port that it came by.
 */
static __always_inline int leave(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry, int send,
		u32 owner, u32 eth0, u32 from, u32 *verdict)
{
	u32 way;

	if (send == SEND_NOTHING)
		return XDP_DROP;
	if (send == SEND_RESULT)
		return to_group(p, entry, 0, verdict);
	if (send == SEND_NOTICE)
		return make_notice(ctx, entry) ? bounce(from) : XDP_DROP;
	if (send == SEND_RESULT_BACK)
		return bounce(from);
	if (send == SEND_FOR_ROOM)
		return to_room(p, from, verdict);
	return eth0 ? bpf_redirect(eth0, 0)
		    : forward(p->eth, p->ip, (void *)(long)ctx->data_end, owner, &way);
}

/* A push or partial sum that is addressed to this place. */
static __always_inline int contribute(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		u32 owner, u32 eth0, u32 from, u32 *verdict)
{
	*verdict = checked(p, entry);
	if (*verdict != V_FINE)
		return XDP_DROP;
	return leave(ctx, p, entry, work_on(ctx, p, entry, verdict, 0), owner, eth0, from, verdict);
}

/* An empty push that is addressed to this ToR. */
static __always_inline int contribute_zeros(struct xdp_md *ctx, struct gradient_packet *p,
		struct entry *entry, u32 owner, u32 from, u32 *verdict)
{
	*verdict = checked(p, entry);
	if (*verdict != V_FINE)
		return XDP_DROP;
	return leave(ctx, p, entry, work_on(ctx, p, entry, verdict, 1), owner, 0, from, verdict);
}

/* ---- at a ToR ---- */

/*
 * Whether this may come by a port: docs/protocol.md, rule 2. What comes by an optical port was checked where
 * it entered.
 */
static __always_inline int may_send(struct port *port, struct gradient_packet *p)
{
	if (port->kind == PORT_FABRIC)
		return p->inc->op != WIRE_OP_TICK;
	if (port->job != bpf_ntohs(p->inc->job))
		return 0;
	if (of_worker(p->inc))
		return port->worker == bpf_ntohs(p->inc->worker);
	return port->is_place && p->inc->op != WIRE_OP_TICK;
}

/*
 * A notice for this switch: to the tree's workers here. It is still addressed to this switch, so any other
 * would send it back.
 */
static __always_inline int pass_notice(struct gradient_packet *p, struct entry *entry, u32 *verdict)
{
	*verdict = checked(p, entry);
	if (*verdict != V_FINE)
		return XDP_DROP;
	if (entry->role == ROLE_TRANSIT)
		return lost(verdict, V_BAD_WORKER);
	*verdict = V_NOTICE;
	return to_workers(entry, BPF_F_EXCLUDE_INGRESS, verdict);
}

/* A result from above: to the tree's workers here and beyond. */
static __always_inline int pass_result(struct gradient_packet *p, struct entry *entry, u32 *verdict)
{
	*verdict = checked(p, entry);
	if (*verdict == V_FINE)
		*verdict = keep_result(p, entry);
	if (*verdict != V_FINE)
		return XDP_DROP;
	*verdict = V_RESULT;
	return to_group(p, entry, BPF_F_EXCLUDE_INGRESS, verdict);
}

static __always_inline int at_tor(struct xdp_md *ctx, struct gradient_packet *p, struct port *port,
		u32 *verdict)
{
	int kind = intake(ctx, p, verdict);

	if (kind == LOST)
		return XDP_DROP;
	if (!may_send(port, p))
		return lost(verdict, V_BAD_SENDER);
	if (kind == HAS_LANES && p->inc->op == WIRE_OP_RESULT)
		return pass_result(p, entry_of(p, port->owner), verdict);
	if (p->ip->daddr != port->self_ip)
		return is_group(p->ip->daddr) ? lost(verdict, V_MALFORMED)
					      : forward(p->eth, p->ip, (void *)(long)ctx->data_end,
							port->owner, verdict);
	if (kind == HAS_LANES)
		return contribute(ctx, p, entry_by(p, port), port->owner, 0, ctx->ingress_ifindex, verdict);
	if (p->inc->op == WIRE_OP_EMPTY)
		return contribute_zeros(ctx, p, entry_by(p, port), port->owner, ctx->ingress_ifindex,
			verdict);
	return pass_notice(p, entry_of(p, port->owner), verdict);
}

static __always_inline int enter_tor(struct xdp_md *ctx, struct port *port, u32 *verdict)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = ipv4_of(data, end);
	struct gradient_packet packet;

	*verdict = V_TO_OVS;
	if (!ip)
		return XDP_PASS;
	/* what comes from another unit to other addresses passes through */
	if (!is_inc(ip, end) || (port->kind == PORT_FABRIC && ip->daddr != port->self_ip &&
		!is_group(ip->daddr)))
		return forward(data, ip, end, port->owner, verdict);
	return at_tor(ctx, &packet, port, verdict);
}

int tor_port(struct xdp_md *ctx)
{
	u32 ifindex = ctx->ingress_ifindex, verdict = V_FINE;
	struct port *port = ports.lookup(&ifindex);
	int action = port ? enter_tor(ctx, port, &verdict) : XDP_PASS;

	return counted(verdict, action);
}

/*
 * Where a ToR's empty pushes go that a sum is to be sent for, in a buffer with room for it: each is a push of
 * zeros here, as if it had come so by the port that it names. Nobody else sends to this device.
 */
static __always_inline int take_in(struct xdp_md *ctx, struct gradient_packet *p, u32 *verdict)
{
	struct port *port;
	u32 ifindex;

	if (!make_room(ctx, p))
		return XDP_DROP;
	__builtin_memcpy(&ifindex, p->eth->h_source, sizeof(ifindex));
	__builtin_memcpy(p->eth->h_source, p->eth->h_dest, sizeof(p->eth->h_source));
	port = ports.lookup(&ifindex);
	if (!port)
		return XDP_DROP;
	return contribute(ctx, p, entry_by(p, port), port->owner, 0, ifindex, verdict);
}

int room_port(struct xdp_md *ctx)
{
	struct gradient_packet packet;
	u32 verdict = V_FINE;
	int action = take_in(ctx, &packet, &verdict);

	return counted(verdict, action);
}

/* ---- at the optical switch ---- */

int oxc_port(struct xdp_md *ctx)
{
	u32 ifindex = ctx->ingress_ifindex, verdict = V_FINE;
	struct port *port = ports.lookup(&ifindex);
	int action = port ? cross(ctx, port->number, &verdict) : XDP_DROP;

	return counted(verdict, action);
}

/* ---- at a host ---- */

/*
 * The worker's here, and the place's: what a place keeps goes to its worker as well, if that is of the job.
 */
static __always_inline int take_result(struct xdp_md *ctx, struct gradient_packet *p, u32 ifindex,
		u32 *verdict)
{
	struct puller *puller = puller_of(p, ifindex);
	struct entry *entry = puller && !puller->at_place ? 0 : entry_of(p, ifindex);

	if (!puller && !entry)
		return lost(verdict, V_BAD_JOB);
	if (entry) {
		*verdict = checked(p, entry);
		if (*verdict == V_FINE)
			*verdict = keep_result(p, entry);
		if (*verdict != V_FINE)
			return XDP_DROP;
		if (!puller || puller->job != entry->id)
			return lost(verdict, V_RESULT);
	}
	return pull(ctx, p, puller, verdict);
}

static __always_inline int at_host(struct xdp_md *ctx, struct gradient_packet *p, u32 ifindex, u32 *verdict)
{
	int kind = intake(ctx, p, verdict);
	struct entry *entry;

	if (kind == LOST)
		return XDP_DROP;
	if (kind == IS_BARE && p->inc->op == WIRE_OP_EMPTY)
		return lost(verdict, V_BAD_SENDER);
	if (kind == IS_BARE)
		return heed(p, puller_of(p, ifindex), verdict);
	if (p->inc->op == WIRE_OP_RESULT)
		return take_result(ctx, p, ifindex, verdict);
	if (p->inc->op == WIRE_OP_TICK)
		return lost(verdict, V_BAD_SENDER);
	entry = entry_of(p, ifindex);
	if (!entry || p->ip->daddr != entry->self_ip)
		return lost(verdict, V_BAD_JOB);
	return contribute(ctx, p, entry, 0, ifindex, ifindex, verdict);
}

int host_port(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = ipv4_of(data, end);
	struct gradient_packet packet;
	u32 verdict = V_FINE;
	int action = XDP_PASS;

	if (ip && is_inc(ip, end))
		action = at_host(ctx, &packet, ctx->ingress_ifindex, &verdict);
	return counted(verdict, action);
}

static __always_inline int at_loop(struct xdp_md *ctx, struct gradient_packet *p, struct port *port,
		u32 *verdict)
{
	int kind = intake(ctx, p, verdict);

	if (kind == LOST)
		return XDP_DROP;
	if (kind != HAS_LANES || p->inc->op != WIRE_OP_PUSH || p->ip->daddr != port->self_ip ||
	    port->job != bpf_ntohs(p->inc->job) || port->worker != bpf_ntohs(p->inc->worker))
		return lost(verdict, V_BAD_SENDER);
	return contribute(ctx, p, entry_by(p, port), 0, port->owner, ctx->ingress_ifindex, verdict);
}

static __always_inline int enter_loop(struct xdp_md *ctx, struct port *port, u32 *verdict)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = ipv4_of(data, end);
	struct gradient_packet packet;

	return ip && is_inc(ip, end) ? at_loop(ctx, &packet, port, verdict) : XDP_PASS;
}

/* Where the worker of a host that is a place pushes. */
int loop_port(struct xdp_md *ctx)
{
	u32 ifindex = ctx->ingress_ifindex, verdict = V_FINE;
	struct port *port = ports.lookup(&ifindex);
	int action = port ? enter_loop(ctx, port, &verdict) : XDP_PASS;

	return counted(verdict, action);
}

/* ---- ticks ---- */

static __always_inline int at_control(struct xdp_md *ctx, struct gradient_packet *p, struct port *port,
		u32 ifindex, u32 *verdict)
{
	int kind = intake(ctx, p, verdict);
	u32 owner = port ? port->owner : ifindex;
	struct entry *entry;

	if (kind == LOST)
		return XDP_DROP;
	if (kind != HAS_LANES || p->inc->op != WIRE_OP_TICK)
		return lost(verdict, V_BAD_SENDER);
	entry = entry_of(p, owner);
	*verdict = checked(p, entry);
	if (*verdict != V_FINE)
		return XDP_DROP;
	return leave(ctx, p, entry, work_on_tick(ctx, p, entry, verdict), owner, port ? 0 : owner, ifindex,
		verdict);
}

/*
 * The control port of every place. The agent runs it on a frame, and names the place by any of the ToR's
 * ports, or by the host's eth0, as the device that the frame came by. Frames that are too long for that come
 * by a device that is for ticks alone, with the number of that port in the place of a source address. So
 * nobody else can send ticks.
 */
int control_port(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u32 ifindex = ctx->ingress_ifindex, verdict = V_MALFORMED;
	struct port *port = ports.lookup(&ifindex);
	struct iphdr *ip = ipv4_of(data, end);
	struct gradient_packet packet;
	struct ethhdr *eth = data;
	int action = XDP_DROP;

	if (ip && is_inc(ip, end)) {
		if (port && port->kind == PORT_CONTROL) {
			__builtin_memcpy(&ifindex, eth->h_source, sizeof(ifindex));
			__builtin_memcpy(eth->h_source, eth->h_dest, sizeof(eth->h_source));
			port = ports.lookup(&ifindex);
		}
		action = at_control(ctx, &packet, port, ifindex, &verdict);
	}
	return counted(verdict, action);
}
