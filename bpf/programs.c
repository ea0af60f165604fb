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

static __always_inline struct job *job_at(struct gradient_packet *p, u32 owner)
{
	struct job_key key = {.owner = owner, .job = bpf_ntohs(p->inc->job)};

	return jobs.lookup(&key);
}

static __always_inline int to_group(struct job *job, u32 verdict, u64 flags)
{
	u32 index = job->group;
	void *group = groups.lookup(&index);

	if (!group)
		return counted(V_BAD_JOB, XDP_DROP);
	return counted(verdict, redirect_to_group(group, 0, BPF_F_BROADCAST | flags));
}

/* Back by the port it came from. Not XDP_TX: veth wakes its peer after that only if the peer has a program of its own, while a redirect
 * wakes any peer that polls (drivers/net/veth.c, veth_xdp_flush and veth_xdp_xmit; seen on 6.18). */
static __always_inline int bounce(struct xdp_md *ctx)
{
	return bpf_redirect(ctx->ingress_ifindex, 0);
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
	/* 239/8 is for results; other addresses than this switch's pass through. */
	if (ip->daddr != port->self_ip && (ip->daddr & bpf_htonl(0xff000000)) != bpf_htonl(0xef000000))
		return forward(data, ip, port->owner);

	if (!gradients_of(p, data, end))
		return counted(V_MALFORMED, XDP_DROP);
	if (is_lost(ifindex, p))
		return counted(V_FAULT, XDP_DROP);
	job = job_at(p, port->owner);
	if (!job)
		return counted(V_BAD_JOB, XDP_DROP);
	if (p->inc->op == WIRE_OP_RESULT) {
		if (p->ip->daddr != job->group_ip || bpf_ntohl(p->inc->generation) != job->generation || job->role == ROLE_FINAL)
			return counted(V_BAD_GENERATION, XDP_DROP);
		if (job->role == ROLE_PARTIAL)
			keep_result(p, job, port->owner);
		return to_group(job, V_RESULT, BPF_F_EXCLUDE_INGRESS);
	}
	if (p->inc->op != WIRE_OP_PUSH || p->ip->daddr != port->self_ip)
		return counted(V_MALFORMED, XDP_DROP);
	if (job->role == ROLE_TRANSIT)
		return counted(V_BAD_WORKER, XDP_DROP);

	send = add(p, job, port->owner, &verdict);
	if (send == SEND_NOTHING)
		return counted(verdict, XDP_DROP);
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

int host_port(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u32 ifindex = ctx->ingress_ifindex, verdict = V_MALFORMED;
	struct iphdr *ip = ipv4_of(data, end);
	struct gradient_packet packet, *p = &packet;
	struct puller *puller;
	struct job *job;

	if (!ip)
		return XDP_PASS;
	if (!is_inc(ip, end))
		return XDP_PASS;
	if (!gradients_of(p, data, end))
		return counted(V_MALFORMED, XDP_DROP);
	if (is_lost(ifindex, p))
		return counted(V_FAULT, XDP_DROP);
	if (p->inc->op == WIRE_OP_RESULT) {
		puller = pullers.lookup(&ifindex);
		return puller ? pull(p, puller) : counted(V_BAD_JOB, XDP_DROP);
	}
	if (p->inc->op != WIRE_OP_PARTIAL)
		return counted(V_MALFORMED, XDP_DROP);
	job = job_at(p, ifindex);
	if (!job || p->ip->daddr != job->self_ip)
		return counted(V_BAD_JOB, XDP_DROP);
	if (add(p, job, ifindex, &verdict) == SEND_NOTHING)
		return counted(verdict, XDP_DROP);
	return counted(verdict, bounce(ctx)); /* one copy: the fabric multiplies it */
}
