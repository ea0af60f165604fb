// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
/*
 * ALEPH's aggregation service (section 5.3: a bitmap, a lock, a segment) and gradient forwarder (section 5.4:
 * a broadcast redirect with rewritten addresses), without anything else; a source of frames, whose CPU time
 * is not theirs; and a sink. Loaded by rig.py.
 */
#include <uapi/linux/bpf.h>
#include <uapi/linux/if_ether.h>
#include <uapi/linux/in.h>
#include <uapi/linux/ip.h>
#include <uapi/linux/udp.h>

#include "micro.h"

#define SEGMENTS 1024
#define CREDIT 192 /* frames under way to a device; its ring holds 256 */
/* A source that has spent its credit waits until only so many are under way: bursts, as from a NIC. */
#define RESUME 48
#define LOCK_TRIES 1024
#define BEHIND_NS 1000000 /* a source that could not run makes up for no more than this */
#define DELAYS 65536

struct frame {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct gradients body;
} __attribute__((packed));

/* By pointers of their own types: a packed member would be read byte by byte. */
#define IP(f) ((struct iphdr *)((void *)(f) + sizeof(struct ethhdr)))
#define UDP(f) ((struct udphdr *)((void *)(f) + sizeof(struct ethhdr) + sizeof(struct iphdr)))
#define BODY(f) ((struct gradients *)((void *)(f) + sizeof(struct frame) - sizeof(struct gradients)))

enum { ANSWER_NOBODY, ANSWER_BY_MAP, ANSWER_BACK };
enum { RECEIVED, SUMS, LATE, DUPLICATE, INCOMPLETE, BUSY, TAKEN, WRONG, FOREIGN, TALLIES };

struct setting {
	u32 answer;
	u32 pass; /* the sink passes timed frames to the stack */
	u32 receivers; /* receivers of copies; 0: no copies are made */
	u32 reserved;
};

struct source {
	u64 interval_ns; /* between frames; 0: as fast as they are accepted */
	u64 next_ns;
	u64 turn;
	u64 least; /* the lowest `taken` of all flows, when last read */
	u32 first;
	u32 workers;
	u32 of;
	u32 is_paused;
};

/* The two counters have different writers, so each has a cache line of its own. */
struct flow {
	u64 sent;
	u64 sent_line[7];
	u64 taken;
	u64 taken_line[7];
};

struct segment {
	u64 lock;
	u64 bitmap;
	u32 number;
	u32 is_open;
	u64 lanes[LANES / 2]; /* two of 32 bits each; a carry from one into the other does not matter here */
};

/* Writer: the rig, before traffic; readers: the programs. */
BPF_ARRAY(settings, struct setting, 1);
/* Indexed by CPU. Writers: the rig, before traffic, then make_frame on that CPU. */
BPF_ARRAY(sources, struct source, 256);
/*
 * `flows` is indexed by worker: make_frame writes `sent`; the program at that worker's device, which one CPU
 * polls at a time, writes `taken`. `copied` is indexed by receiver of copies: the sink writes `taken`.
 */
BPF_ARRAY(flows, struct flow, 64);
BPF_ARRAY(copied, struct flow, 64);
/* Writers: sum_up, under the segment's lock; the rig, before traffic. */
BPF_F_TABLE("array", u32, struct segment, segments, SEGMENTS, BPF_F_MMAPABLE);
/* Writers: all programs, on each CPU its own values; reader: the rig. */
BPF_PERCPU_ARRAY(tally, u64, TALLIES);
/* Writer: the sink, in runs with a single worker, which times its frames; reader: the rig. */
BPF_F_TABLE("array", u32, u32, delays, DELAYS, BPF_F_MMAPABLE);
BPF_ARRAY(delay_count, u64, 1);
/* Ifindex of a sink's device -> receiver. Writer: the rig; reader: the sink. */
BPF_HASH(receiver_of, u32, u32, 64);
/* Writer: the rig, before traffic. */
BPF_DEVMAP(targets, 64);
BPF_XDP_REDIRECT_MAP("devmap", struct bpf_devmap_val, results, 1);
BPF_XDP_REDIRECT_MAP("devmap", struct bpf_devmap_val, copies, 64);

static __always_inline void count(u32 what)
{
	u64 *n = tally.lookup(&what);

	if (n)
		*n += 1;
}

static __always_inline struct setting *set(void)
{
	u32 zero = 0;

	return settings.lookup(&zero);
}

static __always_inline struct frame *frame_of(struct xdp_md *ctx)
{
	struct frame *f = (void *)(long)ctx->data;

	if ((void *)(f + 1) > (void *)(long)ctx->data_end)
		return 0;
	return f;
}

