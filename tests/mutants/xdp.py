"""Bugs in bpf/, such as a hasty change could leave."""

from __future__ import annotations

from tests.mutants.mutation import Kind, Mutation


def _in(file: str, *bugs: tuple[str, str, str]) -> tuple[Mutation, ...]:
    return tuple(Mutation(Kind.XDP, f"bpf/{file}", name, old, new) for name, old, new in bugs)


XDP = (
    *_in(
        "systems/blocks.h",
        (
            "a contribution is added twice",
            "	if (block->sources[word] & bit) {\n		*verdict = V_DUPLICATE;",
            "	if (0) {\n		*verdict = V_DUPLICATE;",
        ),
        (
            "the first lanes are added to what was there",
            "add_lanes(p, block, !block->received, is_last);",
            "add_lanes(p, block, 0, is_last);",
        ),
        (
            "a place's sum counts for one worker",
            "	block->contributors += contributors_of(p, is_push);",
            "	block->contributors += 1;",
        ),
        (
            "a sum that lacks workers below is whole",
            "	block->flags |= p->inc->flags & SUM_DEGRADED;\n",
            "",
        ),
        (
            "the floor is where the block is",
            "raise_floor(at, at->fragment - window_of(at) + 1);",
            "raise_floor(at, at->fragment + 1);",
        ),
        (
            "the floor stays",
            "	if (block->expected == at->job->expected)\n"
            "		raise_floor(at, at->fragment - window_of(at) + 1);\n",
            "",
        ),
        ("a source that left is waited for", "members & ~*(volatile u64 *)&job->out[i];", "members;"),
        (
            "a block waits for all, who left included",
            "is_last = block->received + 1 == block->expected;",
            "is_last = block->received + 1 == at->job->expected;",
        ),
        (
            "a sum without one that left is whole",
            "	if (expected != job->expected)\n		at->block->flags = SUM_DEGRADED;\n",
            "",
        ),
        (
            "results are not kept for one that left",
            "	if (out && (u32)beyond >= job->kept[at->space & 1]) "
            "/* the results that those who left need */\n		return V_CAPPED;\n",
            "",
        ),
        (
            "the floor rises without one that left",
            "	if (block->expected == at->job->expected)\n		raise_floor",
            "	raise_floor",
        ),
        ("one that left makes blocks", "		return !at->block;\n", "		return 0;\n"),
        (
            "one that left is back by whatever it sends",
            "	if (!at->space)\n		return !at->block;\n",
            "",
        ),
        (
            "one that left is back by a late vote",
            "	if (at->block && at->block->state > SLOT_FILLING)\n		return 0;\n	for",
            "	for",
        ),
        (
            "one that left never is back",
            "__sync_val_compare_and_swap(word, old, old & ~bit) == old)",
            "__sync_val_compare_and_swap(word, old, old) == old)",
        ),
        (
            "one that left is added to what did not wait for it",
            "	if (!(block->awaits[word] & bit)) {",
            "	if (0) {",
        ),
        (
            "ticks wait for one that left as for others",
            "		most = ahead + (more & -(s64)(at->job->out[word] >> (source & 63) & 1));",
            "		most = ahead;",
        ),
        (
            "ticks take results from one that left",
            "	s64 more = (s64)at->job->kept[at->space & 1] - ahead;",
            "	s64 more = 2 * (s64)at->job->kept[at->space & 1] - ahead;",
        ),
        (
            "one that left is not heard",
            "		note_source(&at, number);\n		*verdict = V_LATE;",
            "		*verdict = V_LATE;",
        ),
        (
            "what is before the floor is summed anew",
            "	if ((s32)(at.fragment - floor_of(&at)) < 0) {\n		*verdict = V_STALE;",
            "	if (0) {\n		*verdict = V_STALE;",
        ),
        (
            "any block is near enough",
            "	if ((u32)beyond >= job->kept[at->space & 1] + job->window[at->space & 1])\n",
            "	if (0)\n",
        ),
        (
            "there is no cap",
            "	if (is_active && *(volatile u32 *)&job->active >= job->cap && (u32)beyond >= job->cap)\n",
            "	if (0)\n",
        ),
        (
            "the cap holds for the block that all wait for",
            "job->active >= job->cap && (u32)beyond >= job->cap)",
            "job->active >= job->cap)",
        ),
        (
            "a sum that is made stays active",
            "	*verdict = V_COMPLETED;\n	__sync_fetch_and_add(&at->job->active, -1);",
            "	*verdict = V_COMPLETED;",
        ),
        ("votes are vectors", "	at->space = slot >= at->job->data;", "	at->space = 0;"),
        (
            "a tick completes a block that more came to",
            "	if (sources && sources != at.block->received)\n		goto unlock;\n",
            "",
        ),
        (
            "a tick completes what is complete",
            " || at.block->state != SLOT_FILLING)\n		goto unlock;\n	if (sources",
            ")\n		goto unlock;\n	if (sources",
        ),
        (
            "a tick overtakes who has not come",
            "	if (is_early(&at))\n",
            "	if (0)\n",
        ),
        (
            "a tick waits for somebody's values",
            "	if (is_early(&at))\n",
            "	if (!at.block->contributors || is_early(&at))\n",
        ),
        ("a tick's sum is not degraded", "	at.block->flags |= SUM_DEGRADED;\n", ""),
        ("a result from above is not kept", "	add_lanes(p, at.block, 1, 0);\n", ""),
        (
            "a result that nobody waits for is not kept",
            "	if (!at.block)\n		make_block(&at, entry, 0);\n",
            "",
        ),
        (
            "a record of a job that is gone is kept",
            "	if (!job || job->serial != (u32)(key >> KEY_SHIFT))\n		return 1;",
            "	if (!job)\n		return 1;",
        ),
        (
            "256 sources are 64",
            "	u64 bit = 1ULL << (number & 63);\n\n	note_source",
            "	u64 bit = 1ULL << (number & 31);\n\n	note_source",
        ),
    ),
    *_in(
        "systems/owned.h",
        (
            "a contribution is added twice",
            "newer == 0 && s->state == SLOT_FILLING && s->bitmap & bit",
            "0",
        ),
        (
            "a fragment that is not complete keeps its slot",
            "	if (newer < 0) {\n",
            "	if (newer < 0 || (newer > 0 && s->state == SLOT_FILLING && s->bitmap)) {\n",
        ),
        ("what is older takes the slot", "	if (newer < 0) {\n", "	if (0) {\n"),
        (
            "the first lanes are added to what was there",
            "add_owned_lanes(p, s, newer > 0, is_kept)",
            "add_owned_lanes(p, s, 0, is_kept)",
        ),
        (
            "what comes again is added to a kept sum",
            "add_owned_lanes(p, s, newer > 0, is_kept)",
            "add_owned_lanes(p, s, newer > 0, 0)",
        ),
        (
            "a place's sum counts for one worker",
            "contributors = is_push ? 1 : bpf_ntohs(p->inc->contributors), is_done",
            "contributors = 1, is_done",
        ),
        (
            "the end of a request is lost",
            "	flags |= p->inc->flags & WIRE_FLAG_END ? SUM_END : 0;\n",
            "",
        ),
        (
            "the end of another request stays",
            "			s->flags = flags | (newer > 0 ? 0 : s->flags);",
            "			s->flags = flags | s->flags;",
        ),
        ("a beat that was overtaken counts", "	if (record->heard & bit) {\n", "	if (0) {\n"),
        (
            "the least of some goes up",
            "	if (record->heard == members) {\n",
            "	if (1) {\n",
        ),
        (
            "every beat goes up",
            "number == record->leader;",
            "1;",
        ),
        (
            "the lowest member's beat goes up on growth alone",
            "number == record->leader;",
            "0;",
        ),
        (
            "the largest goes up",
            "		behind = (behind - least) & below_zero(behind - least);",
            "		behind = (behind - least) & ~below_zero(behind - least);",
        ),
        (
            "the owner's packets go to any group",
            "	if (p->ip->daddr != entry->group_ip)\n		return SEND_NOTHING;\n	*verdict = p->inc->op",
            "	*verdict = p->inc->op",
        ),
    ),
    *_in(
        "port.h",
        (
            "anybody is the owner",
            "	if (by_owner(p->inc))\n		return port->is_owner;",
            "	if (by_owner(p->inc))\n		return 1;",
        ),
    ),
    *_in(
        "question.h",
        (
            "an incomplete sum holds anybody's contribution",
            "*(volatile u64 *)&s->bitmap & bit ? FOUND_HELD : FOUND_LACKS",
            "FOUND_HELD",
        ),
        (
            "a generation that is over has its fragments",
            "|| *(volatile u32 *)&s->generation != generation",
            "",
        ),
        (
            "a newer fragment's slot lacks the one before",
            "newer > 0 ? FOUND_LACKS : FOUND_HELD",
            "FOUND_LACKS",
        ),
        (
            "a result is a sum that went up",
            "state == SLOT_FINAL ? FOUND_FINAL : FOUND_SUMMED",
            "FOUND_SUMMED",
        ),
        (
            "what a place below found is found again",
            "		if (lane >> FOUND_SHIFT != FOUND_SUMMED)\n",
            "		if (0)\n",
        ),
        ("all lanes are of the first fragment", "found_in(s, fragment + i,", "found_in(s, fragment,"),
        (
            "slots of other segments are looked into",
            "offset < entry->size ? inner_lookup",
            "1 ? inner_lookup",
        ),
        (
            "a question may be of more than it says",
            "	if (count > QUESTION_MOST)\n		return V_MALFORMED;\n",
            "",
        ),
        (
            "who is no member is answered",
            "	if (!((entry->workers | entry->places) & bit))\n",
            "	if (!bit)\n",
        ),
        (
            "every question goes up",
            "if (goes_up && open && p->inc->flags & WIRE_FLAG_RETRANSMIT)",
            "if (goes_up && open)",
        ),
        ("a question that is answered goes up", "if (goes_up && open && ", "if (goes_up && "),
        ("a loop's question goes up", "if (goes_up && open && ", "if (open && "),
        ("a question goes up as its worker's", "		p->inc->worker = bpf_htons(entry->number);\n", ""),
        (
            "an answer goes to who passed it on",
            "readdress(p, p->ip->saddr, entry->up_ip)",
            "readdress(p, entry->self_ip, entry->up_ip)",
        ),
        (
            "an answer is for the address that it was asked at",
            "		__builtin_memcpy(p->eth->h_dest, p->eth->h_source, sizeof(p->eth->h_dest));\n",
            "",
        ),
        ("a question comes back as one", "		p->inc->op = WIRE_OP_ANSWER;\n", ""),
    ),
    *_in(
        "programs.c",
        (
            "a switch takes answers for pushes",
            "p->inc->op == WIRE_OP_ANSWER || for_end(p->inc)",
            "for_end(p->inc)",
        ),
        (
            "a host asks of any address",
            "	if (!port && (!by->entry || p->ip->daddr != by->entry->self_ip))\n",
            "	if (!port && !by->entry)\n",
        ),
    ),
    *_in(
        "port.h",
        (
            "a host asks as any worker",
            "p->inc->op == WIRE_OP_QUESTION && port->worker == bpf_ntohs(p->inc->worker)",
            "p->inc->op == WIRE_OP_QUESTION",
        ),
    ),
    *_in(
        "pull.h",
        (
            "answers of any generation are the worker's",
            "	if (*verdict != V_FINE)\n		return XDP_DROP;\n	*verdict = V_ANSWERED;\n",
            "	if (!puller)\n		return XDP_DROP;\n	*verdict = V_ANSWERED;\n",
        ),
    ),
    *_in(
        "relay.h",
        (
            "copies have the checksum of what they are copied of",
            "	p->udp->check = check ? check : 0xffff;\n",
            "",
        ),
        (
            "copies go where their copied result came from",
            "copy->from_ip, copy->to_ip)",
            "copy->to_ip, copy->from_ip)",
        ),
        (
            "copies have one destination at Ethernet",
            "	__builtin_memcpy(p->eth->h_dest, copy->mac, 6);\n",
            "",
        ),
    ),
    *_in(
        "relay.h",
        (
            "anything of the gradient port leaves by a pair for copies",
            " || p->inc->op != WIRE_OP_RESULT)",
            ")",
        ),
        (
            "other ports' datagrams leave by a pair for copies",
            " || !is_inc(ip, end) ||",
            " ||",
        ),
        (
            "a copy's checksum loses a carry",
            "	sum = (sum & 0xffff) + (sum >> 16);\n	sum = (sum & 0xffff) + (sum >> 16);\n	check",
            "	sum = (sum & 0xffff) + (sum >> 16);\n	check",
        ),
        ("a copy's checksum may be none", "check ? check : 0xffff", "check"),
        ("copies are counted as drops", "	*verdict = V_FORWARDED;\n", ""),
    ),
    *_in(
        "programs.c",
        (
            "a head's own worker pulls what is for all",
            "		if (is_relayed(entry)) {\n			by->entry = entry;\n",
            "		if (0) {\n			by->entry = entry;\n",
        ),
        (
            "what is for another place is summed here",
            "	if (p->ip->daddr != port->self_ip)\n		return is_group",
            "	if (0)\n		return is_group",
        ),
        (
            "a push to a group is forwarded",
            "		return is_group(p->ip->daddr) ? lost(verdict, V_MALFORMED)",
            "		return 0 ? lost(verdict, V_MALFORMED)",
        ),
        (
            "anybody ticks a host",
            "	if (p->inc->op == WIRE_OP_TICK)\n		return lost(verdict, V_BAD_SENDER);\n",
            "",
        ),
        (
            "a host takes empty pushes for notices",
            "	if (kind == IS_BARE && p->inc->op == WIRE_OP_EMPTY)\n",
            "	if (0)\n",
        ),
        (
            "a place takes what is for another address",
            "if (!by->entry || p->ip->daddr != by->entry->self_ip)",
            "if (!by->entry)",
        ),
        (
            "anybody on the host pushes by the loop",
            " &&\n\t       port->worker == bpf_ntohs(p->inc->worker);",
            ";",
        ),
        ("the loop takes what is for any address", "return p->ip->daddr == port->self_ip && ", "return "),
        (
            "what a place keeps its worker does not get",
            "if (!puller || puller->job != entry->id)",
            "if (1)",
        ),
        ("what a worker gets its place does not keep", "puller && !puller->at_place ? 0", "puller ? 0"),
    ),
    *_in(
        "port.h",
        ("any place of a job sends to hosts", "return port->relays && ", "return port->is_place && "),
        ("copies may be for a switch", "p->ip->daddr != port->self_ip && !is_group", "!is_group"),
        (
            "a notice passes where nobody contributes",
            "	if (entry->role == ROLE_TRANSIT)\n		return lost(verdict, V_BAD_WORKER);\n",
            "",
        ),
        (
            "a worker speaks for another",
            "return port->worker == bpf_ntohs(p->inc->worker);",
            "return 1;",
        ),
        (
            "a port's job is not looked at",
            "	if (port->job != bpf_ntohs(p->inc->job))\n		return 0;",
            "	if (0)\n		return 0;",
        ),
        (
            "any host's port is a place's",
            "return port->is_place && p->inc->op != WIRE_OP_TICK;",
            "return p->inc->op != WIRE_OP_TICK;",
        ),
        (
            "a place's port sends no notices",
            "return port->is_place && p->inc->op != WIRE_OP_TICK;",
            "return port->is_place && p->inc->op != WIRE_OP_TICK && p->inc->op != WIRE_OP_NOTICE;",
        ),
        (
            "a place's port sends ticks",
            "return port->is_place && p->inc->op != WIRE_OP_TICK;",
            "return port->is_place;",
        ),
        ("other switches send ticks", "		return p->inc->op != WIRE_OP_TICK;\n", "		return 1;\n"),
        (
            "an empty push speaks for another",
            "	if (by_worker(p->inc))\n		return port",
            "	if (p->inc->op == WIRE_OP_PUSH)\n		return port",
        ),
        (
            "the control port takes all",
            "	if (kind != HAS_LANES || p->inc->op != WIRE_OP_TICK)",
            "	if (kind != HAS_LANES)",
        ),
    ),
    *_in(
        "leave.h",
        (
            "what goes to the others goes back as well",
            "return redirect_to_group(group, 0, BPF_F_BROADCAST | flags)",
            "return redirect_to_group(group, 0, BPF_F_BROADCAST)",
        ),
        (
            "a result leaves by one port of the group",
            "return redirect_to_group(group, 0, BPF_F_BROADCAST | flags)",
            "return redirect_to_group(group, 0, flags)",
        ),
        (
            "the last contributor gets no result",
            "others = send == SEND_RESULT_ON ? BPF_F_EXCLUDE_INGRESS : 0;",
            "others = BPF_F_EXCLUDE_INGRESS;",
        ),
        ("a notice goes on to other switches", "return to_workers(by->entry", "return to_group(p, by->entry"),
        (
            "an empty push has no port any more",
            "	__builtin_memcpy(p->eth->h_source, &ifindex, sizeof(ifindex));\n	return",
            "	return",
        ),
        (
            "a sum goes to the group where one asked again",
            "if (send == SEND_RESULT || (!at_host",
            "if (send == SEND_RESULT || send == SEND_RESULT_BACK || (!at_host",
        ),
        (
            "a host's partial sum goes back to who completed it",
            "return bpf_redirect(by->eth0, 0);",
            "return bounce(by->from);",
        ),
        ("a partial sum counts as forwarded", "send == SEND_ON ? verdict : &way", "verdict"),
        ("what is forwarded is not counted", "send == SEND_ON ? verdict : &way", "&way"),
    ),
    *_in(
        "sum.h",
        (
            "one slot behind the segment is the tree's",
            "if (offset >= entry->size)",
            "if (offset > entry->size)",
        ),
        (
            "an empty push leaves a slot what it held",
            "for (i = 0; newer > 0 && i < WIRE_LANES / 2; i++)",
            "for (i = 0; newer < 0 && i < WIRE_LANES / 2; i++)",
        ),
        (
            "an empty push that has room is empty still",
            "	p->inc->op = WIRE_OP_PUSH;\n	return gradients_of",
            "	return gradients_of",
        ),
        (
            "a slot stays locked",
            "	unlock_slot(s);\n	if (send != SEND_NOTHING && send",
            "	if (send != SEND_NOTHING && send",
        ),
        ("all trees of a job are its first", " && entry->tree == tree ?", " ?"),
        (
            "a sum has the age of its last packet",
            "is_push ? 0 : bpf_ntohs(p->inc->age)",
            "bpf_ntohs(p->inc->age)",
        ),
        ("a sum's age is not sent", "	p->inc->age = bpf_htons(sum->age);\n", ""),
        ("a partial sum has the last worker's number", "p->inc->worker = bpf_htons(entry->number);", ""),
        (
            "a partial sum's slot is the top's",
            "bpf_htonl(entry->up_base + offset)",
            "bpf_htonl(entry->result_base + offset)",
        ),
        (
            "a result's slot is the place's, not the top's",
            "bpf_htonl(entry->result_base + offset)",
            "bpf_htonl(entry->base + offset)",
        ),
        ("a result does not say that it is degraded", "flags | WIRE_FLAG_FINAL", "WIRE_FLAG_FINAL"),
        (
            "another generation is summed",
            "return bpf_ntohl(p->inc->generation) == entry->generation ? V_FINE : V_BAD_GENERATION;",
            "return V_FINE;",
        ),
        (
            "packets of other lanes are summed",
            "	if (bpf_ntohs(p->inc->lanes) != entry->lanes)\n		return V_MALFORMED;\n",
            "",
        ),
        ("sums of few lanes are not put back", "	if (p->few)\n		put_few(ctx, p);\n", ""),
        ("worker 64 is worker 0", "number < WIRE_MAX_WORKERS", "number <= WIRE_MAX_WORKERS"),
        (
            "numbers of places and of workers are one",
            "(is_push ? entry->workers : entry->places) & bit",
            "(entry->workers | entry->places) & bit",
        ),
        (
            "fragments compare as numbers",
            "1 : (s32)(fragment - s->fragment);",
            "1 : fragment > s->fragment ? 1 : fragment < s->fragment ? -1 : 0;",
        ),
        (
            "a complete slot does not give way",
            "} else if (newer > 0 && s->state == SLOT_FILLING && s->generation == generation) {",
            "} else if (newer > 0 && s->state != SLOT_EMPTY && s->generation == generation) {",
        ),
        (
            "a slot that another job left incomplete stays taken",
            "} else if (newer > 0 && s->state == SLOT_FILLING && s->generation == generation) {",
            "} else if (newer > 0 && s->state == SLOT_FILLING) {",
        ),
        ("a contribution counts twice", "} else if (newer == 0 && (s->bitmap & bit)) {", "} else if (0) {"),
        (
            "a late contribution is added",
            "} else if (newer == 0 && s->state != SLOT_FILLING) {",
            "} else if (newer == 0 && s->state != SLOT_FILLING && s->bitmap & bit) {",
        ),
        ("who is late is told to have been in it", "s->bitmap & bit ? V_RESENT : V_LATE", "V_RESENT"),
        ("a sum sent again has the asker's count", "	p->inc->count = bpf_htons(count);\n", ""),
        (
            "a partial sum asked for again goes to the asker",
            "		send = s->state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT_BACK;",
            "		send = SEND_RESULT_BACK;",
        ),
        (
            "members of an older fragment stay in",
            "seen = newer > 0 ? bit : s->bitmap | bit;",
            "seen = s->bitmap | bit;",
        ),
        ("the flags of an older fragment stay", "(newer > 0 ? 0 : s->flags)", "s->flags"),
        (
            "the contributors of an older fragment stay",
            "(newer > 0 ? 0 : s->contributors)",
            "s->contributors",
        ),
        ("a partial sum counts as one", "	return bpf_ntohs(p->inc->contributors);\n", "	return 1;\n"),
        (
            "who leaves its values out contributes",
            "return !(p->inc->flags & WIRE_FLAG_DEGRADED);",
            "return 1;",
        ),
        (
            "a tick waits for somebody's values",
            "*verdict = V_TICKED;",
            "*verdict = s->contributors ? V_TICKED : V_TICK_EARLY;",
        ),
        (
            "a degraded partial sum degrades nothing",
            "\tflags |= p->inc->flags & SUM_DEGRADED; /* the number is the wire's, too */\n",
            "",
        ),
        ("a push degrades a sum", "flags |= p->inc->flags & SUM_DEGRADED;", "flags |= p->inc->flags & 15;"),
        ("the last sum is not kept", "				s->pairs[i] = pair;\n", ""),
        ("a slot keeps its former generation", "		s->generation = generation;\n", ""),
        (
            "a place that waits for places alone is a pass",
            "if (entry->role == ROLE_TRANSIT) {",
            "if (!entry->workers) {",
        ),
        (
            "a tick completes any fragment",
            "s->state == SLOT_FILLING && s->fragment == fragment &&",
            "s->state == SLOT_FILLING &&",
        ),
        (
            "a tick completes what another generation left",
            "s->fragment == fragment && s->generation == entry->generation) {\n",
            "s->fragment == fragment) {\n",
        ),
        (
            "a complete sum is ticked again",
            "if (s->state == SLOT_FILLING && s->fragment",
            "if (s->state != SLOT_EMPTY && s->fragment",
        ),
        ("a ticked sum is whole", "		s->flags |= SUM_DEGRADED;\n", ""),
        (
            "a tick tells no age",
            "		s->age = bpf_ntohs(p->inc->age);\n		recall_lanes",
            "		recall_lanes",
        ),
        (
            "a ticked sum is not marked",
            "		if (s->flags & SUM_MARKED)\n			p->ip->tos |= WIRE_CE;\n",
            "",
        ),
        ("a head copies again what it has copied", "		verdict = V_PULL_DUPLICATE;\n", ""),
        (
            "a head takes a result for what its last job of the number kept",
            "is_relayed(entry) && s->fragment == fragment && s->generation == entry->generation &&",
            "is_relayed(entry) && s->fragment == fragment &&",
        ),
        (
            "a result goes back to the place that sends it",
            "send == SEND_RESULT_BACK ? p->ip->saddr : entry->self_ip",
            "entry->self_ip",
        ),
        (
            "a result for another group enters",
            "if (p->ip->daddr != to_ip || entry->role == ROLE_TOP)",
            "if (entry->role == ROLE_TOP)",
        ),
        (
            "a result enters where results are made",
            "if (p->ip->daddr != to_ip || entry->role == ROLE_TOP)",
            "if (p->ip->daddr != to_ip)",
        ),
        (
            "a switch that only passes results keeps them",
            "	if (entry->role != ROLE_INNER)\n		return V_FINE;\n",
            "",
        ),
        (
            "a result of another generation is kept",
            "if (s->fragment == fragment && s->generation == entry->generation &&\n",
            "if (s->fragment == fragment &&\n",
        ),
        (
            "any fragment's result is kept",
            "if (s->fragment == fragment && s->generation == entry->generation &&\n",
            "if (s->generation == entry->generation &&\n",
        ),
        (
            "any result ends a sum that is waited for",
            "(s->state == SLOT_FILLING && is_degraded)",
            "s->state == SLOT_FILLING",
        ),
        ("a degraded result ends no sum", " || (s->state == SLOT_FILLING && is_degraded)", ""),
        ("a kept result is still a partial sum", "		s->state = SLOT_FINAL;\n", ""),
        (
            "a kept result has the partial sum's contributors",
            "		s->contributors = bpf_ntohs(p->inc->contributors);\n",
            "",
        ),
        (
            "a kept result is whole",
            "(s->flags & SUM_MARKED) | (is_degraded ? SUM_DEGRADED : 0)",
            "s->flags & SUM_MARKED",
        ),
        ("a notice has no ECN", "p->inc->flags = WIRE_FLAG_ECN;", "p->inc->flags = 0;"),
        ("a notice has a count", "	p->inc->count = 0;\n", ""),
    ),
    *_in(
        "parse.h",
        ("fragments of datagrams have ports", "bpf_htons(0x3fff)", "bpf_htons(0x1fff)"),
        ("IPv4 options are not seen", "if (ip->ihl != 5)", "if (0)"),
        ("any version is ours", " && inc->version == WIRE_VERSION", ""),
        (
            "a count above the lanes passes",
            "bpf_ntohs(inc->count) <= bpf_ntohs(inc->lanes);",
            "bpf_ntohs(inc->count) <= bpf_ntohs(inc->lanes) + 1;",
        ),
        (
            "the IPv4 length is not looked at",
            "p->ip->tot_len == bpf_htons(sizeof(*p->ip) + udp_bytes) && ",
            "",
        ),
        (
            "a datagram without a checksum is intact",
            "return p->udp->check && datagram_sum",
            "return !p->udp->check || datagram_sum",
        ),
        (
            "what was behind few lanes before is summed",
            "		*(volatile u64 *)&few->pairs[i] = 0;",
            "		;",
        ),
        ("zero of a sum is said to be none", "p->udp->check = sum ? sum : 0xffff;", "p->udp->check = sum;"),
        (
            "a carry of a carry is lost in IPv4's checksum",
            "	sum = (sum & 0xffff) + (sum >> 16);\n	ip->check",
            "	ip->check",
        ),
        ("what is made here keeps the TTL", "	p->ip->ttl = WIRE_TTL;\n", ""),
        ("half of the groups are not seen", "bpf_htonl(0xff000000)", "bpf_htonl(0xffc00000)"),
        ("a group's MAC address has 24 bits of it", "(ip >> 16) & 0x7f", "(ip >> 16) & 0xff"),
    ),
    *_in(
        "forward.h",
        ("networks of other units are one", "bpf_htonl(0xffffff00)", "bpf_htonl(0xffff0000)"),
        ("a route's MAC address is not set", "if (route->mac[0] | route->mac[1] | route->mac[5])", "if (0)"),
        ("a host has no route of its own", "	if (!route) {\n", "	{\n"),
    ),
    *_in(
        "pull.h",
        (
            "a worker is woken by every result beyond its word",
            "if (*(volatile u32 *)&wake->received != *(volatile u32 *)&wake->wake_at)",
            "if (*(volatile u32 *)&wake->received < *(volatile u32 *)&wake->wake_at)",
        ),
        ("the waking packet keeps a checksum", "	p->udp->check = 0; /*", "	/*"),
        (
            "the waking packet keeps its MAC address",
            "	__builtin_memcpy(p->eth->h_dest, puller->mac, 6);\n",
            "",
        ),
        (
            "another job's result is pulled",
            "	if (bpf_ntohs(p->inc->job) != puller->job)\n		return V_BAD_JOB",
            "	if (0)\n		return V_BAD_JOB",
        ),
        (
            "a result is at a place one too far",
            "if (place >= puller->size)",
            "if (place > puller->size)",
        ),
        (
            "a place is the slot's number",
            "bpf_ntohl(p->inc->slot) - puller->base;",
            "bpf_ntohl(p->inc->slot) % puller->size;",
        ),
        ("a copy is stored again", "(r->sequence - 1)) <= 0)", "(r->sequence - 1)) < 0)"),
        (
            "an older result is stored",
            "(s32)(fragment - (u32)(r->sequence - 1)) <= 0",
            "fragment == (u32)(r->sequence - 1)",
        ),
        (
            "the last fragment looks like an empty place",
            "u64 sequence = (u64)fragment + 1;",
            "u64 sequence = fragment + 1;",
        ),
        ("a worker is not told of queues", "(is_marked(p) ? RESULT_MARKED : 0)", "0"),
        (
            "any other class is a repetition",
            "(p->ip->tos >> 2 == WIRE_DSCP_REPEATED)",
            "(p->ip->tos >> 2 != 0)",
        ),
        ("contributors are not told", "	r->contributors = bpf_ntohs(p->inc->contributors);\n", ""),
        ("the last lane is not copied", "sizeof(r->lanes));", "sizeof(r->lanes) - 4);"),
        ("results are not counted", "	__sync_fetch_and_add(&wake->received, 1);\n", ""),
        (
            "any notice is heeded",
            "*verdict = puller && wake ? is_for(p, puller) : V_BAD_JOB;",
            "*verdict = puller && wake ? V_FINE : V_BAD_JOB;",
        ),
        ("notices are not counted", "		__sync_fetch_and_add(&wake->notices, 1);\n", ""),
        ("trees share the places of the ring", "	place += puller->first;\n", ""),
        ("a worker waits for any tree", ".tree = p->inc->tree};", ".tree = 0};"),
    ),
    *_in(
        "optics.h",
        (
            "the dark lasts a nanosecond longer",
            "now < lit_at_ns",
            "now <= lit_at_ns",
        ),
        (
            "the dark begins a nanosecond later",
            "early = now < *(volatile u64 *)&circuit->dark_at_ns",
            "early = now <= *(volatile u64 *)&circuit->dark_at_ns",
        ),
        ("ends have 32 bits", "now < lit_at_ns", "now < (u32)lit_at_ns"),
        (
            "beginnings have 32 bits",
            "early = now < *(volatile u64 *)&circuit->dark_at_ns",
            "early = now < *(volatile u32 *)&circuit->dark_at_ns",
        ),
        ("what was before is dark", "dark = !early && ", "dark = "),
        (
            "what was before is lost",
            "		end.word = *(volatile u64 *)&circuit->before;\n",
            "		end.word = 0;\n",
        ),
        ("light goes back", "bpf_redirect(light.ifindex, 0)", "bpf_redirect(ctx->ingress_ifindex, 0)"),
        ("no circuit is no matter", "peer ? V_LIT : V_UNLIT", "V_LIT"),
        (
            "the probe is traffic",
            "	if (eth->h_proto == bpf_htons(WIRE_PROBE_ETHERTYPE))\n"
            "		return glimpsed(number, now, light.dark, !light.dark && light.peer);\n",
            "",
        ),
        ("dark frames are counted as unlit", "dark ? V_DARK :", "dark ? V_UNLIT :"),
    ),
)
