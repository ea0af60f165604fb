/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The XDP programs: at a ToR's port, at an optical switch's port, at a host's interface, at the loop of a
 * host that is a place; where copies of results come out at a host; where empty pushes get room for a sum;
 * where frames come that waited for their slot; and where ticks come, which the agent alone sends. Each takes
 * a packet in once and counts one verdict where it ends.
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
#include "leave.h"
#include "port.h"
#include SYSTEMS /* headers of the programs that systems have, each behind its number, PROGRAM_NAME */
#include "question.h"
#include "pull.h"
#include "relay.h"

/* ---- at a ToR ---- */

static __always_inline int at_tor(struct xdp_md *ctx, struct gradient_packet *p, struct port *port,
		struct leaving *by, u32 *verdict)
{
	int kind = intake(ctx, p, verdict);

	if (kind == LOST)
		return SEND_NOTHING;
	if (!may_send(port, p))
		return lost(verdict, V_BAD_SENDER);
	if (kind == HAS_LANES && p->inc->op == WIRE_OP_RESULT && !is_copy(p, port)) {
		by->entry = entry_of(p, port->owner);
		return pass_result(p, by->entry, verdict);
	}
	if (p->ip->daddr != port->self_ip)
		return is_group(p->ip->daddr) ? lost(verdict, V_MALFORMED) : SEND_ON;
	if (p->inc->op == WIRE_OP_ANSWER || for_end(p->inc)) {
		*verdict = checked(p, by->entry);
		return lost(verdict, *verdict == V_FINE ? V_MALFORMED : *verdict);
	}
	if (kind == HAS_LANES)
		return contribute(ctx, p, by, verdict, 0);
	if (p->inc->op == WIRE_OP_EMPTY)
		return contribute(ctx, p, by, verdict, 1);
	return pass_notice(p, by->entry, verdict);
}

static __always_inline int enter_tor(struct xdp_md *ctx, struct gradient_packet *p, struct port *port,
		struct leaving *by, u32 *verdict)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = ipv4_of(data, end);

	*verdict = V_TO_OVS;
	if (!ip)
		return SEND_TO_STACK;
	p->eth = data;
	p->ip = ip;
	/* what comes from another unit to other addresses passes through */
	if (!is_inc(ip, end)) {
		if (port->kind == PORT_HOST)
			count_plain(ip, end, end - data);
		return SEND_ON;
	}
	if (port->kind == PORT_FABRIC && ip->daddr != port->self_ip && !is_group(ip->daddr))
		return SEND_ON;
	if (ip->daddr == port->self_ip && pass_question(ctx, ip, end))
		return lost(verdict, V_MALFORMED);
	point(p, data);
	if ((void *)(p->inc + 1) <= end) {
		by->entry = entry_by(p, port);
		if (pass_on(ctx, by->entry))
			return lost(verdict, V_BAD_JOB);
	}
	return at_tor(ctx, p, port, by, verdict);
}

PORT_PROGRAM(tor, enter_tor, SEND_TO_STACK)

/*
 * Where a ToR's empty pushes go that a sum is to be sent for, in a buffer with room for it: each is a push of
 * zeros here, as if it had come so by the port that it names. Nobody else sends to this device.
 */
static __always_inline int take_in(struct xdp_md *ctx, struct gradient_packet *p, struct leaving *by,
		u32 *verdict)
{
	struct port *port;
	u32 ifindex;

	if (!make_room(ctx, p))
		return SEND_NOTHING;
	__builtin_memcpy(&ifindex, p->eth->h_source, sizeof(ifindex));
	__builtin_memcpy(p->eth->h_source, p->eth->h_dest, sizeof(p->eth->h_source));
	port = ports.lookup(&ifindex);
	if (!port)
		return SEND_NOTHING;
	by->entry = entry_by(p, port);
	by->owner = port->owner;
	by->from = ifindex;
	return contribute(ctx, p, by, verdict, 0);
}

int room_port(struct xdp_md *ctx)
{
	struct gradient_packet packet;
	struct leaving by = {};
	u32 verdict = V_FINE;
	int send = take_in(ctx, &packet, &by, &verdict);

	send = leave(ctx, &packet, &by, send, 0, &verdict);
	return counted(verdict, send);
}

