/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* The three XDP programs: at a ToR's port, at an optical switch's port, at a host's interface. */
#include <uapi/linux/bpf.h>
#include <uapi/linux/if_ether.h>
#include <uapi/linux/in.h>
#include <uapi/linux/ip.h>
#include <uapi/linux/udp.h>

#include "maps.h"
#include "parse.h"
#include "faults.h"
#include "forward.h"
#include "optics.h"
#include "pull.h"
#include "aggregate.h"

static __always_inline struct job *job_at(u32 index, u32 id)
{
	struct job *job = jobs.lookup(&index);

	return job && job->role != ROLE_NONE && job->id == id ? job : 0;
}

static __always_inline struct job *job_of(struct gradient_packet *p, u32 owner)
{
	struct job_key key = {.owner = owner, .job = bpf_ntohs(p->inc->job)};
	u32 *index = job_index.lookup(&key);

	return index ? job_at(*index, key.job) : 0;
}

static __always_inline int multiply(void *group, u32 verdict, u64 flags)
{
	if (!group)
		return counted(V_BAD_JOB, XDP_DROP);
	return counted(verdict, redirect_to_group(group, 0, BPF_F_BROADCAST | flags));
}

static __always_inline int to_group(struct job *job, u32 verdict, u64 flags)
{
	u32 index = job->group;

	return multiply(groups.lookup(&index), verdict, flags);
}

static __always_inline int to_workers(struct job *job, u32 verdict, u64 flags)
{
	u32 index = job->group;

	return multiply(worker_groups.lookup(&index), verdict, flags);
}

/*
 * Back by the port it came from. Not XDP_TX: veth wakes its peer after that only if the peer has a program of
 * its own, while a redirect wakes any peer that polls (drivers/net/veth.c, veth_xdp_flush and veth_xdp_xmit;
 * seen on 6.18).
 */
