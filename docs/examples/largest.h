/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The largest of what a tree's contributors push, lane by lane, as two's complement. A place has a slot for a
 * fragment as for the core's sum (bpf/sum.h), and answers, recovers and completes as that does: only what it
 * makes of two packets is another. Votes, by which workers agree on lengths, are summed: they have the last
 * slots of a segment.
 */
#ifndef LARGEST_H
#define LARGEST_H

/* Without a branch: the verifier would walk both ways of each, for each lane. */
static __always_inline u32 larger_lane(u32 a, u32 b)
{
	s64 more = (s64)(s32)a - (s32)b;

	return b + (u32)(more & ~below_zero(more));
}

static __always_inline u64 larger_pair(u64 a, u64 b)
{
	return (u64)larger_lane(a >> 32, b >> 32) << 32 | larger_lane(a, b);
}

static __always_inline void merge(struct slot *s, u64 *lanes, int is_vote)
{
	int i;

	for (i = 0; is_vote && i < WIRE_LANES / 2; i++)
		s->pairs[i] += bpf_ntohll(lanes[i]);
	for (i = 0; !is_vote && i < WIRE_LANES / 2; i++)
		s->pairs[i] = larger_pair(s->pairs[i], bpf_ntohll(lanes[i]));
}

/* A contribution to a slot whose lock is held. */
static __always_inline int put_largest(struct gradient_packet *p, struct entry *entry, struct slot *s,
		u64 bit, int is_vote, u32 *verdict)
{
	u32 fragment = bpf_ntohl(p->inc->fragment), is_push = p->inc->op == WIRE_OP_PUSH;
	int is_other = s->state == SLOT_EMPTY || s->generation != entry->generation, i;
	s32 newer = is_other ? 1 : (s32)(fragment - s->fragment);
	u64 *lanes = (u64 *)p->lanes;

	*verdict = V_STALE;
	if (newer < 0)
		return SEND_NOTHING;
	*verdict = V_MISMATCH;
	if (newer > 0 && !is_other && s->state == SLOT_FILLING)
		return SEND_NOTICE;
	if (newer == 0 && s->state != SLOT_FILLING) {
		*verdict = s->bitmap & bit ? V_RESENT : V_LATE;
		recall_lanes(p, s->pairs, s->count);
		return s->state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT_BACK;
	}
	*verdict = V_DUPLICATE;
	if (newer == 0 && s->bitmap & bit)
		return SEND_NOTHING;
	for (i = 0; newer > 0 && i < WIRE_LANES / 2; i++)
		s->pairs[i] = bpf_ntohll(lanes[i]);
	if (newer == 0)
		merge(s, lanes, is_vote);
	s->flags = (newer > 0 ? 0 : s->flags) | (p->inc->flags & SUM_DEGRADED);
	s->flags |= is_marked(p) ? SUM_MARKED : 0;
	s->contributors = contributors_of(p, is_push) + (newer > 0 ? 0 : s->contributors);
	s->bitmap = bit | (newer > 0 ? 0 : s->bitmap);
	s->generation = entry->generation;
	s->fragment = fragment;
	s->count = bpf_ntohs(p->inc->count);
	s->age = is_push ? 0 : bpf_ntohs(p->inc->age);
	s->state = SLOT_FILLING;
	*verdict = V_AGGREGATED;
	if (s->bitmap != (entry->workers | entry->places))
		return SEND_NOTHING;
	s->state = entry->role == ROLE_TOP ? SLOT_FINAL : SLOT_PARTIAL;
	*verdict = V_COMPLETED;
	if (s->flags & SUM_MARKED)
		p->ip->tos |= WIRE_CE;
	recall_lanes(p, s->pairs, s->count);
	return s->state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT;
}

static __always_inline int add_largest(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		u32 *verdict)
{
	u32 number = bpf_ntohs(p->inc->worker), offset = bpf_ntohl(p->inc->slot) - entry->base;
	u64 bit = number < WIRE_MAX_WORKERS ? 1ULL << number : 0;
	u64 members = p->inc->op == WIRE_OP_PUSH ? entry->workers : entry->places;
	struct sum sum = {};
	struct slot *s;
	int send;

	if (!(members & bit))
		return lost(verdict, V_BAD_WORKER);
	s = slot_of(entry, offset);
	if (!s)
		return lost(verdict, V_BAD_SLOT);
	if (!lock_slot(s))
		return lost(verdict, V_LOCK_BUSY);
	send = put_largest(p, entry, s, bit, offset >= entry->size - VOTE_SLOTS, verdict);
	read_sum(&sum, s);
	unlock_slot(s);
	if (send != SEND_NOTHING && send != SEND_NOTICE)
		address_sum(ctx, p, entry, &sum, offset, send);
	return send;
}

static __always_inline int at_largest(struct xdp_md *ctx, struct gradient_packet *p, struct port *port,
		struct leaving *by, u32 *verdict)
{
	int kind = intake(ctx, p, verdict);

	if (kind == LOST)
		return SEND_NOTHING;
	if (!may_send(port, p))
		return lost(verdict, V_BAD_SENDER);
	by->entry = entry_by(p, port);
	if (kind == HAS_LANES && p->inc->op == WIRE_OP_RESULT && !is_copy(p, port))
		return pass_result(p, by->entry, verdict);
	if (p->ip->daddr != port->self_ip)
		return is_group(p->ip->daddr) ? lost(verdict, V_MALFORMED) : SEND_ON;
	if (p->inc->op == WIRE_OP_NOTICE)
		return pass_notice(p, by->entry, verdict);
	*verdict = checked(p, by->entry);
	if (*verdict != V_FINE)
		return SEND_NOTHING;
	if (kind != HAS_LANES || (p->inc->op != WIRE_OP_PUSH && p->inc->op != WIRE_OP_PARTIAL))
		return lost(verdict, V_MALFORMED);
	return add_largest(ctx, p, by->entry, verdict);
}

PORT_PROGRAM(largest, at_largest, SEND_NOTHING)
TICK_PROGRAM(largest, tick)

#endif
