/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Sums the contributions to a fragment exactly once each, and turns the last one into the result.
 *
 * Why a slot can be reused safely: a worker sends fragment f only after it has the result of f - size, so when f arrives every worker has
 * contributed to f - size, hence has the result of f - 2 * size, whose entry f takes. The entry of f - size stays: the shadow copy
 * from which a lost result is sent again.
 */
#ifndef AGGREGATE_H
#define AGGREGATE_H

#define LOCK_TRIES 4096 /* some 100 us: the holder adds 360 lanes in less than 1 us, unless its virtual CPU is taken away */

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

/* The entry that belongs to a packet, or 0 with *why set. */
static __always_inline struct slot *slot_of(struct gradient_packet *p, struct job *job, u32 owner, u32 base, u32 *why)
{
	u32 offset = bpf_ntohl(p->inc->slot) - base, size = job->size, index;
	void *array;

	*why = V_BAD_SLOT;
	if (!size || offset >= size)
		return 0;
	index = (job->base + offset) * 2 + ((bpf_ntohl(p->inc->fragment) / size) & 1);
	array = slots.lookup(&owner);
	if (!array)
		return 0;
	return inner_lookup(array, &index);
}

/* Makes the packet carry the entry's sum upwards (partial) or to the group (result). */
static __always_inline void address_sum(struct gradient_packet *p, struct job *job, u32 state)
{
	u32 offset = bpf_ntohl(p->inc->slot) - job->base;

	if (state == SLOT_PARTIAL) {
		p->inc->op = WIRE_OP_PARTIAL;
		p->inc->flags = 0;
		p->inc->worker = bpf_htons(job->index);
		p->inc->contributors = bpf_htons(job->local);
		p->inc->slot = bpf_htonl(job->up_base + offset);
		readdress(p, job->self_ip, job->up_ip);
	} else {
		p->inc->op = WIRE_OP_RESULT;
		p->inc->flags = WIRE_FLAG_FINAL;
		p->inc->worker = bpf_htons(0xffff);
		p->inc->contributors = bpf_htons(job->total);
		set_group_mac(p, job->group_ip);
		readdress(p, job->self_ip, job->group_ip);
	}
}

#define SEND_NOTHING 0
#define SEND_PARTIAL 1
#define SEND_RESULT 2	/* to the group */
#define SEND_RESULT_BACK 3 /* to the one who asked again */

/* Adds a push or partial to its slot. Returns one of SEND_*; the packet then holds what to send. */
static __always_inline int add(struct gradient_packet *p, struct job *job, u32 owner, u32 *verdict)
{
	u32 fragment = bpf_ntohl(p->inc->fragment), worker = bpf_ntohs(p->inc->worker), generation = job->generation, state;
	u64 bit, seen;
	struct slot *s;
	int i, send = SEND_NOTHING;
	s32 newer;

	if (bpf_ntohl(p->inc->generation) != generation) {
		*verdict = V_BAD_GENERATION;
		return SEND_NOTHING;
	}
	if (worker >= WIRE_MAX_WORKERS) {
		*verdict = V_BAD_WORKER;
		return SEND_NOTHING;
	}
	bit = 1ULL << worker;
	if (!(job->members & bit)) {
		*verdict = V_BAD_WORKER;
		return SEND_NOTHING;
	}
	s = slot_of(p, job, owner, job->base, verdict);
	if (!s)
		return SEND_NOTHING;
	if (!lock_slot(s)) {
		*verdict = V_LOCK_BUSY;
		return SEND_NOTHING;
	}

	newer = s->state == SLOT_EMPTY || s->generation != generation ? 1 : (s32)(fragment - s->fragment);
	if (newer < 0) {
		*verdict = V_STALE;
	} else if (newer > 0 && s->state == SLOT_FILLING && s->generation == generation) {
		*verdict = V_BUSY;
	} else if (newer == 0 && (s->bitmap & bit)) {
		*verdict = V_DUPLICATE;
		if (s->state != SLOT_FILLING) {
			*verdict = V_RESENT;
			for (i = 0; i < WIRE_LANES; i++)
				p->lanes[i] = bpf_htonl(s->lanes[i]);
			send = s->state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT_BACK;
		}
	} else {
		seen = newer > 0 ? bit : s->bitmap | bit;
		state = seen != job->members ? SLOT_FILLING : job->role == ROLE_PARTIAL ? SLOT_PARTIAL : SLOT_FINAL;
		if (newer > 0 && state == SLOT_FILLING) {
			for (i = 0; i < WIRE_LANES; i++)
				s->lanes[i] = bpf_ntohl(p->lanes[i]);
		} else if (newer > 0) {
			for (i = 0; i < WIRE_LANES; i++)
				s->lanes[i] = bpf_ntohl(p->lanes[i]);
		} else if (state == SLOT_FILLING) {
			for (i = 0; i < WIRE_LANES; i++)
				s->lanes[i] += bpf_ntohl(p->lanes[i]);
		} else {
			for (i = 0; i < WIRE_LANES; i++) {
				u32 sum = s->lanes[i] + bpf_ntohl(p->lanes[i]);

				s->lanes[i] = sum;
				p->lanes[i] = bpf_htonl(sum);
			}
		}
		s->bitmap = seen;
		s->generation = generation;
		s->fragment = fragment;
		s->count = bpf_ntohs(p->inc->count);
		s->state = state;
		*verdict = state == SLOT_FILLING ? V_AGGREGATED : V_COMPLETED;
		if (state != SLOT_FILLING)
			send = state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT;
	}
	unlock_slot(s);
	if (send != SEND_NOTHING)
		address_sum(p, job, send == SEND_PARTIAL ? SLOT_PARTIAL : SLOT_FINAL);
	return send;
}

/* Keeps a result that came from the PS, so that a worker that lost it can have it from here. */
static __always_inline void keep_result(struct gradient_packet *p, struct job *job, u32 owner)
{
	u32 why, fragment = bpf_ntohl(p->inc->fragment);
	struct slot *s = slot_of(p, job, owner, job->up_base, &why);
	int i;

	if (!s || !lock_slot(s))
		return;
	if (s->state == SLOT_PARTIAL && s->fragment == fragment && s->generation == job->generation) {
		for (i = 0; i < WIRE_LANES; i++)
			s->lanes[i] = bpf_ntohl(p->lanes[i]);
		s->state = SLOT_FINAL;
	}
	unlock_slot(s);
}

#endif
