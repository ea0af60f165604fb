/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Explicit congestion notification (RFC 3168) of a link's queue: one program at the ingress of a wire's inner
 * ends, before the redirect. It counts along what the token bucket behind that redirect has to send, since
 * its queue is not to be read from here, and marks frames that will find more than so much of it before them.
 * Loaded by testbed/dataplanes/xdp/link_marks.py.
 */
#include <uapi/linux/bpf.h>
#include <uapi/linux/pkt_cls.h>

#include "link_marks.h"

/*
 * By ifindex of the inner end where the frames arrive. Made by the daemon, otherwise written here. No lock: a
 * veth device has one receive queue, polled by one CPU at a time. A rate that changes replaces the entry as a
 * whole; a frame that passes meanwhile may be forgotten.
 */
BPF_F_TABLE("hash", u32, struct queue, queues, 16384, BPF_F_NO_PREALLOC);

int link_mark(struct __sk_buff *skb)
{
	u32 ifindex = skb->ifindex;
	struct queue *queue = queues.lookup(&ifindex);
	u64 now, passed, level, waits;

	if (!queue)
		return TC_ACT_UNSPEC;
	now = bpf_ktime_get_ns();
	passed = now - queue->at;
	level = queue->level > passed ? queue->level - passed : 0;
	waits = level > queue->bucket ? level - queue->bucket : 0;
	queue->at = now;
	queue->seen++;
	if (waits > queue->threshold && bpf_skb_ecn_set_ce(skb) > 0)
		queue->marked++;
	if (waits < queue->limit) /* else the bucket has no room and loses it */
		level += skb->len * queue->byte_time >> FRACTION_BITS;
	queue->level = level;
	return TC_ACT_UNSPEC;
}
