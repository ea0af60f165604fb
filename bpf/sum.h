/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Sums the contributions to a fragment exactly once each, and makes the packet that carries the sum:
 * docs/protocol.md, rules 3 to 10.
 */
#ifndef SUM_H
#define SUM_H

/* 1 ms where a clock is read in 60 ns: the holder adds its lanes in less than 1 us, unless interrupted */
#define LOCK_TRIES 1024
#define LOCK_PAUSE 16
#define V_FINE V_COUNT	/* no verdict yet */

/* What is to be sent. */
#define SEND_NOTHING 0
#define SEND_PARTIAL 1	   /* to the place above */
#define SEND_RESULT 2	   /* to the group */
#define SEND_RESULT_BACK 3 /* to the one who asked again */
#define SEND_NOTICE 4	   /* to the sender: the slot is taken */
#define SEND_FOR_ROOM 5	   /* to room_port(), as it came: no sum fits into an empty push */

/* What a slot says of its sum, read under its lock. */
struct sum {
	u32 state;
	u32 flags;
	u32 contributors;
	u32 age;
};

/*
 * Between two tries for a lock. The verifier walks through all tries, so that their number is dear:
 * of what an instruction can do, reading the clock takes the longest. 4096 tries without a pause were
 * over in less than 0.1 ms: one job of seven without recovery lost a push, beside four busy programs.
 */
static __always_inline void wait_for_lock(void)
{
	int i;

#pragma unroll
	for (i = 0; i < LOCK_PAUSE; i++)
		bpf_ktime_get_boot_ns(); /* not the clock that the packet path reads */
}

static __always_inline int lock_slot(struct slot *s)
{
	int i;

	for (i = 0; i < LOCK_TRIES; i++) {
		if (__sync_val_compare_and_swap(&s->lock, 0ULL, 1ULL) == 0)
			return 1;
		wait_for_lock();
	}
	return 0;
}

static __always_inline void unlock_slot(struct slot *s)
{
	__sync_lock_test_and_set(&s->lock, 0ULL);
}

static __always_inline struct entry *entry_at(u32 index, u32 job, u32 tree)
{
	struct entry *entry = entries.lookup(&index);

	return entry && entry->role != ROLE_NONE && entry->id == job && entry->tree == tree ? entry : 0;
}

/* The entry that a packet is for at the place of `owner`, or 0. */
static __always_inline struct entry *entry_of(struct gradient_packet *p, u32 owner)
{
	struct entry_key key = {.owner = owner, .job = bpf_ntohs(p->inc->job), .tree = p->inc->tree};
	u32 *index = entry_index.lookup(&key);

	return index ? entry_at(*index, key.job, key.tree) : 0;
}

/* The same, by way of a port, which knows where the first tree of its job is. */
static __always_inline struct entry *entry_by(struct gradient_packet *p, struct port *port)
{
	struct entry *entry = entry_at(port->index, bpf_ntohs(p->inc->job), p->inc->tree);

	return entry ? entry : entry_of(p, port->owner);
}

/* The verdict on a packet that the entry is not for, or V_FINE. */
static __always_inline u32 checked(struct gradient_packet *p, struct entry *entry)
{
	if (!entry)
		return V_BAD_JOB;
	if (bpf_ntohs(p->inc->lanes) != entry->lanes)
		return V_MALFORMED;
	return bpf_ntohl(p->inc->generation) == entry->generation ? V_FINE : V_BAD_GENERATION;
}

/* The slot at an offset from the segment, or 0 outside it. */
static __always_inline struct slot *slot_of(struct entry *entry, u32 offset)
{
	u32 index = entry->base + offset, aggregator = entry->aggregator;
	void *array;

	if (offset >= entry->size)
		return 0;
	array = slots.lookup(&aggregator);
	return array ? inner_lookup(array, &index) : 0;
}

/*
 * Whether results leave as copies with addresses of their own, one for each member (bpf/relay.h), and not to
 * a group.
 */
