// SPDX-License-Identifier: Apache-2.0
/*
 * What testbed/dataplanes/xdp/probe.py loads to find out whether this kernel can: count in a memory-mapped
 * array, and copy a frame to every device of a map. Belongs to no testbed.
 */
#include <uapi/linux/bpf.h>

struct seen {
	u64 frames;
};

/* Written by count_and_copy, read by the probe through mmap. One sender, one frame at a time: no lock. */
BPF_F_TABLE("array", u32, struct seen, seen, 1, BPF_F_MMAPABLE);

/* Filled by the probe before the program is attached. */
BPF_XDP_REDIRECT_MAP("devmap", struct bpf_devmap_val, copies, 4);

int count_and_copy(struct xdp_md *ctx)
{
	u32 zero = 0;
	struct seen *entry = seen.lookup(&zero);

	if (!entry)
		return XDP_ABORTED;
	__sync_fetch_and_add(&entry->frames, 1);
	return copies.redirect_map(0, BPF_F_BROADCAST);
}

/* Written by measure, one frame at a time, read by the probe: most bytes that it could read of a frame. */
BPF_ARRAY(longest, u64, 1);

int measure(struct xdp_md *ctx)
{
	u64 bytes = (u64)ctx->data_end - (u64)ctx->data;
	u32 zero = 0;
	u64 *most = longest.lookup(&zero);

	if (most && bytes > *most)
		*most = bytes;
	return XDP_PASS;
}

/*
 * On the receiving ends: a veth takes redirected frames only when its peer polls, which an XDP program makes
 * it do.
 */
int take(struct xdp_md *ctx)
{
	return XDP_PASS;
}
