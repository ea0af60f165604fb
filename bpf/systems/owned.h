/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * An owned tree's places: sums that go to one owner alone, and the beats of those who wait for its
 * parameters (docs/luwu-network.md, "What a place does").
 */
#ifndef OWNED_H
#define OWNED_H

#include "owned_contract.h"

/*
 * One for each owned tree at each place. Writer: agent at admission and release; programs, under the record's
 * lock.
 */
BPF_ARRAY(owned_records, struct owned_record, MAX_OWNED_RECORDS);

/* All bits where something is so; the compiler must not make a branch of it. */
static __always_inline u64 mask_of(int is_so)
{
	u64 mask = -(u64)!!is_so;

	asm volatile("" : "+r"(mask));
	return mask;
}

/*
 * Adds the packet's lanes, unless `is_kept`, to those that were there, or with `is_first` takes their place;
 * the packet holds the sum afterwards. One loop for all three: the verifier would walk each by itself.
 */
static __always_inline void add_owned_lanes(struct gradient_packet *p, struct slot *s, int is_first,
		int is_kept)
{
	u64 before = ~mask_of(is_first), added = ~mask_of(is_kept), *lanes = (u64 *)p->lanes;
	int i;

	for (i = 0; i < WIRE_LANES / 2; i++) {
		u64 pair = (s->pairs[i] & before) + (bpf_ntohll(lanes[i]) & added);

		s->pairs[i] = pair;
		lanes[i] = bpf_htonll(pair);
	}
}

/* Makes the packet carry a sum to the place above, or at the top to the owner. */
static __always_inline void address_owned(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		struct sum *sum, u32 count, u32 offset)
{
	p->inc->op = entry->role == ROLE_TOP ? WIRE_OP_SUM : WIRE_OP_PARTIAL;
	p->inc->flags = sum->flags & SUM_END ? WIRE_FLAG_END : 0;
	p->inc->worker = bpf_htons(entry->number);
	p->inc->contributors = bpf_htons(sum->contributors);
	p->inc->slot = bpf_htonl(entry->up_base + offset);
	p->inc->count = bpf_htons(count);
	p->inc->age = 0;
	p->inc->reserved = 0;
	readdress(p, entry->self_ip, entry->up_ip);
	set_udp_checksum(p, UDP_BYTES);
	if (p->few)
		put_few(ctx, p);
}

/*
 * Adds a push or partial sum to its slot, which a newer fragment takes in any case: nobody asks for the older
 * one any more. Returns SEND_PARTIAL, where the packet then holds the sum, or SEND_NOTHING.
 */
static __always_inline int add_owned(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		u32 *verdict)
{
	u32 fragment = bpf_ntohl(p->inc->fragment), number = bpf_ntohs(p->inc->worker), count, flags;
	u32 offset = bpf_ntohl(p->inc->slot) - entry->base, is_push = p->inc->op == WIRE_OP_PUSH;
	u32 contributors = is_push ? 1 : bpf_ntohs(p->inc->contributors), is_done, is_new;
	u64 bit = number < WIRE_MAX_WORKERS ? 1ULL << number : 0, seen;
	struct sum sum = {};
	struct slot *s;
	s32 newer;

	*verdict = V_BAD_WORKER;
	if (!((is_push ? entry->workers : entry->places) & bit))
		return SEND_NOTHING;
	*verdict = V_BAD_SLOT;
	s = slot_of(entry, offset);
	if (!s)
		return SEND_NOTHING;
	flags = is_marked(p) ? SUM_MARKED : 0;
	flags |= p->inc->flags & WIRE_FLAG_END ? SUM_END : 0;
	*verdict = V_LOCK_BUSY;
	if (!lock_slot(s))
		return SEND_NOTHING;
	is_new = s->state == SLOT_EMPTY || s->generation != entry->generation;
	newer = is_new ? 1 : (s32)(fragment - s->fragment);
	seen = newer > 0 ? bit : s->bitmap | bit;
	is_done = seen == (entry->workers | entry->places);
	if (newer < 0) {
		*verdict = V_STALE;
		is_done = 0;
	} else if (newer == 0 && s->state == SLOT_FILLING && s->bitmap & bit) {
		*verdict = V_DUPLICATE;
		is_done = 0;
	} else {
		int is_kept = newer == 0 && s->state != SLOT_FILLING;

		*verdict = is_kept ? V_RESENT : is_done ? V_COMPLETED : V_AGGREGATED;
		add_owned_lanes(p, s, newer > 0, is_kept);
		if (!is_kept) {
			s->flags = flags | (newer > 0 ? 0 : s->flags);
			s->contributors = contributors + (newer > 0 ? 0 : s->contributors);
			s->bitmap = seen;
			s->generation = entry->generation;
			s->fragment = fragment;
			s->count = bpf_ntohs(p->inc->count);
			s->age = 0;
			s->state = is_done ? SLOT_PARTIAL : SLOT_FILLING;
		}
	}
	if (*verdict == V_COMPLETED && s->flags & SUM_MARKED)
		p->ip->tos |= WIRE_CE;
	read_sum(&sum, s);
	count = s->count;
	unlock_slot(s);
	if (!is_done)
		return SEND_NOTHING;
	address_owned(ctx, p, entry, &sum, count, offset);
	return SEND_PARTIAL;
}

