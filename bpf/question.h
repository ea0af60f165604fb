/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Answers which fragments of a range a place has (ALEPH, algorithm 2; docs/protocol.md, "Questions"): the
 * question comes back as the answer, or goes on to the place above. It changes no slot.
 */
#ifndef QUESTION_H
#define QUESTION_H

/*
 * What is found in a slot. Without its lock: the words may be of two moments, and an answer that is wrong
 * costs a repetition or a question more, and no sum.
 */
static __always_inline u32 found_in(struct slot *s, u32 fragment, u32 generation, u64 bit)
{
	u32 state = *(volatile u32 *)&s->state;
	s32 newer;

	if (state == SLOT_EMPTY || *(volatile u32 *)&s->generation != generation)
		return FOUND_LACKS;
	newer = (s32)(fragment - *(volatile u32 *)&s->fragment);
	if (newer)
		return newer > 0 ? FOUND_LACKS : FOUND_HELD;
	if (state == SLOT_FILLING)
		return *(volatile u64 *)&s->bitmap & bit ? FOUND_HELD : FOUND_LACKS;
	return state == SLOT_FINAL ? FOUND_FINAL : FOUND_SUMMED;
}

/* Fills in what nobody below has. Returns the verdict; `*open` says whether the place above may know more. */
static __always_inline u32 look_up(struct gradient_packet *p, struct entry *entry, u64 bit, u32 *open)
{
	u32 count = bpf_ntohs(p->inc->count), fragment = bpf_ntohl(p->inc->fragment);
	u32 aggregator = entry->aggregator, i, lane, offset, index, state;
	void *array = slots.lookup(&aggregator);
	struct slot *s;

	if (count > QUESTION_MOST)
		return V_MALFORMED;
	if (!array)
		return V_BAD_SLOT;
	for (i = 0; i < QUESTION_MOST && i < WIRE_LANES; i++) {
		if (i >= count)
			break;
		lane = bpf_ntohl(p->lanes[i]);
		if (lane >> FOUND_SHIFT != FOUND_SUMMED)
			continue;
		offset = lane & ((1 << FOUND_SHIFT) - 1);
		index = entry->base + offset;
		s = offset < entry->size ? inner_lookup(array, &index) : 0;
		if (!s)
			return V_BAD_SLOT;
		state = found_in(s, fragment + i, entry->generation, bit);
		p->lanes[i] = bpf_htonl(state << FOUND_SHIFT | offset);
		if (state == FOUND_SUMMED)
			*open = 1;
	}
	return V_ASKED;
}

/*
 * A question that is addressed to this place. `goes_up` says whether it may: one from the host's
 * own worker has an address that no other host knows. Returns SEND_RESULT_BACK or SEND_PARTIAL for the ways
 * that those take.
 */
static __always_inline int answer(struct xdp_md *ctx, struct gradient_packet *p, struct entry *entry,
		int goes_up, u32 *verdict)
{
	u32 number = bpf_ntohs(p->inc->worker), open = 0;
	u64 bit = number < WIRE_MAX_WORKERS ? 1ULL << number : 0;
	int send;

	*verdict = checked(p, entry);
	if (*verdict != V_FINE)
		return SEND_NOTHING;
	*verdict = V_MALFORMED;
	if (entry->program != PROGRAM_SUM)
		return SEND_NOTHING;
	*verdict = V_BAD_WORKER;
	if (!((entry->workers | entry->places) & bit))
		return SEND_NOTHING;
	*verdict = look_up(p, entry, bit, &open);
	if (*verdict != V_ASKED)
		return SEND_NOTHING;
	send = entry->workers & bit ? SEND_RESULT_BACK : SEND_PARTIAL;
	if (goes_up && open && p->inc->flags & WIRE_FLAG_RETRANSMIT) {
		p->inc->worker = bpf_htons(entry->number);
		readdress(p, p->ip->saddr, entry->up_ip);
		send = SEND_PARTIAL;
	} else {
		p->inc->op = WIRE_OP_ANSWER;
		p->inc->flags &= WIRE_FLAG_RETRANSMIT;
		/* a stack takes nothing that came for another's address, whatever XDP makes of that */
		__builtin_memcpy(p->eth->h_dest, p->eth->h_source, sizeof(p->eth->h_dest));
		readdress(p, entry->self_ip, p->ip->saddr);
	}
	set_udp_checksum(p, UDP_BYTES);
	if (p->few)
		put_few(ctx, p);
	return send;
}

#endif