/*
 * Where frames that waited for their slot come back, each with the port by which it leaves. Nobody else sends
 * to this device.
 */
static __always_inline int leave_queue(struct xdp_md *ctx, u32 *verdict)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = ipv4_of(data, end);
	struct ethhdr *eth = data;
	struct pass *pass;
	u32 number, *device;
	u64 now = 0;

	*verdict = V_MALFORMED;
	if (!ip || !has_pass(eth))
		return XDP_DROP;
	pass = (void *)eth->h_source;
	number = FIRST_PORT(pass->unit);
	if (pass->port < CORE_PORT)
		number += pass->port;
	device = unit_links.lookup(&number);
	if (!device || !*device || (timetable_now(&now) && is_over(eth, now)))
		return wait_again(eth, verdict);
	if (pass->port == CORE_PORT)
		restore_source(eth, ip);
	*verdict = V_FORWARDED;
	return bpf_redirect(*device, 0);
}

int calendar_port(struct xdp_md *ctx)
{
	u32 verdict = V_FINE;
	int action = leave_queue(ctx, &verdict);

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
 * The worker's here, and the place's: what a place keeps goes to its worker as well, if that is of the job,
 * or where results are relayed to all of its members, of which that may be one.
 */
static __always_inline int take_result(struct xdp_md *ctx, struct gradient_packet *p, u32 ifindex,
		struct leaving *by, u32 *verdict)
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
			return SEND_NOTHING;
		*verdict = V_RESULT;
		if (is_relayed(entry)) {
			by->entry = entry;
			return SEND_RESULT;
		}
		if (!puller || puller->job != entry->id)
			return SEND_NOTHING;
	}
	return pull(ctx, p, puller, verdict) == XDP_PASS ? SEND_TO_STACK : SEND_NOTHING;
}

static __always_inline int at_host(struct xdp_md *ctx, struct gradient_packet *p, u32 ifindex,
		struct leaving *by, u32 *verdict)
{
	int kind = intake(ctx, p, verdict);

	if (kind == LOST)
		return SEND_NOTHING;
	if (kind == IS_BARE && p->inc->op == WIRE_OP_EMPTY)
		return lost(verdict, V_BAD_SENDER);
	if (for_end(p->inc))
		return hand(p, puller_of(p, ifindex), verdict) == XDP_PASS ? SEND_TO_STACK : SEND_NOTHING;
	if (kind == IS_BARE)
		return heed(p, puller_of(p, ifindex), verdict) == XDP_PASS ? SEND_TO_STACK : SEND_NOTHING;
	if (p->inc->op == WIRE_OP_RESULT)
		return take_result(ctx, p, ifindex, by, verdict);
	if (p->inc->op == WIRE_OP_TICK)
		return lost(verdict, V_BAD_SENDER);
	if (p->inc->op == WIRE_OP_ANSWER)
		return hear(p, puller_of(p, ifindex), verdict) == XDP_PASS ? SEND_TO_STACK : SEND_NOTHING;
	by->entry = entry_of(p, ifindex);
	if (!by->entry || p->ip->daddr != by->entry->self_ip)
		return lost(verdict, V_BAD_JOB);
	return contribute(ctx, p, by, verdict, 0);
}

int host_port(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = ipv4_of(data, end);
	struct gradient_packet packet;
	struct leaving by = {.eth0 = ctx->ingress_ifindex, .from = ctx->ingress_ifindex};
	u32 verdict = V_FINE;
	int send = SEND_TO_STACK;

	if (ip && is_inc(ip, end)) {
		if (pass_question(ctx, ip, end))
			send = lost(&verdict, V_MALFORMED);
		else
			send = at_host(ctx, &packet, ctx->ingress_ifindex, &by, &verdict);
	}
	send = leave(ctx, &packet, &by, send, 1, &verdict);
	return counted(verdict, send);
}

/* Whether what came by a loop is the place's, of the one worker that may send there. */
static __always_inline int is_its_own(struct gradient_packet *p, struct port *port)
{
	return p->ip->daddr == port->self_ip && port->job == bpf_ntohs(p->inc->job) &&
	       port->worker == bpf_ntohs(p->inc->worker);
}