static __always_inline int is_relayed(struct entry *entry)
{
	return !entry->group_ip;
}

static __always_inline void read_sum(struct sum *sum, struct slot *s)
{
	sum->state = s->state;
	sum->flags = s->flags;
	sum->contributors = s->contributors;
	sum->age = s->age;
}

/*
 * Makes the packet carry a sum upwards (partial) or to the group (result), or where results are relayed back
 * to the sender of what it was; copies get their addresses later. `offset` is the slot's place in the
 * segment.
 */
static __always_inline void address_sum(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		struct sum *sum, u32 offset, int send)
{
	u8 flags = sum->flags & SUM_DEGRADED ? WIRE_FLAG_DEGRADED : 0;

	p->inc->reserved = 0;
	p->inc->age = bpf_htons(sum->age);
	p->inc->contributors = bpf_htons(sum->contributors);
	if (sum->state == SLOT_PARTIAL) {
		p->inc->op = WIRE_OP_PARTIAL;
		p->inc->flags = flags;
		p->inc->worker = bpf_htons(entry->number);
		p->inc->slot = bpf_htonl(entry->up_base + offset);
		readdress(p, entry->self_ip, entry->up_ip);
	} else {
		p->inc->op = WIRE_OP_RESULT;
		p->inc->flags = flags | WIRE_FLAG_FINAL;
		p->inc->worker = bpf_htons(WIRE_NO_WORKER);
		p->inc->slot = bpf_htonl(entry->result_base + offset);
		if (is_relayed(entry)) {
			readdress(p, entry->self_ip,
				send == SEND_RESULT_BACK ? p->ip->saddr : entry->self_ip);
		} else {
			set_group_mac(p, entry->group_ip);
			readdress(p, entry->self_ip, entry->group_ip);
		}
	}
	set_udp_checksum(p, UDP_BYTES);
	if (p->few)
		put_few(ctx, p);
}

static __always_inline void recall_lanes(struct gradient_packet *p, u64 *pairs, u32 count)
{
	u64 *lanes = (u64 *)p->lanes;
	int i;

	for (i = 0; i < WIRE_LANES / 2; i++)
		lanes[i] = bpf_htonll(pairs[i]);
	p->inc->count = bpf_htons(count);
}

/* Of how many workers the lanes of a contribution are: of none, where a worker left its out. */
static __always_inline u32 contributors_of(struct gradient_packet *p, int is_push)
{
	if (is_push)
		return !(p->inc->flags & WIRE_FLAG_DEGRADED);
	return bpf_ntohs(p->inc->contributors);
}

/*
 * Adds a push or partial sum to its slot. Returns one of SEND_*; but for a notice, the packet then holds what
 * to send. Of an empty push, which `is_empty` says (a constant, so that others pay nothing for it), the
 * packet has no room for a sum: where one is to be sent, nothing is changed, and it is to come again as a
 * push of zeros.
 */