/* Return the frame if it carries gradients, else 0: an aggregation service checks every packet so. */
static __always_inline struct frame *gradients_of(struct xdp_md *ctx)
{
	struct frame *f = frame_of(ctx);

	if (!f || f->eth.h_proto != bpf_htons(ETH_P_IP) || IP(f)->protocol != IPPROTO_UDP ||
	    UDP(f)->dest != bpf_htons(MICRO_PORT) || BODY(f)->magic != MICRO_MAGIC)
		return 0;
	return f;
}

/* Return the lowest `taken` of all workers or receivers; no source may be further ahead than the credit. */
static __always_inline u64 least_taken(u32 workers, u32 receivers)
{
	u32 count = receivers ? receivers : workers, at;
	u64 least = ~0ULL;

	for (at = 0; at < 64 && at < count; at++) {
		u32 key = at;
		struct flow *by = receivers ? copied.lookup(&key) : flows.lookup(&key);

		if (by && *(volatile u64 *)&by->taken < least)
			least = *(volatile u64 *)&by->taken;
	}
	return least;
}

/*
 * Fill a frame and send it into a worker's device; run on live frames by BPF_PROG_TEST_RUN. A frame that is
 * not due yet, or that exceeds the credit, is dropped; the cost is that of another try.
 */
int make_frame(struct xdp_md *ctx)
{
	u32 cpu = bpf_get_smp_processor_id(), worker;
	struct source *source = sources.lookup(&cpu);
	struct frame *f = frame_of(ctx);
	struct setting *setting = set();
	u64 now = bpf_ktime_get_ns();
	struct flow *flow;
	int i;

	if (!source || !f || !setting || !source->workers)
		return XDP_ABORTED;
	if (source->interval_ns) {
		if (now < source->next_ns)
			return XDP_DROP;
		if (now > source->next_ns + BEHIND_NS)
			source->next_ns = now;
		source->next_ns += source->interval_ns;
	}
	worker = source->first + source->turn++ % source->workers;
	flow = flows.lookup(&worker);
	if (!flow)
		return XDP_ABORTED;
	if (!source->interval_ns && flow->sent - source->least >= (source->is_paused ? RESUME : CREDIT)) {
		source->least = least_taken(source->of, setting->receivers);
		source->is_paused |= flow->sent - source->least >= CREDIT;
		if (flow->sent - source->least >= (source->is_paused ? RESUME : CREDIT))
			return XDP_DROP;
	}
	source->is_paused = 0;
	f->eth.h_proto = bpf_htons(ETH_P_IP);
	IP(f)->protocol = IPPROTO_UDP;
	UDP(f)->dest = bpf_htons(MICRO_PORT);
	BODY(f)->magic = MICRO_MAGIC;
	BODY(f)->worker = worker;
	BODY(f)->segment = flow->sent++;
	BODY(f)->workers = source->of;
	BODY(f)->sent_ns = 0;
	/* a recycled page has its old contents: ones, unless the frame was made a sum */
	if (BODY(f)->lanes[0] != 1)
		for (i = 0; i < LANES / 2; i++)
			((u64 *)BODY(f)->lanes)[i] = 1ULL << 32 | 1;
	return targets.redirect_map(worker, 0);
}

static __always_inline void swap_ends(struct frame *f)
{
	__be32 address = IP(f)->saddr;
	__be16 port = UDP(f)->source;
	u8 mac[ETH_ALEN];

	IP(f)->saddr = IP(f)->daddr;
	IP(f)->daddr = address;
	UDP(f)->source = UDP(f)->dest;
	UDP(f)->dest = port;
	UDP(f)->check = 0;
	__builtin_memcpy(mac, f->eth.h_source, ETH_ALEN);
	__builtin_memcpy(f->eth.h_source, f->eth.h_dest, ETH_ALEN);
	__builtin_memcpy(f->eth.h_dest, mac, ETH_ALEN);
}

