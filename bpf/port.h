/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * What the programs of a place's ports have in common: how a packet is taken in, who may send it, and how one
 * that is another program's goes over to that.
 *
 * A tree's entry says which program works on it (testbed/wire/places.py, Program). Those of systems are
 * programs of the kernel of their own, NAME_port for contributions and results and NAME_tick_port for ticks,
 * since the verifier has no room for them beside the core's sum. PORT_PROGRAM and TICK_PROGRAM make each of
 * one function, which says what is to be sent (SEND_*).
 */
#ifndef PORT_H
#define PORT_H

#define LOST 0
#define IS_BARE 1
#define HAS_LANES 2

/* All bits where a number is below zero; the compiler must not make a branch of it. */
static __always_inline s64 below_zero(s64 number)
{
	number >>= 63;
	asm volatile("" : "+r"(number));
	return number;
}

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
	return SEND_NOTHING;
}

/* A contribution that is addressed to this place; `is_empty`, which is a constant,
 * says of which kind. */
static __always_inline int contribute(struct xdp_md *ctx, struct gradient_packet *p, struct leaving *by,
		u32 *verdict, int is_empty)
{
	*verdict = checked(p, by->entry);
	if (*verdict != V_FINE)
		return SEND_NOTHING;
	if (by->entry->program != PROGRAM_SUM)
		return lost(verdict, V_BAD_JOB);
	return add(ctx, p, by->entry, verdict, is_empty);
}

/*
 * What is a question is question_port()'s: there is no return from that. Returns 0 for any other packet, and
 * 1 where that program is not loaded: the packet is lost, and nothing of it may be read, for the verifier of
 * some kernels (6.12) knows no packet's bounds after a tail call.
 */
static __always_inline int pass_question(struct xdp_md *ctx, struct iphdr *ip, void *end)
{
	struct wire_header *inc = (void *)(ip + 1) + sizeof(struct udphdr);

	if ((void *)(inc + 1) > end || inc->op != WIRE_OP_QUESTION)
		return 0;
	question_ports.call(ctx, 0);
	return 1;
}

/*
 * The same of what is another program's than the core's: that of the entry.
 */
static __always_inline int pass_on(struct xdp_md *ctx, struct entry *entry)
{
	if (!entry || entry->program == PROGRAM_SUM)
		return 0;
	port_programs.call(ctx, entry->program);
	return 1;
}

/* The same of a tick. */
static __always_inline int pass_tick_on(struct xdp_md *ctx, struct entry *entry)
{
	if (!entry || entry->program == PROGRAM_SUM)
		return 0;
	tick_programs.call(ctx, entry->program);
	return 1;
}

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
	if (by_worker(p->inc))
		return port->worker == bpf_ntohs(p->inc->worker);
	if (by_owner(p->inc))
		return port->is_owner;
	if (p->inc->op == WIRE_OP_SUM)
		return 0;
	if (p->inc->op == WIRE_OP_QUESTION && port->worker == bpf_ntohs(p->inc->worker))
		return 1;
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
		return SEND_NOTHING;
	if (entry->role == ROLE_TRANSIT)
		return lost(verdict, V_BAD_WORKER);
	*verdict = V_NOTICE;
	return SEND_TO_WORKERS;
}

/* A result from above: to the tree's workers here and beyond. */
static __always_inline int pass_result(struct gradient_packet *p, struct entry *entry, u32 *verdict)
{
	*verdict = checked(p, entry);
	if (*verdict == V_FINE)
		*verdict = keep_result(p, entry);
	if (*verdict != V_FINE)
		return SEND_NOTHING;
	*verdict = V_RESULT;
	return SEND_RESULT_ON;
}

/* A result that a host sends to another: it is no switch's, and goes on by its route. */
static __always_inline int is_copy(struct gradient_packet *p, struct port *port)
{
	return port->relays && p->ip->daddr != port->self_ip && !is_group(p->ip->daddr);
}

/* The place that a tick is for, by the device that stands for it. */
static __always_inline void place_of(struct xdp_md *ctx, struct ethhdr *eth, struct leaving *by)
{
	u32 ifindex = ctx->ingress_ifindex;
	struct port *port = ports.lookup(&ifindex);

	if (port && port->kind == PORT_CONTROL) {
		__builtin_memcpy(&ifindex, eth->h_source, sizeof(ifindex));
		port = ports.lookup(&ifindex);
	}
	by->owner = port ? port->owner : ifindex;
	by->eth0 = port ? 0 : ifindex;
	by->from = ifindex;
}

/* A well-formed tick for a tree here. */
static __always_inline int is_tick(struct xdp_md *ctx, struct gradient_packet *p, struct leaving *by,
		u32 *verdict)
{
	int kind = intake(ctx, p, verdict);

	if (kind == LOST)
		return 0;
	if (kind != HAS_LANES || p->inc->op != WIRE_OP_TICK) {
		*verdict = V_BAD_SENDER;
		return 0;
	}
	__builtin_memcpy(p->eth->h_source, p->eth->h_dest, sizeof(p->eth->h_source));
	by->entry = entry_of(p, by->owner);
	*verdict = checked(p, by->entry);
	return *verdict == V_FINE;
}

static __always_inline struct port *port_by(u32 ifindex)
{
	return ports.lookup(&ifindex);
}

/*
 * The program NAME_port, at a ToR's port: `enter` says what is to be sent of what comes there, `other` what
 * of what comes by a device that is no port.
 */
#define PORT_PROGRAM(name, enter, other)							\
	int name##_port(struct xdp_md *ctx)							\
	{											\
		u32 verdict = V_FINE;								\
		struct port *port = port_by(ctx->ingress_ifindex);				\
		struct leaving by = {.from = ctx->ingress_ifindex};				\
		struct gradient_packet packet = {};						\
		int send = other;								\
												\
		if (port) {									\
			by.owner = port->owner;							\
			send = enter(ctx, &packet, port, &by, &verdict);			\
		}										\
		send = leave(ctx, &packet, &by, send, 0, &verdict);				\
		return counted(verdict, send);							\
	}

/* The program NAME_tick_port: `tick` says what is to be sent at a well-formed tick of a tree here. */
#define TICK_PROGRAM(name, tick)								\
	int name##_tick_port(struct xdp_md *ctx)						\
	{											\
		void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;	\
		struct iphdr *ip = ipv4_of(data, end);						\
		struct gradient_packet packet;							\
		struct leaving by = {};								\
		u32 verdict = V_MALFORMED;							\
		int send = SEND_NOTHING;							\
												\
		if (ip) {									\
			place_of(ctx, data, &by);						\
			if (is_tick(ctx, &packet, &by, &verdict))				\
				send = tick(ctx, &packet, by.entry, &verdict);			\
		}										\
		send = leave(ctx, &packet, &by, send, 0, &verdict);				\
		return counted(verdict, send);							\
	}

#endif