static __always_inline int add(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		u32 *verdict, int is_empty)
{
	u32 fragment = bpf_ntohl(p->inc->fragment), number = bpf_ntohs(p->inc->worker),
		generation = entry->generation, state;
	u32 offset = bpf_ntohl(p->inc->slot) - entry->base, is_push = is_empty || p->inc->op == WIRE_OP_PUSH;
	u32 flags, contributors;
	u64 bit = number < WIRE_MAX_WORKERS ? 1ULL << number : 0, seen, *lanes = (u64 *)p->lanes;
	struct sum sum = {};
	struct slot *s;
	int i, send = SEND_NOTHING;
	s32 newer;

	if (!((is_push ? entry->workers : entry->places) & bit)) {
		*verdict = V_BAD_WORKER;
		return SEND_NOTHING;
	}
	s = slot_of(entry, offset);
	if (!s) {
		*verdict = V_BAD_SLOT;
		return SEND_NOTHING;
	}
	flags = is_marked(p) ? SUM_MARKED : 0;
	flags |= p->inc->flags & SUM_DEGRADED; /* the number is the wire's, too */
	contributors = contributors_of(p, is_push);
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
	} else if (newer == 0 && s->state != SLOT_FILLING) {
		if (is_empty) {
			send = SEND_FOR_ROOM;
		} else {
			*verdict = s->bitmap & bit ? V_RESENT : V_LATE;
			recall_lanes(p, s->pairs, s->count);
			send = s->state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT_BACK;
		}
	} else if (newer == 0 && (s->bitmap & bit)) {
		*verdict = V_DUPLICATE;
	} else {
		seen = newer > 0 ? bit : s->bitmap | bit;
		state = seen != (entry->workers | entry->places) ? SLOT_FILLING : entry->role == ROLE_TOP ?
			SLOT_FINAL : SLOT_PARTIAL;
		if (is_empty && state != SLOT_FILLING) {
			send = SEND_FOR_ROOM;
			goto done;
		}
		if (is_empty) {
			for (i = 0; newer > 0 && i < WIRE_LANES / 2; i++)
				/* or the compiler would call memset, which is not there */
				*(volatile u64 *)&s->pairs[i] = 0;
		} else if (newer > 0) {
			for (i = 0; i < WIRE_LANES / 2; i++)
				s->pairs[i] = bpf_ntohll(lanes[i]);
		} else if (state == SLOT_FILLING) {
			for (i = 0; i < WIRE_LANES / 2; i++)
				s->pairs[i] += bpf_ntohll(lanes[i]);
		} else {
			for (i = 0; i < WIRE_LANES / 2; i++) {
				u64 pair = s->pairs[i] + bpf_ntohll(lanes[i]);

				s->pairs[i] = pair;
				lanes[i] = bpf_htonll(pair);
			}
		}
		s->flags = flags | (newer > 0 ? 0 : s->flags);
		s->contributors = contributors + (newer > 0 ? 0 : s->contributors);
		s->bitmap = seen;
		s->generation = generation;
		s->fragment = fragment;
		s->count = bpf_ntohs(p->inc->count);
		s->age = is_push ? 0 : bpf_ntohs(p->inc->age);
		s->state = state;
		*verdict = state == SLOT_FILLING ? V_AGGREGATED : V_COMPLETED;
		if (state != SLOT_FILLING && s->flags & SUM_MARKED)
			p->ip->tos |= WIRE_CE; /* as of fragments of a datagram: RFC 3168, section 5.3 */
		if (state != SLOT_FILLING)
			send = state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT;
	}
done:
	read_sum(&sum, s);
	unlock_slot(s);
	if (send != SEND_NOTHING && send != SEND_FOR_ROOM && send != SEND_NOTICE)
		address_sum(ctx, p, entry, &sum, offset, send);
	return send;
}

/* Completes a sum with what is in it, if the slot still waits for this fragment. Returns as add() does. */
static __always_inline int tick(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		u32 *verdict)
{
	u32 fragment = bpf_ntohl(p->inc->fragment), offset = bpf_ntohl(p->inc->slot) - entry->base;
	struct sum sum = {};
	struct slot *s;
	int send = SEND_NOTHING;

	if (entry->role == ROLE_TRANSIT) {
		*verdict = V_BAD_WORKER;
		return SEND_NOTHING;
	}
	s = slot_of(entry, offset);
	if (!s) {
		*verdict = V_BAD_SLOT;
		return SEND_NOTHING;
	}
	if (!lock_slot(s)) {
		*verdict = V_LOCK_BUSY;
		return SEND_NOTHING;
	}
	*verdict = V_TICK_LATE;
	if (s->state == SLOT_FILLING && s->fragment == fragment && s->generation == entry->generation) {
		*verdict = V_TICKED;
		s->state = entry->role == ROLE_TOP ? SLOT_FINAL : SLOT_PARTIAL;
		s->flags |= SUM_DEGRADED;
		s->age = bpf_ntohs(p->inc->age);
		recall_lanes(p, s->pairs, s->count);
		if (s->flags & SUM_MARKED)
			p->ip->tos |= WIRE_CE;
		send = s->state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT;
	}
	read_sum(&sum, s);
	unlock_slot(s);
	if (send != SEND_NOTHING)
		address_sum(ctx, p, entry, &sum, offset, send);
	return send;
}

