/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Sums the contributions to a fragment exactly once each, and turns the last one into the result:
 * docs/protocol.md, rules 3 to 9.
 */
#ifndef AGGREGATE_H
#define AGGREGATE_H

/* some 100 us: the holder adds its lanes in less than 1 us, unless its virtual CPU is taken away */
#define LOCK_TRIES 4096

static __always_inline int lock_slot(struct slot *s)
{
	int i;

	for (i = 0; i < LOCK_TRIES; i++)
		if (__sync_val_compare_and_swap(&s->lock, 0ULL, 1ULL) == 0)
			return 1;
	return 0;
}

static __always_inline void unlock_slot(struct slot *s)
{
	__sync_lock_test_and_set(&s->lock, 0ULL);
}

/* The slot at an offset from the job's segment, or 0 outside it. */
static __always_inline struct slot *slot_of(struct job *job, u32 offset)
{
	u32 index = job->base + offset, aggregator = job->aggregator;
	void *array;

	if (offset >= job->size)
		return 0;
	array = slots.lookup(&aggregator);
	return array ? inner_lookup(array, &index) : 0;
}

/*
 * Makes the packet carry a sum upwards (partial) or to the group (result). `offset` is the slot's place in
 * the segment.
 */
static __always_inline void address_sum(struct gradient_packet *p, struct job *job, u32 state, u32 offset)
{
	p->inc->reserved = 0;
	p->inc->age = 0;
	p->inc->trailer = 0;
	if (state == SLOT_PARTIAL) {
		p->inc->op = WIRE_OP_PARTIAL;
		p->inc->flags = 0;
		p->inc->worker = bpf_htons(job->unit);
		p->inc->contributors = bpf_htons(job->local);
		p->inc->slot = bpf_htonl(job->up_base + offset);
		readdress(p, job->self_ip, job->up_ip);
	} else {
		p->inc->op = WIRE_OP_RESULT;
		p->inc->flags = WIRE_FLAG_FINAL;
		p->inc->worker = bpf_htons(WIRE_NO_WORKER);
		p->inc->contributors = bpf_htons(job->total);
		p->inc->slot = bpf_htonl((job->role == ROLE_PARTIAL ? job->up_base : job->base) + offset);
		set_group_mac(p, job->group_ip);
		readdress(p, job->self_ip, job->group_ip);
	}
	set_udp_checksum(p, UDP_BYTES);
}

#define SEND_NOTHING 0
#define SEND_PARTIAL 1
#define SEND_RESULT 2	   /* to the group */
#define SEND_RESULT_BACK 3 /* to the one who asked again */
#define SEND_NOTICE 4	   /* to the sender: the slot is taken */

/*
 * Adds a push or partial sum to its slot. Returns one of SEND_*; but for a notice, the packet then holds what
 * to send.
 */
