/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The optical switch: light that enters a port leaves the port at the other end of its circuit, once the
 * circuit is lit.
 */
#ifndef OPTICS_H
#define OPTICS_H

/* Leaves the verdict as it is for the probe, which is not counted. */
static __always_inline int cross(struct xdp_md *ctx, u32 number, u32 *verdict)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct circuit *circuit = circuits.lookup(&number);
	int probe, dark;

	if (!circuit || (void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	probe = eth->h_proto == bpf_htons(WIRE_PROBE_ETHERTYPE);
	dark = bpf_ktime_get_ns() < circuit->lit_at_ns;
	if (probe)
		return dark || !circuit->peer ? XDP_DROP : XDP_TX;
	*verdict = dark ? V_DARK : circuit->peer ? V_LIT : V_UNLIT;
	return *verdict == V_LIT ? bpf_redirect(circuit->ifindex, 0) : XDP_DROP;
}

#endif