static __always_inline int at_loop(struct xdp_md *ctx, struct gradient_packet *p, struct port *port,
		struct leaving *by, u32 *verdict)
{
	int kind = intake(ctx, p, verdict);

	if (kind == LOST)
		return SEND_NOTHING;
	if (kind != HAS_LANES || p->inc->op != WIRE_OP_PUSH || !is_its_own(p, port))
		return lost(verdict, V_BAD_SENDER);
	by->entry = entry_by(p, port);
	by->eth0 = port->owner;
	return contribute(ctx, p, by, verdict, 0);
}

static __always_inline int enter_loop(struct xdp_md *ctx, struct gradient_packet *p, struct port *port,
		struct leaving *by, u32 *verdict)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = ipv4_of(data, end);

	if (!ip || !is_inc(ip, end))
		return SEND_TO_STACK;
	if (pass_question(ctx, ip, end))
		return lost(verdict, V_MALFORMED);
	return at_loop(ctx, p, port, by, verdict);
}

/* Where the worker of a host that is a place pushes. */
int loop_port(struct xdp_md *ctx)
{
	u32 ifindex = ctx->ingress_ifindex, verdict = V_FINE;
	struct port *port = ports.lookup(&ifindex);
	struct leaving by = {.from = ifindex};
	struct gradient_packet packet;
	int send = port ? enter_loop(ctx, &packet, port, &by, &verdict) : SEND_TO_STACK;

	send = leave(ctx, &packet, &by, send, 1, &verdict);
	return counted(verdict, send);
}

/* Where the copies for one member come out. */
int copy_port(struct xdp_md *ctx)
{
	u32 verdict = V_FINE;
	int action = relay(ctx, &verdict);

	return counted(verdict, action);
}

/* ---- questions ---- */

static __always_inline int at_place(struct xdp_md *ctx, struct gradient_packet *p, struct port *port,
		struct leaving *by, u32 *verdict)
{
	int is_loop = port && port->kind == PORT_LOOP;

	if (intake(ctx, p, verdict) != HAS_LANES)
		return SEND_NOTHING;
	if (port && !(is_loop ? is_its_own(p, port) : may_send(port, p)))
		return lost(verdict, V_BAD_SENDER);
	by->entry = port ? entry_by(p, port) : entry_of(p, by->eth0);
	if (!port && (!by->entry || p->ip->daddr != by->entry->self_ip))
		return lost(verdict, V_BAD_JOB);
	return answer(ctx, p, by->entry, !is_loop, verdict);
}

/*
 * What is asked of a place: at a ToR's port, a host's or its loop, whose programs send it here. In those the
 * verifier would have no room for a walk through the lanes beside the sum's.
 */
int question_port(struct xdp_md *ctx)
{
	u32 ifindex = ctx->ingress_ifindex, verdict = V_FINE;
	struct port *port = ports.lookup(&ifindex);
	struct gradient_packet packet = {};
	struct leaving by = {.from = ifindex};
	int send;

	if (!port)
		by.eth0 = ifindex;
	else if (port->kind == PORT_LOOP)
		by.eth0 = port->owner;
	else
		by.owner = port->owner;
	send = at_place(ctx, &packet, port, &by, &verdict);
	send = leave(ctx, &packet, &by, send, 0, &verdict);
	return counted(verdict, send);
}

/* ---- ticks ---- */

/*
 * The control port of every place. Ticks come by a device that is for them alone, and name the place by any
 * of the ToR's ports, or by the host's eth0, in the place of a source address. So nobody else can send ticks.
 * A frame that it is run on comes by the device that names the place.
 */
int control_port(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = ipv4_of(data, end);
	struct gradient_packet packet;
	struct leaving by = {};
	u32 verdict = V_MALFORMED;
	int send = SEND_NOTHING;

	if (ip && is_inc(ip, end)) {
		place_of(ctx, data, &by);
		point(&packet, data);
		if ((void *)(packet.inc + 1) <= end && pass_tick_on(ctx, entry_of(&packet, by.owner)))
			verdict = V_BAD_JOB;
		else if (is_tick(ctx, &packet, &by, &verdict))
			send = tick(ctx, &packet, by.entry, &verdict);
	}
	send = leave(ctx, &packet, &by, send, 0, &verdict);
	return counted(verdict, send);
}
