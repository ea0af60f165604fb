/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Faults on purpose: one program at the ingress of a wire's inner ends, ahead of the redirect or the bridge
 * that joins them. It loses, copies, holds back and corrupts frames; what it leaves alone goes on to those.
 * Loaded by testbed/dataplanes/xdp/link_faults.py.
 */
#include <uapi/linux/bpf.h>
#include <uapi/linux/if_ether.h>
#include <uapi/linux/pkt_cls.h>

#include "link_faults.h" /* CELL_BYTES, the longest frame, is given by the loader */

#define BEEN_HERE 0x6f70 /* a mark: none leaves a network namespace, and in the wires' nobody else has any */

/*
 * By ifindex of the inner end where the frames arrive. Made and removed by the daemon, otherwise written
 * here. No lock: a veth device has one receive queue, polled by one CPU at a time, so the frames of a
 * direction come one after the other whatever CPU they are on; and so the n-th frame of a direction has the
 * same fate in each run with the same seed.
 */
BPF_F_TABLE("hash", u32, struct stage, stages, 4096, BPF_F_NO_PREALLOC);

/*
 * Inner ends whose frames a thread delays (bpf/link_delay.c), behind this program. A copy must not go past
 * it: it comes in once more. Written by the daemon.
 */
BPF_F_TABLE("hash", u32, u32, recirculated, 65536, BPF_F_NO_PREALLOC);

/* Frames held. Cells are made and removed by the daemon, otherwise written here; no lock, as above. */
BPF_F_TABLE("hash", struct cell_key, struct cell, cells, 1048576, BPF_F_NO_PREALLOC);

/*
 * Keeps clang from joining two comparisons into one, or doing them on a shifted copy: the verifier follows
 * neither.
 */
#define SEPARATE(value) asm volatile("" : "+r"(value))

static __always_inline u32 draw(struct stage *stage)
{
	u64 x = stage->random;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	stage->random = x;
	return (x * 0x2545F4914F6CDD1DULL) >> 32;
}

static __always_inline struct cell *cell_of(struct stage *stage, u32 ifindex, u64 number)
{
	struct cell_key key = {.ifindex = ifindex};

	if (!stage->cells)
		return 0;
	key.cell = number % stage->cells;
	return cells.lookup(&key);
}

/* Flips one bit behind the Ethernet header. */
static __always_inline int corrupt(struct __sk_buff *skb, struct stage *stage)
{
	u64 bits = skb->len > ETH_HLEN ? 8 * (u64)(skb->len - ETH_HLEN) : 0;
	u32 bit = ((u64)draw(stage) * bits) >> 32;
	u32 at = ETH_HLEN + bit / 8;
	u8 byte;

	if (!bits || bpf_skb_load_bytes(skb, at, &byte, 1))
		return -1;
	byte ^= 1 << (bit % 8);
	return bpf_skb_store_bytes(skb, at, &byte, 1, BPF_F_INVALIDATE_HASH);
}

/*
 * Sends a copy of the frame ahead. Not by a redirect where a bridge joins the ends, for the programs behind
 * it would not see such a frame: it comes in once more, after what comes now, and its mark says that it has
 * been here.
 */
static __always_inline int copy_on(struct __sk_buff *skb, u32 egress, u32 ifindex)
{
	int failed;

	if (egress != ifindex)
		return bpf_clone_redirect(skb, egress, 0);
	skb->mark = BEEN_HERE;
	failed = bpf_clone_redirect(skb, ifindex, BPF_F_INGRESS);
	skb->mark = 0;
	return failed;
}

/* Keeps a copy of the frame. */
static __always_inline int hold(struct __sk_buff *skb, struct stage *stage, u32 egress, u32 ifindex)
{
	struct cell *cell;
	u64 length = skb->len;

	if (stage->next - stage->first >= stage->cells) {
		stage->crowded++;
		return -1;
	}
	cell = cell_of(stage, ifindex, stage->next);
	if (!cell || length < ETH_HLEN)
		goto failed;
	SEPARATE(length);
	if (length > CELL_BYTES || bpf_skb_load_bytes(skb, 0, cell->frame, length))
		goto failed;
	cell->length = length;
	/* a copy that comes in once more goes behind what is released now: the held one waits for one more */
	cell->due = stage->seen + stage->distance + (egress == ifindex);
	stage->next++;
	stage->held++;
	return 0;
failed:
	stage->failed++;
	return -1;
}

/* Overwrites the frame at hand with the one held longest. */
static __always_inline int release(struct __sk_buff *skb, struct stage *stage, struct cell *cell)
{
	u64 length = cell->length;

	stage->first++;
	if (length != skb->len && bpf_skb_change_tail(skb, length, 0))
		goto failed;
	if (length < ETH_HLEN)
		goto failed;
	SEPARATE(length);
	if (length > CELL_BYTES || bpf_skb_store_bytes(skb, 0, cell->frame, length, BPF_F_INVALIDATE_HASH))
		goto failed;
	stage->released++;
	return 0;
failed:
	stage->failed++;
	return -1;
}

int link_fault(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex, egress;
	struct stage *stage = stages.lookup(&ifindex);
	struct cell *due = 0;
	int lose, copy, late, spoil, passes = 1;

	if (!stage)
		return TC_ACT_UNSPEC;
	if (skb->mark == BEEN_HERE) {
		skb->mark = 0;
		return TC_ACT_UNSPEC;
	}
	egress = recirculated.lookup(&ifindex) ? ifindex : stage->egress;
	stage->seen++;
	if (skb->gso_size)
		stage->merged++;
	/* GRO has found the checksum right; the receiver is to look for itself at what may be flipped here */
	bpf_csum_level(skb, BPF_CSUM_LEVEL_RESET);
	lose = draw(stage) < stage->loss;
	copy = draw(stage) < stage->duplication;
	late = draw(stage) < stage->reordering;
	spoil = draw(stage) < stage->corruption;

	if (lose) {
		stage->lost++;
		passes = 0;
	} else {
		if (spoil && corrupt(skb, stage) == 0)
			stage->corrupted++;
		else if (spoil)
			stage->failed++;
		if (copy && copy_on(skb, egress, ifindex) >= 0)
			stage->duplicated++;
		else if (copy)
			stage->failed++;
		if (late && hold(skb, stage, egress, ifindex) == 0)
			passes = 0;
	}

	if (stage->first != stage->next)
		due = cell_of(stage, ifindex, stage->first);
	if (!due || due->due > stage->seen)
		return passes ? TC_ACT_UNSPEC : TC_ACT_SHOT;
	if (passes && copy_on(skb, egress, ifindex) < 0)
		stage->failed++;
	return release(skb, stage, due) == 0 ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}