static __always_inline int answer(struct xdp_md *ctx, struct frame *f, u32 how)
{
	count(SUMS);
	BODY(f)->worker = OF_ALL;
	if (how == ANSWER_NOBODY)
		return XDP_DROP;
	if (how == ANSWER_BY_MAP)
		return results.redirect_map(0, 0);
	swap_ends(f);
	/* not XDP_TX: after it veth wakes no peer that has no program, see bounce() in bpf/programs.c */
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

static __always_inline int lock(struct segment *s)
{
	int i;

	for (i = 0; i < LOCK_TRIES; i++)
		if (__sync_val_compare_and_swap(&s->lock, 0ULL, 1ULL) == 0)
			return 1;
	return 0;
}

/* The aggregation service. With one worker, it adds the head's own gradients to that worker's. */
int sum_up(struct xdp_md *ctx)
{
	struct frame *f = gradients_of(ctx);
	struct setting *setting = set();
	u32 worker, at, is_last, why = TALLIES;
	u64 all, bit, *lanes;
	struct segment *s;
	struct flow *flow;
	int i;

	if (!f || !setting) {
		count(FOREIGN);
		return XDP_PASS;
	}
	count(RECEIVED);
	worker = BODY(f)->worker;
	flow = flows.lookup(&worker);
	if (flow)
		flow->taken++;
	at = BODY(f)->segment % SEGMENTS;
	s = segments.lookup(&at);
	if (!s || worker >= 64 || !BODY(f)->workers || BODY(f)->workers > 63)
		return XDP_DROP;
	lanes = (u64 *)BODY(f)->lanes;
	bit = 1ULL << worker;
	all = (1ULL << BODY(f)->workers) - 1;
	if (!lock(s)) {
		count(BUSY);
		return XDP_DROP;
	}
	if (all == 1) {
		for (i = 0; i < LANES / 2; i++)
			lanes[i] += s->lanes[i];
		is_last = 1;
	} else if (!s->is_open || (s32)(BODY(f)->segment - s->number) > 0) {
		why = s->is_open && s->bitmap != all ? INCOMPLETE : TALLIES;
		for (i = 0; i < LANES / 2; i++)
			s->lanes[i] = lanes[i];
		s->number = BODY(f)->segment;
		s->bitmap = bit;
		s->is_open = 1;
		is_last = 0;
	} else if (BODY(f)->segment != s->number || s->bitmap & bit) {
		why = s->bitmap & bit ? DUPLICATE : LATE;
		is_last = 0;
	} else {
		s->bitmap |= bit;
		is_last = s->bitmap == all;
		if (is_last)
			for (i = 0; i < LANES / 2; i++)
				lanes[i] += s->lanes[i];
		else
			for (i = 0; i < LANES / 2; i++)
				s->lanes[i] += lanes[i];
	}
	__sync_lock_test_and_set(&s->lock, 0ULL);
	if (why != TALLIES)
		count(why);
	return is_last ? answer(ctx, f, setting->answer) : XDP_DROP;
}

/* Count and drop. The cost of sum_up beyond this program's is the cost of aggregation. */
int take_only(struct xdp_md *ctx)
{
	struct frame *f = gradients_of(ctx);
	struct flow *flow;
	u32 worker;

	if (!f)
		return XDP_PASS;
	count(RECEIVED);
	worker = BODY(f)->worker;
	flow = flows.lookup(&worker);
	if (flow)
		flow->taken++;
	return XDP_DROP;
}

/* The gradient forwarder. */
int copy_out(struct xdp_md *ctx)
{
	struct frame *f = gradients_of(ctx);

	if (!f)
		return XDP_PASS;
	count(RECEIVED);
	BODY(f)->worker = OF_ALL;
	return copies.redirect_map(0, BPF_F_BROADCAST);
}

/* Run at each device that sends a copy: write the receiver's address into it. */
int readdress(struct xdp_md *ctx)
{
	struct frame *f = frame_of(ctx);
	u32 check;

	if (!f)
		return XDP_DROP;
	check = (u16)~IP(f)->check + (u16)~(IP(f)->daddr & 0xffff) + (u16)~(IP(f)->daddr >> 16);
	IP(f)->daddr = bpf_htonl(0x0a000001 | (ctx->egress_ifindex & 0xff) << 8);
	check += (IP(f)->daddr & 0xffff) + (IP(f)->daddr >> 16);
	check = (check & 0xffff) + (check >> 16);
	IP(f)->check = ~((check & 0xffff) + (check >> 16));
	UDP(f)->check = 0;
	return XDP_PASS;
}

/* The gradient receiver, without storage: check sums, and time those that have `sent_ns`. */
int take(struct xdp_md *ctx)
{
	struct frame *f = frame_of(ctx);
	u32 zero = 0, ifindex = ctx->ingress_ifindex, sum, at;
	u64 *n = delay_count.lookup(&zero);
	struct setting *setting = set();
	u32 *receiver, *delay;

	if (!f || !setting || BODY(f)->magic != MICRO_MAGIC)
		return XDP_PASS;
	count(TAKEN);
	receiver = receiver_of.lookup(&ifindex);
	if (receiver) {
		struct flow *to = copied.lookup(receiver);

		if (to)
			to->taken++;
		return XDP_DROP;
	}
	if (BODY(f)->sent_ns) {
		at = n ? (*n)++ % DELAYS : 0;
		delay = delays.lookup(&at);
		if (delay)
			*delay = bpf_ktime_get_ns() - BODY(f)->sent_ns;
		return setting->pass ? XDP_PASS : XDP_DROP;
	}
	sum = BODY(f)->workers; /* every worker sends ones */
	if (BODY(f)->worker != OF_ALL || BODY(f)->lanes[0] != sum || BODY(f)->lanes[LANES - 1] != sum)
		count(WRONG);
	return XDP_DROP;
}