static __always_inline struct owned_record *owned_of(struct entry *entry)
{
	u32 index = entry->record;

	return owned_records.lookup(&index);
}

static __always_inline int lock_record(struct owned_record *record)
{
	int i;

	for (i = 0; i < LOCK_TRIES; i++) {
		if (__sync_val_compare_and_swap(&record->lock, 0ULL, 1ULL) == 0)
			return 1;
		wait_for_lock();
	}
	return 0;
}

static __always_inline u32 larger(u32 a, u32 b)
{
	return (s32)(a - b) > 0 ? a : b;
}

/* The least number of those heard, by how far each is behind one of them. Without branches, as above. */
static __always_inline u32 least_of(u32 *numbers, u64 heard, u32 from)
{
	s64 least = 0;
	u32 i;

	for (i = 0; i < WIRE_MAX_WORKERS; i++) {
		s64 behind = (s32)(numbers[i] - from);

		behind &= -(s64)(heard >> i & 1);
		behind = (behind - least) & below_zero(behind - least);
		least += behind;
	}
	return from + (u32)least;
}

/*
 * A beat of a member: once all are heard, the least of what they said goes up, when that grew, or when the
 * beat is from the lowest member.
 */
static __always_inline int hear_beat(struct gradient_packet *p, struct entry *entry, u32 *verdict)
{
	u32 number = bpf_ntohs(p->inc->worker), ack = bpf_ntohl(p->inc->fragment);
	u32 credit = bpf_ntohl(p->inc->slot), at = number & (WIRE_MAX_WORKERS - 1);
	u64 bit = number < WIRE_MAX_WORKERS ? 1ULL << number : 0, members = entry->workers | entry->places;
	struct owned_record *record = owned_of(entry);
	int goes_up = 0;

	*verdict = V_BAD_JOB;
	if (!record)
		return SEND_NOTHING;
	*verdict = V_BAD_WORKER;
	if (!(members & bit))
		return SEND_NOTHING;
	*verdict = V_LOCK_BUSY;
	if (!lock_record(record))
		return SEND_NOTHING;
	*verdict = V_BEAT;
	if (record->heard & bit) {
		ack = larger(ack, record->acks[at]);
		credit = larger(credit, record->credits[at]);
	}
	record->acks[at] = ack;
	record->credits[at] = credit;
	record->heard |= bit;
	if (record->heard == members) {
		ack = least_of(record->acks, members, ack);
		credit = least_of(record->credits, members, credit);
		goes_up = ack != record->sent_ack || credit != record->sent_credit ||
			number == record->leader;
		record->sent_ack = ack;
		record->sent_credit = credit;
	}
	__sync_lock_test_and_set(&record->lock, 0ULL);
	if (!goes_up)
		return SEND_NOTHING;
	p->inc->flags = 0;
	p->inc->worker = bpf_htons(entry->number);
	p->inc->fragment = bpf_htonl(ack);
	p->inc->slot = bpf_htonl(credit);
	readdress(p, entry->self_ip, entry->up_ip);
	set_udp_checksum(p, HEADER_BYTES);
	return SEND_PARTIAL;
}

/* What is addressed to this place. */
static __always_inline int at_owned_place(struct xdp_md *ctx, struct gradient_packet *p, struct leaving *by,
		int has_lanes, u32 *verdict)
{
	*verdict = checked(p, by->entry);
	if (*verdict != V_FINE)
		return SEND_NOTHING;
	if (has_lanes && (p->inc->op == WIRE_OP_PUSH || p->inc->op == WIRE_OP_PARTIAL))
		return add_owned(ctx, p, by->entry, verdict);
	if (!has_lanes && p->inc->op == WIRE_OP_PARAMETER_BEAT)
		return hear_beat(p, by->entry, verdict);
	*verdict = V_MALFORMED;
	return SEND_NOTHING;
}

/* What comes from the owner, to all workers. */
static __always_inline int pass_owners(struct gradient_packet *p, struct entry *entry, u32 *verdict)
{
	*verdict = checked(p, entry);
	if (*verdict != V_FINE)
		return SEND_NOTHING;
	*verdict = V_MALFORMED;
	if (p->ip->daddr != entry->group_ip)
		return SEND_NOTHING;
	*verdict = p->inc->op == WIRE_OP_PARAMETERS ? V_RESULT : V_BEAT;
	return SEND_RESULT_ON;
}

static __always_inline int at_owned(struct xdp_md *ctx, struct gradient_packet *p, struct port *port,
		struct leaving *by, u32 *verdict)
{
	int kind = intake(ctx, p, verdict);

	if (kind == LOST)
		return SEND_NOTHING;
	if (!may_send(port, p))
		return lost(verdict, V_BAD_SENDER);
	by->entry = entry_by(p, port);
	if (by_owner(p->inc) && is_group(p->ip->daddr))
		return pass_owners(p, by->entry, verdict);
	if (p->ip->daddr == port->self_ip)
		return at_owned_place(ctx, p, by, kind == HAS_LANES, verdict);
	return is_group(p->ip->daddr) ? lost(verdict, V_MALFORMED) : SEND_ON;
}

/* Nobody is waited for longer than for others: there are no ticks. */
static __always_inline int tick_owned(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		u32 *verdict)
{
	return lost(verdict, V_BAD_JOB);
}

PORT_PROGRAM(owned, at_owned, SEND_NOTHING)
TICK_PROGRAM(owned, tick_owned)

#endif