static __always_inline int bounce(struct xdp_md *ctx)
{
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

static __always_inline int notify(struct xdp_md *ctx, struct job *job)
{
	return counted(V_MISMATCH, make_notice(ctx, job) ? bounce(ctx) : XDP_DROP);
}

/*
 * Whether the worker or PS at a host's port may send this: docs/protocol.md, rule 2. What comes by an optical
 * port was checked where it entered.
 */
static __always_inline int may_send(struct port *port, struct gradient_packet *p)
{
	if (port->kind == PORT_FABRIC)
		return 1;
	if (port->job != bpf_ntohs(p->inc->job))
		return 0;
	if (port->kind == PORT_WORKER)
		return p->inc->op == WIRE_OP_PUSH &&
		       p->ip->daddr == port->self_ip && port->worker == bpf_ntohs(p->inc->worker);
	return port->kind == PORT_PS && (p->inc->op == WIRE_OP_RESULT || p->inc->op == WIRE_OP_NOTICE);
}

/*
 * A notice for this switch: to the job's workers here. It is still addressed to this switch, so any other
 * would send it back.
 */
static __always_inline int pass_notice(struct gradient_packet *p, struct port *port)
{
	struct job *job = job_of(p, port->owner);

	if (!job)
		return counted(V_BAD_JOB, XDP_DROP);
	if (bpf_ntohl(p->inc->generation) != job->generation)
		return counted(V_BAD_GENERATION, XDP_DROP);
	if (!job->members)
		return counted(V_BAD_WORKER, XDP_DROP);
	return to_workers(job, V_NOTICE, BPF_F_EXCLUDE_INGRESS);
}

/* A result from the PS: to the job's workers here and beyond. */
static __always_inline int pass_result(struct gradient_packet *p, struct port *port)
{
	struct job *job = job_of(p, port->owner);

	if (!job)
		return counted(V_BAD_JOB, XDP_DROP);
	if (bpf_ntohl(p->inc->generation) != job->generation)
		return counted(V_BAD_GENERATION, XDP_DROP);
	if (p->ip->daddr != job->group_ip || job->role == ROLE_FINAL)
		return counted(V_MALFORMED, XDP_DROP);
	if (job->role == ROLE_PARTIAL && !keep_result(p, job))
		return counted(V_BAD_SLOT, XDP_DROP);
	return to_group(job, V_RESULT, BPF_F_EXCLUDE_INGRESS);
}

int tor_port(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u32 ifindex = ctx->ingress_ifindex, verdict = V_MALFORMED;
	struct port *port = ports.lookup(&ifindex);
	struct iphdr *ip = ipv4_of(data, end);
	struct gradient_packet packet, *p = &packet;
	struct job *job;
	int send;

	if (!port)
		return XDP_PASS;
	if (!ip)
		return counted(V_TO_OVS, XDP_PASS);
	if (!is_inc(ip, end))
		return forward(data, ip, port->owner);
	/* 239/8 is for results; what comes from another unit to other addresses passes through. */
	if (port->kind == PORT_FABRIC && ip->daddr != port->self_ip &&
	    (ip->daddr & bpf_htonl(0xff000000)) != bpf_htonl((u32)WIRE_GROUP_BYTE << 24))
		return forward(data, ip, port->owner);

	if (notice_of(p, data, end)) {
		if (!is_intact(p, HEADER_BYTES))
			return counted(V_CORRUPT, XDP_DROP);
		if (!may_send(port, p))
			return counted(V_BAD_SENDER, XDP_DROP);
		return ip->daddr == port->self_ip ? pass_notice(p, port) : forward(data, ip, port->owner);
	}
	if (!gradients_of(p, data, end))
		return counted(V_MALFORMED, XDP_DROP);
	if (is_lost(ifindex, p))
		return counted(V_FAULT, XDP_DROP);
	if (!is_intact(p, UDP_BYTES))
		return counted(V_CORRUPT, XDP_DROP);
	if (!may_send(port, p))
		return counted(V_BAD_SENDER, XDP_DROP);
	if (p->inc->op == WIRE_OP_RESULT)
		return pass_result(p, port);
	if (p->inc->op != WIRE_OP_PUSH || port->kind != PORT_WORKER)
		return counted(V_BAD_SENDER, XDP_DROP);
	job = job_at(port->index, port->job);
	if (!job)
		return counted(V_BAD_JOB, XDP_DROP);

	send = add(p, job, &verdict);
	if (send == SEND_NOTHING)
		return counted(verdict, XDP_DROP);
	if (send == SEND_NOTICE)
		return notify(ctx, job);
	if (send == SEND_RESULT)
		return to_group(job, verdict, 0);
	counted(verdict, 0);
	if (send == SEND_RESULT_BACK)
		return bounce(ctx);
	return forward(p->eth, p->ip, port->owner);
}

int oxc_port(struct xdp_md *ctx)
{
	u32 ifindex = ctx->ingress_ifindex;
	struct port *port = ports.lookup(&ifindex);

	return port ? cross(ctx, port->number) : XDP_DROP;
}

/*
 * At the PS host: sums the units' partial sums. One copy of the result leaves it: the fabric multiplies it.
 */
static __always_inline int at_ps(struct xdp_md *ctx, struct gradient_packet *p)
{
	u32 verdict = V_MALFORMED;
	struct job *job = job_of(p, ctx->ingress_ifindex);
	int send;

	if (!job || p->ip->daddr != job->self_ip)
		return counted(V_BAD_JOB, XDP_DROP);
	send = add(p, job, &verdict);
	if (send == SEND_NOTHING)
		return counted(verdict, XDP_DROP);
	return send == SEND_NOTICE ? notify(ctx, job) : counted(verdict, bounce(ctx));
}

int host_port(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u32 ifindex = ctx->ingress_ifindex;
	struct iphdr *ip = ipv4_of(data, end);
	struct gradient_packet packet, *p = &packet;
	struct puller *puller;

	if (!ip)
		return XDP_PASS;
	if (!is_inc(ip, end))
		return XDP_PASS;
	if (notice_of(p, data, end)) {
		puller = pullers.lookup(&ifindex);
		if (!is_intact(p, HEADER_BYTES))
			return counted(V_CORRUPT, XDP_DROP);
		return puller ? heed(p, puller) : counted(V_BAD_JOB, XDP_DROP);
	}
	if (!gradients_of(p, data, end))
		return counted(V_MALFORMED, XDP_DROP);
	if (is_lost(ifindex, p))
		return counted(V_FAULT, XDP_DROP);
	if (!is_intact(p, UDP_BYTES))
		return counted(V_CORRUPT, XDP_DROP);
	if (p->inc->op == WIRE_OP_PARTIAL)
		return at_ps(ctx, p);
	if (p->inc->op != WIRE_OP_RESULT)
		return counted(V_MALFORMED, XDP_DROP);
	puller = pullers.lookup(&ifindex);
	return puller ? pull(ctx, p, puller) : counted(V_BAD_JOB, XDP_DROP);
}
