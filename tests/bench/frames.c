/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Counts frames and loses them, or passes them on first: what veth and XDP cost without any aggregation. For
 * tests/bench/limit.py.
 */
#include <uapi/linux/bpf.h>

/* Writers: the program `drop`, each CPU its own; reader: the benchmark. */
BPF_PERCPU_ARRAY(frames, u64, 1);
/* By the arriving device's number. Writer: the benchmark, before traffic; reader: the program `pass_on`. */
BPF_DEVMAP(targets, 256);

int drop(struct xdp_md *ctx)
{
	u32 zero = 0;
	u64 *n = frames.lookup(&zero);

	if (n)
		*n += 1;
	return XDP_DROP;
}

int pass_on(struct xdp_md *ctx)
{
	return targets.redirect_map(ctx->ingress_ifindex & 0xff, 0);
}