static __always_inline int add(struct gradient_packet *p, struct job *job, u32 *verdict)
{
	u32 fragment = bpf_ntohl(p->inc->fragment), worker = bpf_ntohs(p->inc->worker);
	u32 generation = job->generation, state;
	u32 offset = bpf_ntohl(p->inc->slot) - job->base;
	u64 bit, seen, *lanes = (u64 *)p->lanes;
	struct slot *s;
	int i, send = SEND_NOTHING;
	s32 newer;

	if (bpf_ntohl(p->inc->generation) != generation) {
		*verdict = V_BAD_GENERATION;
		return SEND_NOTHING;
	}
	bit = worker < WIRE_MAX_WORKERS ? 1ULL << worker : 0;
	if (!(job->members & bit)) {
		*verdict = V_BAD_WORKER;
		return SEND_NOTHING;
	}
	s = slot_of(job, offset);
	if (!s) {
		*verdict = V_BAD_SLOT;
		return SEND_NOTHING;
	}
	if (!lock_slot(s)) {
		*verdict = V_LOCK_BUSY;
		return SEND_NOTHING;
	}

	newer = s->state == SLOT_EMPTY || s->generation != generation ? 1 : (s32)(fragment - s->fragment);
	if (newer < 0) {
		*verdict = V_STALE;
	} else if (newer > 0 && s->state == SLOT_FILLING && s->generation == generation) {
		*verdict = V_MISMATCH;
		send = SEND_NOTICE;
	} else if (newer == 0 && (s->bitmap & bit)) {
		*verdict = V_DUPLICATE;
		if (s->state != SLOT_FILLING) {
			*verdict = V_RESENT;
			for (i = 0; i < WIRE_LANES / 2; i++)
				lanes[i] = bpf_htonll(s->pairs[i]);
			p->inc->count = bpf_htons(s->count);
			send = s->state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT_BACK;
		}
	} else {
		seen = newer > 0 ? bit : s->bitmap | bit;
		state = seen != job->members      ? SLOT_FILLING :
			job->role == ROLE_PARTIAL ? SLOT_PARTIAL :
						    SLOT_FINAL;
		if (newer > 0) {
			for (i = 0; i < WIRE_LANES / 2; i++)
				s->pairs[i] = bpf_ntohll(lanes[i]);
		} else if (state == SLOT_FILLING) {
			for (i = 0; i < WIRE_LANES / 2; i++)
				s->pairs[i] += bpf_ntohll(lanes[i]);
		} else {
			for (i = 0; i < WIRE_LANES / 2; i++) {
				u64 sum = s->pairs[i] + bpf_ntohll(lanes[i]);

				s->pairs[i] = sum;
				lanes[i] = bpf_htonll(sum);
			}
		}
		s->marked = is_marked(p) | (newer > 0 ? 0 : s->marked);
		s->bitmap = seen;
		s->generation = generation;
		s->fragment = fragment;
		s->count = bpf_ntohs(p->inc->count);
		s->state = state;
		*verdict = state == SLOT_FILLING ? V_AGGREGATED : V_COMPLETED;
		if (state != SLOT_FILLING && s->marked)
			p->ip->tos |= WIRE_CE; /* as of fragments of a datagram: RFC 3168, section 5.3 */
		if (state != SLOT_FILLING)
			send = state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT;
	}
	unlock_slot(s);
	if (send != SEND_NOTHING && send != SEND_NOTICE)
		address_sum(p, job, send == SEND_PARTIAL ? SLOT_PARTIAL : SLOT_FINAL, offset);
	return send;
}

/*
 * Keeps a result that came from the PS, so that a worker that lost it can have it from here. Returns 0 if it
 * names no slot of the job.
 */
static __always_inline int keep_result(struct gradient_packet *p, struct job *job)
{
	u32 fragment = bpf_ntohl(p->inc->fragment);
	struct slot *s = slot_of(job, bpf_ntohl(p->inc->slot) - job->up_base);
	u64 *lanes = (u64 *)p->lanes;
	int i;

	if (!s)
		return 0;
	if (!lock_slot(s))
		return 1;
	if (s->state == SLOT_PARTIAL && s->fragment == fragment && s->generation == job->generation) {
		for (i = 0; i < WIRE_LANES / 2; i++)
			s->pairs[i] = bpf_ntohll(lanes[i]);
		s->count = bpf_ntohs(p->inc->count);
		s->state = SLOT_FINAL;
	}
	unlock_slot(s);
	return 1;
}

/* Cuts a push or partial sum down to a notice for its sender. Returns 0 if the driver cannot cut. */
static __always_inline int make_notice(struct xdp_md *ctx, struct job *job)
{
	int notice_bytes = sizeof(struct ethhdr) + sizeof(struct iphdr) + HEADER_BYTES;
	struct gradient_packet packet, *p = &packet;
	__be32 sender;

	if (bpf_xdp_adjust_tail(ctx, notice_bytes - (int)(ctx->data_end - ctx->data)))
		return 0;
	point(p, (void *)(long)ctx->data);
	if ((void *)(p->inc + 1) > (void *)(long)ctx->data_end)
		return 0;
	sender = p->ip->saddr;
	p->ip->tot_len = bpf_htons(sizeof(*p->ip) + HEADER_BYTES);
	p->udp->len = bpf_htons(HEADER_BYTES);
	p->inc->op = WIRE_OP_NOTICE;
	p->inc->flags = WIRE_FLAG_ECN;
	p->inc->count = 0;
	readdress(p, job->self_ip, sender);
	set_udp_checksum(p, HEADER_BYTES);
	return 1;
}

#endif