/*
 * Keeps a result that came from above, so that a contributor that lost it can have it from here. Returns the
 * verdict on one that is not to go on, or V_FINE. Copies of what is kept already are no news to anybody: who
 * lost one asks for it.
 */
static __always_inline u32 keep_result(struct gradient_packet *p, struct entry *entry)
{
	u32 fragment = bpf_ntohl(p->inc->fragment), is_degraded = p->inc->flags & WIRE_FLAG_DEGRADED;
	u64 *lanes = (u64 *)p->lanes;
	__be32 to_ip = is_relayed(entry) ? entry->self_ip : entry->group_ip;
	u32 verdict = V_FINE;
	struct slot *s;
	int i;

	if (p->ip->daddr != to_ip || entry->role == ROLE_TOP)
		return V_MALFORMED;
	if (entry->role != ROLE_INNER)
		return V_FINE;
	s = slot_of(entry, bpf_ntohl(p->inc->slot) - entry->result_base);
	if (!s)
		return V_BAD_SLOT;
	if (!lock_slot(s))
		return V_FINE;
	if (s->fragment == fragment && s->generation == entry->generation &&
	    (s->state == SLOT_PARTIAL || (s->state == SLOT_FILLING && is_degraded))) {
		for (i = 0; i < WIRE_LANES / 2; i++)
			s->pairs[i] = bpf_ntohll(lanes[i]);
		s->count = bpf_ntohs(p->inc->count);
		s->age = bpf_ntohs(p->inc->age);
		s->contributors = bpf_ntohs(p->inc->contributors);
		s->flags = (s->flags & SUM_MARKED) | (is_degraded ? SUM_DEGRADED : 0);
		s->state = SLOT_FINAL;
	} else if (is_relayed(entry) && s->fragment == fragment && s->generation == entry->generation &&
		   s->state == SLOT_FINAL) {
		verdict = V_PULL_DUPLICATE;
	}
	unlock_slot(s);
	return verdict;
}

/*
 * Makes a push of zeros of an empty one, whose sender and job were checked before. Returns 0 if the buffer
 * has no room.
 */
static __always_inline int make_room(struct xdp_md *ctx, struct gradient_packet *p)
{
	int bare_bytes = sizeof(struct ethhdr) + sizeof(struct iphdr) + HEADER_BYTES, bytes;

	/* what is behind it, as on Ethernet there may be, is no lanes */
	if (bpf_xdp_adjust_tail(ctx, bare_bytes - (int)(ctx->data_end - ctx->data)))
		return 0;
	point(p, (void *)(long)ctx->data);
	if ((void *)(p->inc + 1) > (void *)(long)ctx->data_end)
		return 0;
	bytes = (int)(sizeof(*p->eth) + sizeof(*p->ip) + HEADER_BYTES + lanes_bytes(p));
	/* the kernel clears what it adds */
	if (bpf_xdp_adjust_tail(ctx, bytes - (int)(ctx->data_end - ctx->data)))
		return 0;
	point(p, (void *)(long)ctx->data);
	if ((void *)(p->inc + 1) > (void *)(long)ctx->data_end)
		return 0;
	p->ip->tot_len = bpf_htons(sizeof(*p->ip) + HEADER_BYTES + lanes_bytes(p));
	p->udp->len = bpf_htons(HEADER_BYTES + lanes_bytes(p));
	p->inc->op = WIRE_OP_PUSH;
	return gradients_of(ctx, p, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
}

/* Cuts a push or partial sum down to a notice for its sender. Returns 0 if the driver cannot cut. */
static __always_inline int make_notice(struct xdp_md *ctx, struct entry *entry)
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
	readdress(p, entry->self_ip, sender);
	set_udp_checksum(p, HEADER_BYTES);
	return 1;
}

#endif
