/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The optical switch: light that enters a port leaves the port at the other end of its circuit, once the
 * circuit is lit. The agent's probe of the gate is not traffic.
 */
#ifndef OPTICS_H
#define OPTICS_H

static __always_inline int cross(struct xdp_md *ctx, u32 number)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct circuit *circuit = circuits.lookup(&number);
	int probe;

	if (!circuit || (void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	probe = eth->h_proto == bpf_htons(WIRE_PROBE_ETHERTYPE);
	if (bpf_ktime_get_ns() < circuit->lit_at_ns)
		return probe ? XDP_DROP : counted(V_DARK, XDP_DROP);
	if (!circuit->peer)
		return probe ? XDP_DROP : counted(V_UNLIT, XDP_DROP);
	if (probe)
		return XDP_TX;
	return counted(V_LIT, bpf_redirect(circuit->ifindex, 0));
}

#endif
