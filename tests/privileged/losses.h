/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Gradient packets that tests lose where they arrive: put in front of the programs by losses.py. */
struct loss_key {
	u32 ifindex;
	u32 fragment;
};

/* How many copies are still to be lost. Writer: the test, then programs, which count down. */
BPF_TABLE("hash", struct loss_key, u32, losses, 4096);

static __always_inline int is_lost(struct xdp_md *ctx, struct wire_header *inc)
{
	struct loss_key key = {.ifindex = ctx->ingress_ifindex, .fragment = bpf_ntohl(inc->fragment)};
	u32 *copies = losses.lookup(&key);

	if (!copies || !*copies)
		return 0;
	*copies -= 1;
	return 1;
}

