/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Sums by block records, which a job's packets make where they are needed: docs/trio.md. What a contribution
 * is, and what becomes of a sum, is sum.h's; which record is whose is said here.
 */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "blocks_contract.h"

/*
 * One for each tree that a place sums by blocks. Writer: agent at admission and release, and of those that
 * leave, in mapped memory; programs count, and raise what rises, by compare-and-swap; but `reached` of a
 * source has one writer, the port that it sends by, and the agent, which raises that of a place.
 */
BPF_F_TABLE("array", u32, struct job_record, job_records, MAX_JOB_RECORDS, BPF_F_MMAPABLE);

/*
 * Per place, as many as it has buckets, and records. Memory-mapped by the timers, which only read. Writers:
 * programs, under the bucket's lock.
 */
BPF_F_TABLE("array", u32, struct block_bucket, buckets_template, 1, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
BPF_ARRAY_OF_MAPS(block_buckets, "buckets_template", MAX_AGGREGATORS);
BPF_F_TABLE("array", u32, struct block_record, blocks_template, 1, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
BPF_ARRAY_OF_MAPS(block_tables, "blocks_template", MAX_AGGREGATORS);

#define NO_BLOCK BUCKET_BLOCKS /* a place in a bucket that is none */
#define FLOOR_TRIES 8

/* A block, and where it is; under the bucket's lock. */
struct block_at {
	struct job_record *job;
	struct block_bucket *bucket;
	struct block_record *block; /* or 0 */
	void *table;
	u32 first; /* record of the bucket */
	u32 place; /* in the bucket */
	u32 space;
	u32 fragment;
	u64 key;
};

static __always_inline u32 floor_of(struct block_at *at)
{
	return (u32)*(volatile u64 *)&at->job->floor[at->space & 1];
}

/* Finds and locks the bucket of a packet's block. Returns the verdict if there is none, or V_FINE. */
static __always_inline u32 lock_bucket(struct block_at *at, struct gradient_packet *p, struct entry *entry,
		u32 slot)
{
	u32 record = entry->record, table = entry->aggregator, index;
	void *buckets;
	int i;

	at->job = job_records.lookup(&record);
	if (!at->job)
		return V_BAD_JOB;
	if (slot >= at->job->slots)
		return V_BAD_SLOT;
	at->space = slot >= at->job->data;
	at->fragment = bpf_ntohl(p->inc->fragment);
	at->key = (u64)at->job->serial << KEY_SHIFT | (u64)at->space << 32 | at->fragment;
	index = (at->fragment + at->job->salt[at->space & 1]) & (at->job->buckets - 1);
	at->first = index * BUCKET_BLOCKS;
	buckets = block_buckets.lookup(&table);
	at->table = block_tables.lookup(&table);
	if (!buckets || !at->table)
		return V_BAD_JOB;
	at->bucket = inner_lookup(buckets, &index);
	if (!at->bucket)
		return V_BAD_JOB;
	for (i = 0; i < LOCK_TRIES; i++) {
		if (__sync_val_compare_and_swap(&at->bucket->lock, 0ULL, 1ULL) == 0)
			return V_FINE;
		wait_for_lock();
	}
	return V_LOCK_BUSY;
}

static __always_inline void unlock_bucket(struct block_at *at)
{
	__sync_lock_test_and_set(&at->bucket->lock, 0ULL);
}

static __always_inline void point_block(struct block_at *at, u32 place)
{
	u32 index;

	/* or the verifier would walk all that follows for each place by itself */
	*(volatile u32 *)&at->bucket->found = place;
	place = *(volatile u32 *)&at->bucket->found;
	index = at->first + place;
	at->place = place;
	at->block = place < BUCKET_BLOCKS ? inner_lookup(at->table, &index) : 0;
}

/* The block's record, if it has one. */
static __always_inline void find_block(struct block_at *at)
{
	u32 place = NO_BLOCK, i;

#pragma unroll
	for (i = 0; i < BUCKET_BLOCKS; i++)
		if (at->bucket->keys[i] == at->key)
			place = i;
	point_block(at, place);
}

/*
 * Whether a record may be another block's: its job is gone, or all of its sources have the result. Where its
 * sum was not made, it is no active one any more.
 */
static __always_inline int is_anybodys(struct block_record *block, u64 key)
{
	u32 index = block->job;
	struct job_record *job = job_records.lookup(&index);

	if (!job || job->serial != (u32)(key >> KEY_SHIFT))
		return 1;
	if ((s32)((u32)key - (u32)*(volatile u64 *)&job->floor[key >> 32 & 1]) >= 0)
		return 0;
	if (block->state == SLOT_FILLING)
		__sync_fetch_and_add(&job->active, -1);
	return 1;
}

/* A place for a record that is nobody's yet, or anybody's. */
static __always_inline u32 free_place(struct block_at *at)
{
	u32 place = NO_BLOCK, index, i;
	struct block_record *block;

#pragma unroll
	for (i = BUCKET_BLOCKS; i > 0; i--)
		if (!at->bucket->keys[i - 1])
			place = i - 1;
	for (i = 0; i < BUCKET_BLOCKS && place == NO_BLOCK; i++) {
		index = at->first + i;
		block = inner_lookup(at->table, &index);
		if (block && is_anybodys(block, at->bucket->keys[i]))
			place = i;
	}
	return place;
}

/* As __builtin_popcountll(), which is no instruction here. */
static __always_inline u32 count_bits(u64 word)
{
	word -= word >> 1 & 0x5555555555555555ULL;
	word = (word & 0x3333333333333333ULL) + (word >> 2 & 0x3333333333333333ULL);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return word * 0x0101010101010101ULL >> 56;
}

/*
 * Makes a record for a block that never had one: from the floor on none was taken away. Where it is made for
 * a contribution, the job must have room for an active one; the block that all wait for always has. It awaits
 * the sources that have not left by now.
 */
static __always_inline u32 make_block(struct block_at *at, struct entry *entry, int is_active)
{
	struct job_record *job = at->job;
	s32 beyond = (s32)(at->fragment - floor_of(at));
	u32 place, expected = 0;
	u64 out = 0;
	int i;

	if (beyond < 0)
		return V_STALE;
	for (i = 0; i < MAX_SOURCES / 64; i++)
		out |= *(volatile u64 *)&job->out[i];
	if (out && (u32)beyond >= job->kept[at->space & 1]) /* the results that those who left need */
		return V_CAPPED;
	if ((u32)beyond >= job->kept[at->space & 1] + job->window[at->space & 1])
		return V_BAD_SLOT;
	if (is_active && *(volatile u32 *)&job->active >= job->cap && (u32)beyond >= job->cap)
		return V_CAPPED;
	place = free_place(at);
	point_block(at, place);
	if (!at->block)
		return V_CAPPED;
	at->bucket->keys[place & (BUCKET_BLOCKS - 1)] = at->key;
	at->bucket->marks[place & (BUCKET_BLOCKS - 1)] = 0;
	at->block->start_ns = at->block->touched_ns = bpf_ktime_get_ns();
	at->block->job = entry->record;
	at->block->state = SLOT_EMPTY;
	at->block->flags = at->block->contributors = at->block->received = 0;
	for (i = 0; i < MAX_SOURCES / 64; i++) {
		u64 members = job->workers[i] | job->places[i];
		u64 awaits = members & ~*(volatile u64 *)&job->out[i];

		at->block->sources[i] = 0;
		at->block->awaits[i] = awaits;
		expected += count_bits(awaits);
	}
	at->block->expected = expected;
	if (expected != job->expected)
		at->block->flags = SUM_DEGRADED;
	__sync_fetch_and_add(&job->made, 1);
	if (is_active)
		__sync_fetch_and_add(&job->active, 1);
	return V_FINE;
}

/* The floor only rises: what is before it may be gone. */
static __always_inline void raise_floor(struct block_at *at, u32 to)
{
	u64 *floor = &at->job->floor[at->space & 1], old;
	int i;

	for (i = 0; i < FLOOR_TRIES; i++) {
		old = *(volatile u64 *)floor;
		if ((s32)(to - (u32)old) <= 0 || __sync_val_compare_and_swap(floor, old, (u64)to) == old)
			break;
	}
}

static __always_inline u32 window_of(struct block_at *at)
{
	return at->job->window[at->space & 1];
}

static __always_inline void note_source(struct block_at *at, u32 source)
{
	u32 index = (at->space & 1) * MAX_SOURCES + source, *reached;

	/* 6.1's verifier loses the bounds of what clang makes of this, but for one last mask */
	asm volatile("" : "+r"(index));
	reached = &at->job->reached[index & (BLOCK_SPACES * MAX_SOURCES - 1)];
	if ((s32)(at->fragment + 1 - *reached) > 0)
		*reached = at->fragment + 1;
}

/* What the timers look at. */
static __always_inline void mark_block(struct block_at *at)
{
	u32 mark = at->fragment << MARK_SHIFT | at->block->received;

	if (at->block->state != SLOT_FILLING)
		mark = 0;
	*(volatile u32 *)&at->bucket->marks[at->place & (BUCKET_BLOCKS - 1)] = mark;
}

static __always_inline void read_block(struct sum *sum, struct block_record *block)
{
	sum->state = block->state;
	sum->flags = block->flags;
	sum->contributors = block->contributors;
	sum->age = block->age;
}

/* Adds the packet's lanes. The first ones take the place of what was there; the last get the sum. */
static __always_inline void add_lanes(struct gradient_packet *p, struct block_record *block, int is_first,
		int is_last)
{
	u64 *lanes = (u64 *)p->lanes;
	int i;

	if (is_first) {
		for (i = 0; i < WIRE_LANES / 2; i++)
			block->pairs[i] = bpf_ntohll(lanes[i]);
	} else if (!is_last) {
		for (i = 0; i < WIRE_LANES / 2; i++)
			block->pairs[i] += bpf_ntohll(lanes[i]);
	} else {
		for (i = 0; i < WIRE_LANES / 2; i++) {
			u64 pair = block->pairs[i] + bpf_ntohll(lanes[i]);

			block->pairs[i] = pair;
			lanes[i] = bpf_htonll(pair);
		}
	}
}

/* A contribution to a block that is there. Returns one of SEND_*. */
static __always_inline int contribute_to(struct gradient_packet *p, struct entry *entry, struct block_at *at,
		u32 number, u32 *verdict)
{
	struct block_record *block = at->block;
	u32 is_push = p->inc->op == WIRE_OP_PUSH, word = number >> 6 & (MAX_SOURCES / 64 - 1), is_last;
	u64 bit = 1ULL << (number & 63);

	note_source(at, number);
	if (block->state > SLOT_FILLING) {
		*verdict = block->sources[word] & bit ? V_RESENT : V_LATE;
		recall_lanes(p, block->pairs, block->count);
		return block->state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT_BACK;
	}
	if (block->sources[word] & bit) {
		*verdict = V_DUPLICATE;
		return SEND_NOTHING;
	}
	if (!(block->awaits[word] & bit)) { /* it had left when the block was made */
		*verdict = V_LATE;
		return SEND_NOTHING;
	}
	is_last = block->received + 1 == block->expected;
	add_lanes(p, block, !block->received, is_last);
	block->sources[word] |= bit;
	block->received++;
	if (block->received > 1)
		block->touched_ns = bpf_ktime_get_ns();
	block->flags |= is_marked(p) ? SUM_MARKED : 0;
	block->flags |= p->inc->flags & SUM_DEGRADED;
	block->contributors += contributors_of(p, is_push);
	block->count = bpf_ntohs(p->inc->count);
	block->age = is_push ? 0 : bpf_ntohs(p->inc->age);
	block->slot = bpf_ntohl(p->inc->slot);
	block->state = !is_last ? SLOT_FILLING : entry->role == ROLE_TOP ? SLOT_FINAL : SLOT_PARTIAL;
	mark_block(at);
	*verdict = V_AGGREGATED;
	if (!is_last)
		return SEND_NOTHING;
	*verdict = V_COMPLETED;
	__sync_fetch_and_add(&at->job->active, -1);
	if (block->expected == at->job->expected)
		raise_floor(at, at->fragment - window_of(at) + 1);
	if (block->flags & SUM_MARKED)
		p->ip->tos |= WIRE_CE;
	return block->state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT;
}

/*
 * Whether a contribution of a source that left comes to nothing: it makes no block. It is back with the first
 * vote that is not late, where a vector begins: blocks that are made from then on await it.
 */
static __always_inline int is_out(struct block_at *at, u32 source)
{
	u64 *word = &at->job->out[source >> 6 & (MAX_SOURCES / 64 - 1)], bit = 1ULL << (source & 63), old;
	int i;

	if (!(*(volatile u64 *)word & bit))
		return 0;
	if (!at->space)
		return !at->block;
	if (at->block && at->block->state > SLOT_FILLING)
		return 0;
	for (i = 0; i < FLOOR_TRIES; i++) {
		old = *(volatile u64 *)word;
		if (!(old & bit) || __sync_val_compare_and_swap(word, old, old & ~bit) == old)
			break;
	}
	return 0;
}

/* Adds a push or partial sum to its block. Returns one of SEND_*, as add() in sum.h does. */
static __always_inline int add_block(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		u32 *verdict)
{
	u32 number = bpf_ntohs(p->inc->worker), slot = bpf_ntohl(p->inc->slot), record = entry->record;
	u32 word = number >> 6 & (MAX_SOURCES / 64 - 1);
	struct job_record *job = job_records.lookup(&record);
	struct block_at at = {};
	struct sum sum = {};
	int send = SEND_NOTHING;
	u64 expected;

	*verdict = V_BAD_JOB;
	if (!job)
		return SEND_NOTHING;
	*verdict = V_BAD_WORKER;
	expected = p->inc->op == WIRE_OP_PUSH ? job->workers[word] : job->places[word];
	if (number >= MAX_SOURCES || !(expected >> (number & 63) & 1))
		return SEND_NOTHING;
	*verdict = lock_bucket(&at, p, entry, slot);
	if (*verdict != V_FINE)
		return SEND_NOTHING;
	if ((s32)(at.fragment - floor_of(&at)) < 0) {
		*verdict = V_STALE;
		goto unlock;
	}
	find_block(&at);
	if (is_out(&at, number)) {
		note_source(&at, number);
		*verdict = V_LATE;
		goto unlock;
	}
	if (!at.block) {
		*verdict = make_block(&at, entry, 1);
		if (*verdict != V_FINE) {
			send = *verdict == V_CAPPED ? SEND_NOTICE : SEND_NOTHING;
			goto unlock;
		}
	}
	if (at.block) {
		send = contribute_to(p, entry, &at, number, verdict);
		read_block(&sum, at.block);
	}
unlock:
	unlock_bucket(&at);
	if (send != SEND_NOTHING && send != SEND_NOTICE)
		address_sum(ctx, p, entry, &sum, slot, send);
	return send;
}

/*
 * Whether a tick would overwrite results that a missing source has not taken; if not, the floor rises to what
 * all have. Without branches: the verifier would walk both ways of each, for each source.
 */
static __always_inline int is_early(struct block_at *at)
{
	u32 floor = floor_of(at), window = window_of(at), source;
	s64 beyond = (s32)(at->fragment - floor), ahead = at->job->ahead[at->space & 1];
	/* of one that left: as far as there are results */
	s64 more = (s64)at->job->kept[at->space & 1] - ahead;
	s64 least = at->job->slots, early = 0, member, missing, has, most;

	for (source = 0; source < MAX_SOURCES; source++) {
		u32 word = source >> 6, reached = at->job->reached[(at->space & 1) * MAX_SOURCES + source];

		member = -(s64)((at->job->workers[word] | at->job->places[word]) >> (source & 63) & 1);
		missing = member & ((s64)(at->block->sources[word] >> (source & 63) & 1) - 1);
		/* beyond the floor */
		has = (s32)(reached - window - floor);
		has &= ~below_zero(has);
		most = ahead + (more & -(s64)(at->job->out[word] >> (source & 63) & 1));
		early |= missing & ~below_zero(beyond - has - most);
		has = (has & member) | (least & ~member);
		least += (has - least) & below_zero(has - least);
	}
	if (early)
		return 1;
	raise_floor(at, floor + (u32)least);
	return 0;
}

/* Counts a block for those without whom it is sent. */
static __always_inline void count_missed(struct block_at *at)
{
	u32 source;
	u64 missing;

	for (source = 0; source < MAX_SOURCES; source++) {
		u32 word = source >> 6;

		missing = at->block->awaits[word] & ~at->block->sources[word];
		__sync_fetch_and_add(&at->job->missed[source], (u32)(missing >> (source & 63) & 1));
	}
}

/* Completes a block with what is in it, if that is what the tick says. Returns as add_block() does. */
static __always_inline int tick_block(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		u32 *verdict)
{
	u32 sources = bpf_ntohs(p->inc->contributors), slot = bpf_ntohl(p->inc->slot);
	struct block_at at = {};
	struct sum sum = {};
	int send = SEND_NOTHING;

	*verdict = V_BAD_WORKER;
	if (entry->role == ROLE_TRANSIT)
		return SEND_NOTHING;
	*verdict = lock_bucket(&at, p, entry, slot);
	if (*verdict != V_FINE)
		return SEND_NOTHING;
	*verdict = V_TICK_LATE;
	find_block(&at);
	if (!at.block || (s32)(at.fragment - floor_of(&at)) < 0 || at.block->state != SLOT_FILLING)
		goto unlock;
	if (sources && sources != at.block->received)
		goto unlock;
	*verdict = V_TICK_EARLY;
	if (is_early(&at))
		goto unlock;
	*verdict = V_TICKED;
	count_missed(&at);
	at.block->state = entry->role == ROLE_TOP ? SLOT_FINAL : SLOT_PARTIAL;
	at.block->flags |= SUM_DEGRADED;
	at.block->age = bpf_ntohs(p->inc->age);
	recall_lanes(p, at.block->pairs, at.block->count);
	if (at.block->flags & SUM_MARKED)
		p->ip->tos |= WIRE_CE;
	mark_block(&at);
	__sync_fetch_and_add(&at.job->active, -1);
	send = at.block->state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT;
	read_block(&sum, at.block);
unlock:
	unlock_bucket(&at);
	if (send != SEND_NOTHING)
		address_sum(ctx, p, entry, &sum, slot, send);
	return send;
}

/*
 * Keeps a result that came from above, also where nobody here has pushed its block: who does that late has it
 * from here. Returns the verdict on one that is not to go on, or V_FINE.
 */
static __always_inline u32 keep_block(struct gradient_packet *p, struct entry *entry)
{
	u32 is_degraded = p->inc->flags & WIRE_FLAG_DEGRADED, verdict, state;
	struct block_at at = {};

	if (p->ip->daddr != entry->group_ip || entry->role == ROLE_TOP)
		return V_MALFORMED;
	if (entry->role != ROLE_INNER)
		return V_FINE;
	verdict = lock_bucket(&at, p, entry, bpf_ntohl(p->inc->slot));
	if (verdict != V_FINE)
		return verdict == V_LOCK_BUSY ? V_FINE : verdict;
	if ((s32)(at.fragment - floor_of(&at)) < 0)
		goto unlock;
	find_block(&at);
	if (!at.block)
		make_block(&at, entry, 0);
	if (!at.block)
		goto unlock;
	state = at.block->state;
	if (state == SLOT_FINAL || (state == SLOT_FILLING && !is_degraded))
		goto unlock;
	if (state == SLOT_FILLING)
		__sync_fetch_and_add(&at.job->active, -1);
	add_lanes(p, at.block, 1, 0);
	at.block->count = bpf_ntohs(p->inc->count);
	at.block->age = bpf_ntohs(p->inc->age);
	at.block->contributors = bpf_ntohs(p->inc->contributors);
	at.block->flags = (at.block->flags & SUM_MARKED) | (is_degraded ? SUM_DEGRADED : 0);
	at.block->slot = bpf_ntohl(p->inc->slot);
	at.block->state = SLOT_FINAL;
	mark_block(&at);
unlock:
	unlock_bucket(&at);
	return V_FINE;
}

static __always_inline int pass_block_result(struct gradient_packet *p, struct entry *entry, u32 *verdict)
{
	*verdict = checked(p, entry);
	if (*verdict == V_FINE)
		*verdict = keep_block(p, entry);
	if (*verdict != V_FINE)
		return SEND_NOTHING;
	*verdict = V_RESULT;
	return SEND_RESULT_ON;
}

/* What is addressed to this place. */
static __always_inline int at_own_blocks(struct xdp_md *ctx, struct gradient_packet *p, struct port *port,
		struct leaving *by, int kind, u32 *verdict)
{
	u32 op = p->inc->op;

	by->entry = entry_by(p, port);
	if (op == WIRE_OP_NOTICE)
		return pass_notice(p, by->entry, verdict);
	*verdict = checked(p, by->entry);
	if (*verdict != V_FINE)
		return SEND_NOTHING;
	if (kind != HAS_LANES || (op != WIRE_OP_PUSH && op != WIRE_OP_PARTIAL))
		return lost(verdict, V_MALFORMED);
	return add_block(ctx, p, by->entry, verdict);
}

static __always_inline int at_blocks(struct xdp_md *ctx, struct gradient_packet *p, struct port *port,
		struct leaving *by, u32 *verdict)
{
	int kind = intake(ctx, p, verdict);

	if (kind == LOST)
		return SEND_NOTHING;
	if (!may_send(port, p))
		return lost(verdict, V_BAD_SENDER);
	if (kind == HAS_LANES && p->inc->op == WIRE_OP_RESULT && !is_copy(p, port)) {
		by->entry = entry_of(p, port->owner);
		return pass_block_result(p, by->entry, verdict);
	}
	if (p->ip->daddr == port->self_ip)
		return at_own_blocks(ctx, p, port, by, kind, verdict);
	if (!is_group(p->ip->daddr))
		return SEND_ON;
	return lost(verdict, V_MALFORMED);
}

PORT_PROGRAM(blocks, at_blocks, SEND_NOTHING)
TICK_PROGRAM(blocks, tick_block)

#endif
