"""Bugs in the fault stage of links, in the P4 program, and in the workers' endpoint."""

from __future__ import annotations

from tests.mutants.mutation import Kind, Mutation


def _in(kind: Kind, file: str, *bugs: tuple[str, str, str]) -> tuple[Mutation, ...]:
    return tuple(Mutation(kind, file, name, old, new) for name, old, new in bugs)


LINKS = _in(
    Kind.LINKS,
    "bpf/link_faults.c",
    ("a held frame leaves one frame late", "due->due > stage->seen", "due->due >= stage->seen"),
    ("Ethernet's header loses bits", "u32 at = ETH_HLEN + bit / 8;", "u32 at = bit / 8;"),
    ("the first bit of a byte is never lost", "byte ^= 1 << (bit % 8);", "byte ^= 2 << (bit % 7);"),
    (
        "a lost frame draws less",
        "	copy = draw(stage) < stage->duplication;",
        "	copy = !lose && draw(stage) < stage->duplication;",
    ),
    (
        "a held frame is sent as well",
        "hold(skb, stage, egress, ifindex) == 0)\n			passes = 0;",
        "hold(skb, stage, egress, ifindex) == 0)\n			passes = 1;",
    ),
    ("frames are held for good", "	stage->first++;\n", ""),
    (
        "what is released drives out the frame at hand",
        "if (passes && copy_on",
        "if (0 && copy_on",
    ),
    ("a corrupted frame is counted twice", "stage->corrupted++;", "stage->corrupted += 2;"),
)

P4 = (
    *_in(
        Kind.P4,
        "p4/origin.p4",
        (
            "a datagram without a checksum is intact",
            "if (meta.sum != 0 || hdr.udp.checksum == 0) {",
            "if (meta.sum != 0) {",
        ),
        (
            "a worker speaks for another",
            "if (meta.port.has_worker == 0 || hdr.wire.worker != meta.port.worker\n",
            "if (meta.port.has_worker == 0\n",
        ),
        ("a count above the lanes passes", " || hdr.wire.count > hdr.wire.lanes\n", "\n"),
        (
            "a host that is no place sends sums",
            "} else if (meta.port.is_place == 0 || hdr.wire.job != meta.port.job) {",
            "} else if (hdr.wire.job != meta.port.job) {",
        ),
        (
            "a worker beats for another",
            "if (hdr.wire.op == WIRE_OP_PUSH || hdr.wire.op == WIRE_OP_PARAMETER_BEAT) {",
            "if (hdr.wire.op == WIRE_OP_PUSH) {",
        ),
        (
            "anybody sends parameters",
            "if (hdr.wire.op == WIRE_OP_SUM || meta.port.is_owner == 0\n",
            "if (hdr.wire.op == WIRE_OP_SUM\n",
        ),
        (
            "an owner of another job sends parameters",
            "meta.port.is_owner == 0\n                        || hdr.wire.job != meta.port.job) {",
            "meta.port.is_owner == 0) {",
        ),
        (
            "an owner sends sums",
            "if (hdr.wire.op == WIRE_OP_SUM || meta.port.is_owner == 0",
            "if (meta.port.is_owner == 0",
        ),
        (
            "anybody ticks",
            "} else if ((meta.port.kind == PORT_CONTROL) != (hdr.wire.op == WIRE_OP_TICK)) {",
            "} else if (meta.port.kind == PORT_CONTROL && hdr.wire.op != WIRE_OP_TICK) {",
        ),
        (
            "the control port sends all",
            "} else if ((meta.port.kind == PORT_CONTROL) != (hdr.wire.op == WIRE_OP_TICK)) {",
            "} else if (meta.port.kind != PORT_CONTROL && hdr.wire.op == WIRE_OP_TICK) {",
        ),
    ),
    *_in(
        Kind.P4,
        "p4/slot.p4",
        (
            "an older fragment takes its slot",
            "(difference != 0 && difference[31:31] == 0 && meta.slot.state != SLOT_FILLING)",
            "(difference != 0 && meta.slot.state != SLOT_FILLING)",
        ),
        (
            "another generation keeps its slot",
            "meta.slot.state == SLOT_EMPTY || meta.slot.generation != meta.entry.generation\n",
            "meta.slot.state == SLOT_EMPTY\n",
        ),
        (
            "what was in the slot before counts",
            "            meta.slot.bitmap = 0; // what was in the slot before does not count\n",
            "",
        ),
        (
            "who comes after a tick is added",
            "        if (meta.slot.state != SLOT_FILLING) {\n            meta.slot.lanes",
            "        if (meta.slot.state != SLOT_FILLING && meta.slot.bitmap & meta.slot.mine != 0) {\n"
            "            meta.slot.lanes",
        ),
        (
            "who comes after a tick is a repetition",
            "                meta.verdict = V_LATE; // a complete sum takes nobody in any more\n",
            "",
        ),
        (
            "a partial sum is one worker",
            "(hdr.wire.op != WIRE_OP_PUSH ? hdr.wire.contributors",
            "(hdr.wire.op != WIRE_OP_PUSH ? 16w1",
        ),
        (
            "who leaves its values out contributes",
            "16w1 - ((bit<16>) (hdr.wire.flags & WIRE_FLAG_DEGRADED) >> 1)",
            "16w1",
        ),
        (
            "a degraded partial sum makes a whole one",
            "\n            | (hdr.wire.flags & WIRE_FLAG_DEGRADED);",
            ";",
        ),
        (
            "a tick waits for somebody's values",
            "meta.slot.generation != meta.entry.generation) {\n            meta.verdict = V_TICK_LATE;",
            "meta.slot.generation != meta.entry.generation || hdr.wire.contributors == 0) {\n"
            "            meta.verdict = V_TICK_LATE;",
        ),
        ("a ticked sum is whole", "hdr.wire.flags = SUM_DEGRADED;", "hdr.wire.flags = 0;"),
        ("a ticked sum is whole when it is sent again", "flags | SUM_DEGRADED);", "flags);"),
        (
            "what was in the slot before is counted",
            "(meta.slot.is_new == 1 ? 16w0 : contributors)",
            "contributors",
        ),
        (
            "a push says how old its sum is",
            "            hdr.wire.age = 0;\n",
            "",
        ),
        ("the first contribution is added", "(LANES_ADD - LANES_KEEP)", "0"),
        (
            "a tick completes what is complete",
            "if (meta.slot.state != SLOT_FILLING || meta.slot.fragment != hdr.wire.fragment\n",
            "if (meta.slot.fragment != hdr.wire.fragment\n",
        ),
        (
            "a ticked sum has the tick's count",
            "            slot_count.read(hdr.wire.count, meta.slot.index);\n",
            "",
        ),
        (
            "a ticked sum that is sent again says no age",
            "            slot_age.write(meta.slot.index, hdr.wire.age);\n            slot_state.write",
            "            slot_state.write",
        ),
    ),
    *_in(
        Kind.P4,
        "p4/segment.p4",
        (
            "one slot behind the segment is the job's",
            "64w1 << (bit<8>) hdr.wire.worker) == 0) {\n            meta.verdict = V_BAD_WORKER;\n"
            "        } else if (hdr.wire.slot - meta.entry.base >= ",
            "64w1 << (bit<8>) hdr.wire.worker) == 0) {\n            meta.verdict = V_BAD_WORKER;\n"
            "        } else if (hdr.wire.slot - meta.entry.base > ",
        ),
        (
            "who is no member contributes",
            "               & (64w1 << (bit<8>) hdr.wire.worker) == 0) {",
            "               == 0) {",
        ),
        (
            "a place's number is a worker's",
            "(hdr.wire.op == WIRE_OP_PUSH ? meta.entry.workers : meta.entry.places)",
            "meta.entry.workers",
        ),
        (
            "a tick is for places that have workers",
            "if (meta.entry.workers | meta.entry.places == 0) {",
            "if (meta.entry.workers == 0) {",
        ),
        (
            "packets of any width are the tree's",
            "            } else if (hdr.wire.lanes != meta.entry.lanes) {\n",
            "            } else if (false) {\n",
        ),
    ),
    *_in(
        Kind.P4,
        "p4/systems/blocks.p4",
        (
            "a block of another incarnation is this one's",
            "if (meta.slot.generation != meta.entry.generation) {",
            "if (false) {",
        ),
        (
            "any block of a record is the packet's",
            "meta.slot.state == SLOT_EMPTY || meta.slot.fragment != hdr.wire.fragment) {",
            "meta.slot.state == SLOT_EMPTY) {",
        ),
        (
            "votes are vectors' blocks",
            "if (hdr.wire.slot >= hdr.terms.data) {",
            "if (hdr.wire.slot > 0xfffffff0) {",
        ),
        (
            "a block before the floor is made again",
            "        if (hdr.block.beyond[31:31] == 1) {\n            meta.verdict = V_STALE;",
            "        if (false) {\n            meta.verdict = V_STALE;",
        ),
        (
            "a block beyond all windows is made",
            "            if (hdr.block.beyond >= hdr.block.reach) {",
            "            if (false) {",
        ),
        (
            "a job has as many active blocks as it likes",
            "} else if (hdr.block.active >= hdr.terms.cap && hdr.block.beyond >= hdr.terms.cap) {",
            "} else if (false) {",
        ),
        (
            "the cap holds for the block that all wait for",
            "hdr.block.active >= hdr.terms.cap && hdr.block.beyond >= hdr.terms.cap",
            "hdr.block.active >= hdr.terms.cap",
        ),
        (
            "a completed block is active",
            "            block_active.write(hdr.terms.record, hdr.block.active - 1);\n"
            "            hdr.block.word = hdr.block.beyond",
            "            hdr.block.word = hdr.block.beyond",
        ),
        (
            "results are kept for a window less",
            "hdr.block.word = hdr.block.beyond - hdr.block.window + 1;",
            "hdr.block.word = hdr.block.beyond + 1;",
        ),
        (
            "a completed block lets the floor fall",
            "            if (hdr.block.word[31:31] == 0) { // the floor only rises",
            "            if (true) { // the floor only rises",
        ),
        (
            "whoever repeats has not reached the block",
            "        if (meta.verdict == UNDECIDED) {\n            note();",
            "        if (meta.verdict == UNDECIDED && meta.slot.is_new == 1) {\n            note();",
        ),
        (
            "a tick completes a block to which one came since",
            "hdr.wire.contributors != 0 && hdr.wire.contributors != (bit<16>) hdr.block.mark[7:0]",
            "false",
        ),
        (
            "ticks overtake whoever is late",
            "if (hdr.block.early == 1 && hdr.block.beyond >= hdr.block.ahead) {",
            "if (false) {",
        ),
        (
            "ticks do not let the floor rise",
            "block_floor.write(hdr.block.space >> 6, hdr.block.floor + hdr.block.word);",
            "block_floor.write(hdr.block.space >> 6, hdr.block.floor);",
        ),
        (
            "the floor rises to what one source has",
            "(meta.slot.mine[source:source] & hdr.block.word[31:31])",
            "(meta.slot.mine[source:source] & (hdr.block.word[31:31] & (bit<1>) (source == 0)))",
        ),
        (
            "a result from above is kept only where its block was pushed",
            "(meta.slot.is_new == 1 ? hdr.block.beyond < hdr.block.reach",
            "(meta.slot.is_new == 1 ? false",
        ),
        (
            "a whole result takes an incomplete sum's place",
            "(meta.slot.state == SLOT_FILLING && hdr.wire.flags & WIRE_FLAG_DEGRADED != 0)",
            "meta.slot.state == SLOT_FILLING",
        ),
        (
            "who did not push a kept result's block did",
            "                slot_bitmap.write(meta.slot.index, 0);\n",
            "                slot_bitmap.write(meta.slot.index, 0xffffffff);\n",
        ),
    ),
    *_in(
        Kind.P4,
        "p4/systems/owned.p4",
        (
            "a newer fragment waits for the slot of an incomplete one",
            "|| (newer != 0 && newer[31:31] == 0)) {",
            "|| (newer != 0 && newer[31:31] == 0 && meta.slot.state != SLOT_FILLING)) {",
        ),
        (
            "an older fragment takes an owned slot",
            "(newer != 0 && newer[31:31] == 0)",
            "(newer != 0)",
        ),
        (
            "a contribution is in an owned sum twice",
            "} else if (meta.slot.bitmap & meta.slot.mine != 0) {\n            meta.verdict = V_DUPLICATE;",
            "} else if (false) {\n            meta.verdict = V_DUPLICATE;",
        ),
        (
            "a complete sum takes contributions in",
            "if (meta.slot.state != SLOT_FILLING) {\n            meta.slot.lanes = LANES_RECALL;",
            "if (false) {\n            meta.slot.lanes = LANES_RECALL;",
        ),
        ("the end of a request stays behind", " | (hdr.wire.flags & WIRE_FLAG_END);", ";"),
        (
            "the end of a request before goes up, too",
            "hdr.wire.flags = (meta.slot.is_new == 1 ? 8w0 : flags)",
            "hdr.wire.flags = flags",
        ),
        (
            "a sum that is sent again has what its packet says",
            "if (meta.verdict == V_RESENT) {",
            "if (false) {",
        ),
        (
            "a sum is for the place above where there is none",
            "hdr.wire.op = WIRE_OP_SUM;",
            "hdr.wire.op = WIRE_OP_PARTIAL;",
        ),
        (
            "slots are not the place above's",
            "hdr.wire.slot - meta.entry.base + meta.entry.up_base;",
            "hdr.wire.slot;",
        ),
        (
            "a beat that was overtaken counts",
            "if ((hdr.wire.fragment - hdr.beat.word)[31:31] == 1) {",
            "if (false) {",
        ),
        (
            "a credit that was overtaken counts",
            "if ((hdr.wire.slot - hdr.beat.word)[31:31] == 1) {",
            "if (false) {",
        ),
        (
            "a minimum of some goes up",
            "if (meta.slot.bitmap == meta.entry.workers | meta.entry.places) {\n            ask_first();",
            "if (true) {\n            ask_first();",
        ),
        (
            "acks compare as they stand",
            "hdr.beat.from_ack = hdr.wire.fragment - hdr.beat.ack;",
            "hdr.beat.ack = hdr.wire.fragment;\n        hdr.beat.from_ack = 0;",
        ),
        (
            "the last members are not asked",
            "SOURCES_8(LEAST_OF, 48) SOURCES_8(LEAST_OF, 56)",
            "SOURCES_8(LEAST_OF, 48)",
        ),
        ("the second eight members are not asked", "                ask_second();\n", ""),
        (
            "the lowest member's beat does not go up",
            "\n            || meta.slot.mine == meta.slot.bitmap & (0 - meta.slot.bitmap)) {",
            ") {",
        ),
        (
            "every beat goes up",
            "if (hdr.beat.sent_ack != hdr.wire.fragment ||",
            "if (true ||",
        ),
        (
            "what went up is forgotten",
            "        owned_sent_credit.write((bit<32>) meta.entry.record, hdr.wire.slot);\n",
            "",
        ),
        (
            "owners' packets go to any group",
            "if (hdr.ipv4.dstAddr != meta.entry.group_ip) {",
            "if (false) {",
        ),
        (
            "a beat's flags go up",
            "            hdr.wire.flags = 0;\n",
            "",
        ),
        (
            "an owned tree is ticked",
            "meta.verdict = V_BAD_JOB; // nobody ticks such a tree",
            "meta.verdict = V_TICKED;",
        ),
    ),
    *_in(
        Kind.P4,
        "p4/shadow.p4",
        ("any fragment's result is kept", " && meta.slot.fragment == hdr.wire.fragment\n", "\n"),
        (
            "a kept result is still a partial sum",
            "            slot_state.write(meta.slot.index, SLOT_FINAL);\n",
            "",
        ),
    ),
    *_in(
        Kind.P4,
        "p4/sum.p4",
        (
            "a sum asked for again counts what its packet did",
            "            slot_contributors.read(hdr.wire.contributors, meta.slot.index);\n",
            "",
        ),
        (
            "a partial sum names the slot as the top counts",
            "meta.entry.base + meta.entry.up_base;",
            "meta.entry.base + meta.entry.result_base;",
        ),
        (
            "a sum asked for again goes to the group",
            "                meta.send = SEND_BACK;\n",
            "                meta.send = SEND_GROUP;\n",
        ),
        (
            "a sum asked for again has the age of its packet",
            "            slot_age.read(hdr.wire.age, meta.slot.index);\n",
            "",
        ),
    ),
    *_in(
        Kind.P4,
        "p4/parser.p4",
        (
            "zero of a sum is said to be none",
            "meta.sum | (meta.sum == 0 ? 16w0xffff : 16w0);",
            "meta.sum;",
        ),
    ),
    *_in(
        Kind.P4,
        "testbed/dataplanes/bmv2/switch.py",
        (
            "the control port is a host's",
            'Action("from_control", (address,))',
            'Action("from_host", (address,))',
        ),
        (
            "an entry that is replaced stays as it was",
            'self._client.replace_entry("entries", handle, action)',
            'self._client.replace_entry("ports", self._senders[1], action)',
        ),
        (
            "a segment is not emptied",
            "                self.empty(entry.base, entry.size)\n",
            "",
        ),
        (
            "a place's sums are counted where it is",
            "getattr(entry, name)\n            for name in (",
            "getattr(entry, name if name != 'up_base' else 'base')\n            for name in (",
        ),
    ),
    *_in(
        Kind.P4,
        "testbed/dataplanes/bmv2/control_port.py",
        (
            "no tick is sent",
            "self._socket.send(frame)",
            "len(frame)",
        ),
    ),
    *_in(
        Kind.P4,
        "testbed/aggregation/ticks.py",
        ("a tick is for the first generation", "generation=tick.generation", "generation=1"),
        ("a tick is for the first tree", "tree=tick.tree", "tree=0"),
        ("an age wraps", "age=min(tick.age_ms, _OLDEST_MS)", "age=tick.age_ms & _OLDEST_MS"),
        ("a tick is as wide as can be", "lanes=entry.lanes", "lanes=spec.LANES"),
    ),
    *_in(
        Kind.P4,
        "testbed/aggregation/admission.py",
        (
            "a tick is for the slot that others count",
            "slot, at = admission.bases[tree, place] + offset,",
            "slot, at = offset,",
        ),
    ),
)

WINDOW = _in(
    Kind.WINDOW,
    "workloads/native/window.h",
    ("it starts at all that the segment holds", "w->size = marks ? 1 :", "w->size = marks ? limit :"),
    (
        "eight fragments stay under way whatever queues hold",
        "w->least = marks ? 1 :",
        "w->least = marks ? UNMARKED_LEAST - 1 :",
    ),
    ("the first round has no congestion", ".congestion = 1, .limit", ".congestion = 0, .limit"),
    (
        "the first mark does not end the doubling",
        "		if (w->threshold > w->size)\n			w->threshold = w->size;\n",
        "",
    ),
    ("it doubles for ever", "w->size < w->threshold ? 1 : 1 / w->size", "1"),
    ("it grows while it holds nothing back", "} else if (w->full) {", "} else {"),
    (
        "it grows beyond the segment",
        "		w->size = w->size < w->limit ? w->size : w->limit;\n",
        "",
    ),
    ("every result is a round", "	if (done < w->round_end)\n		return 0;\n", ""),
    ("a round ends before its last result", "	w->round_end = sent;\n", "	w->round_end = done;\n"),
    ("one mark is as many as all", "(double)w->marked / w->taken", "(double)!!w->marked"),
    ("only the newest round counts", " - w->congestion) * MARK_GAIN;", " - w->congestion);"),
    ("it is cut by the whole share of marks", "1 - w->congestion / 2", "1 - w->congestion"),
    (
        "marks cut what a notice has cut",
        "	cut = w->marked && !w->reduced;",
        "	cut = w->marked > 0;",
    ),
    (
        "after a cut it doubles again",
        "		window_cut(w, 1 - w->congestion / 2);\n		w->threshold = w->size;\n",
        "		window_cut(w, 1 - w->congestion / 2);\n",
    ),
    (
        "marks of the round before count again",
        "	w->taken = w->marked = w->full",
        "	w->taken = w->full",
    ),
    (
        "it counts as full for good",
        "w->marked = w->full = w->reduced = 0;",
        "w->marked = w->reduced = 0;",
    ),
    ("a notice leaves it as it is", "	window_cut(w, 0.5);\n", ""),
    (
        "after a notice it doubles again",
        "	window_cut(w, 0.5);\n	w->threshold = w->size;\n",
        "	window_cut(w, 0.5);\n",
    ),
    (
        "each notice cuts it",
        "	if (w->reduced)\n		return 0;\n	w->reduced = 1;\n	window_cut(w, 0.5);",
        "	window_cut(w, 0.5);",
    ),
    ("losses cut it where queues mark", "if (w->least == 1 || w->reduced)", "if (w->reduced)"),
    ("each loss cuts it", "if (w->least == 1 || w->reduced)", "if (w->least == 1)"),
    (
        "after a loss it doubles again",
        "	window_cut(w, UNMARKED_LOSS);\n	w->threshold = w->size;\n",
        "	window_cut(w, UNMARKED_LOSS);\n",
    ),
    (
        "cuts go on below the least",
        "w->size * factor > w->least ? w->size * factor : w->least",
        "w->size * factor",
    ),
)

ENDPOINT = (
    *_in(
        Kind.ENDPOINT,
        "workloads/native/lanes.c",
        (
            "values are cut, not rounded",
            "(int32_t)rintf(values[i] * factor)",
            "(int32_t)(values[i] * factor)",
        ),
    ),
    *_in(
        Kind.ENDPOINT,
        "workloads/native/endpoint.c",
        (
            "the bias is that of another number of workers",
            "e->bias = (1U << 31) / e->s.workers;",
            "e->bias = (1U << 31) / (e->s.workers + 1);",
        ),
        ("the window is the whole segment", "e->data_slots / 2;", "e->data_slots;"),
        (
            "notices are not heeded",
            "		note_cut(e, &e->trees[i], window_notice(&e->trees[i].window));\n",
            ";\n",
        ),
        (
            "a process takes another's memory",
            "	if (__atomic_fetch_add(&e->wake->attached, 1, __ATOMIC_RELAXED)) {",
            "	if (0) {",
        ),
        ("all trees have the first one's ring", "number * e->s.slots;", "0;"),
        (
            "a result before its push keeps a worker from its timers",
            "if (t->done < t->sent && has_data(e, t, t->done))",
            "if (has_data(e, t, t->done))",
        ),
    ),
    *_in(
        Kind.ENDPOINT,
        "workloads/native/questions.c",
        (
            "nobody asks at the end of a vector",
            "	if (t->asked == t->sent || t->sent < given(e, t, e->next_fragment))\n",
            "	if (1)\n",
        ),
        (
            "a question again ends at the first place",
            "lesser(t->sent - t->done, most(e)), WIRE_FLAG_RETRANSMIT);",
            "lesser(t->sent - t->done, most(e)), 0);",
        ),
        ("what others lack is pushed again", "if (state == FOUND_HELD || (", "if (("),
        (
            "a result that was lost is not asked for",
            "if (state == FOUND_HELD || (",
            "if (state == FOUND_HELD || state == FOUND_FINAL || (",
        ),
        (
            "what was lost is not pushed again",
            "if (state == FOUND_HELD || (",
            "if (state == FOUND_HELD || state == FOUND_LACKS || (",
        ),
        (
            "a sum that nobody passes on is waited for",
            "(state == FOUND_SUMMED && fragment > t->done)",
            "state == FOUND_SUMMED",
        ),
        (
            "what has its result is pushed again",
            " || has_data(e, t, fragment))\n			continue;\n		if (state",
            ")\n			continue;\n		if (state",
        ),
        ("an answer of what is over is believed", "(int64_t)(fragment - t->done) < 0 || ", ""),
        ("an answer knows of later pushes", "if ((int32_t)(number - t->asked_from[place]) < 0 ||", "if ("),
        (
            "repetitions stay as many while a place lacks what it was sent",
            "(fresh || open)",
            "(lost || open)",
        ),
        (
            "anybody answers",
            "(uint32_t)(e->asking - 1 - ntohl(h->slot)) < lesser(NUMBERS_KEPT, e->counters.asked)",
            "1",
        ),
        ("answers of other jobs are heeded", " && h->job == htons(e->s.job)", ""),
        ("answers of other starts are heeded", "	       h->generation == htonl(e->s.generation) &&\n", ""),
        ("an answer may be longer than it is", "MSG_DONTWAIT | MSG_TRUNC", "MSG_DONTWAIT"),
        (
            "gaps are not asked for",
            "	questions_again(e, t);\n	return repair_pause_ns(e, t);",
            "	return repair_pause_ns(e, t);",
        ),
    ),
    *_in(
        Kind.ENDPOINT,
        "workloads/native/endpoint.h",
        ("any result in the place is the fragment's", "== (uint64_t)(uint32_t)fragment + 1;", "!= 0;"),
        (
            "a result that was replaced under way is believed",
            "	return has(r, fragment);\n}\n\n/*",
            "	return 1;\n}\n\n/*",
        ),
        ("a result that was replaced is awaited", "return sequence && (int32_t)", "return 0 && (int32_t)"),
        (
            "all blocks have the first one's scale",
            "&op->blocks[(fragment - op->first) / e->s.block_fragments]",
            "op->blocks",
        ),
        ("a tree's fragments are in a row", " + t->at[fragment % t->count];", " + fragment % t->count;"),
    ),
    *_in(
        Kind.ENDPOINT,
        "workloads/native/votes.c",
        (
            "votes that a full socket did not take are lost",
            "e->votes_sent += taken;",
            "e->votes_sent += count;",
        ),
    ),
    *_in(
        Kind.ENDPOINT,
        "workloads/native/packets.c",
        (
            "all fragments say that they are the first tree's",
            "	h->tree = e->s.first_tree + t->number;\n",
            "",
        ),
        (
            "values that became zero are not counted",
            "			e->counters.zeroed +=\n				lanes_encode(",
            "			lanes_encode(",
        ),
        (
            "zeros are sent in full",
            "		h->op = WIRE_OP_EMPTY;\n		return;",
            "		memset(lanes, 0, 4 * e->s.lanes);\n		return;",
        ),
        (
            "packets of both sizes are in a burst",
            "		else if (empty != is_empty(e, t, op, number))",
            "		else if (0)",
        ),
        (
            "an entry that was empty stays so",
            "	h->op = WIRE_OP_PUSH;\n	h->flags = 0;\n",
            "	h->flags = 0;\n",
        ),
        (
            "a host that takes none gets empty pushes",
            "return op->gathered && t->takes_empties &&",
            "return op->gathered &&",
        ),
        (
            "fragments go to slots in order",
            "t->slot_base + e->s.places[fragment % e->data_slots]",
            "t->slot_base + fragment % e->data_slots",
        ),
        ("what is pushed again does not say so", "	h->flags |= WIRE_FLAG_RETRANSMIT;\n", ""),
        (
            "old lanes stay behind a short fragment",
            "	if (count < e->s.lanes)\n		memset(lanes + count, 0, 4 * (e->s.lanes - count));\n",
            "",
        ),
        (
            "nothing is pushed again",
            "	packets_send(e, t, h, 1);\n	*sent_at = now;",
            "	*sent_at = now;",
        ),
        (
            "a fragment is late after its tree was idle",
            "		if (t->sent == t->done) /*",
            "		if (0) /*",
        ),
    ),
    *_in(
        Kind.ENDPOINT,
        "workloads/native/parts.c",
        (
            "others' parts are pushed, too",
            "	memset(lanes, 0, 4 * count);\n",
            "	memcpy(lanes, op->data + start, 4 * count);\n",
        ),
        (
            "a part ends with its first fragment",
            "lesser(op->until, 4 * (start + count))",
            "lesser(op->until, 4 * count)",
        ),
    ),
    *_in(
        Kind.ENDPOINT,
        "workloads/native/results.c",
        (
            "a part that is missing is zeros",
            "op->gathered && !wrong && those < e->s.workers",
            "0",
        ),
    ),
    *_in(
        Kind.ENDPOINT,
        "workloads/native/repair.c",
        ("a lone probe is not followed by the first", "last > first + 1 && t->silent > 1", "0"),
    ),
    *_in(
        Kind.ENDPOINT,
        "workloads/native/votes.c",
        (
            "votes have the gradients' slots",
            "slot_base + e->data_slots + vote % e->s.vote_slots",
            "slot_base + vote % e->s.vote_slots",
        ),
        (
            "a vote is late after its tree was idle",
            "		if (!is_expecting(e, t) && (taken || !was_refused))\n",
            "		if (0)\n",
        ),
        (
            "what is gathered may be summed by others",
            "return op->gathered ? ~check & ((1U << (64 - VOTE_CHECK_SHIFT)) - 1) : check;",
            "return check;",
        ),
        (
            "three workers vote as two",
            "while ((1U << log_workers) < e->s.workers)",
            "while ((2U << log_workers) < e->s.workers)",
        ),
        (
            "the scale is that of the smallest",
            "largest = cell;",
            "largest = votes > (left >> bits * (cell - first) & mask) ? largest : cell;",
        ),
        (
            "a worker's NaN is a number",
            "op->special = !!op->workers;",
            "op->special = 0;",
        ),
        (
            "a late worker's NaN is a number in a small vector",
            "op->event == EVENT_DONE && lanes_exponent(op->data, op->length) == VOTE_SPECIAL",
            "0",
        ),
        (
            "lengths are not compared",
            "vote_check(op) * those)\n		return 0;",
            "length_check(op->length) * those)\n		;",
        ),
        ("carried values are summed in binary32", "		double sum = 0;\n", "		float sum = 0;\n"),
        (
            "the last worker's values are not carried",
            "for (uint32_t w = 0; w < e->s.workers; w++) {\n			uint32_t bits",
            "for (uint32_t w = 0; w + 1 < e->s.workers; w++) {\n			uint32_t bits",
        ),
        (
            "fragments do not wait for the vote on them",
            "(last < blocks ? last * e->s.block_fragments : op->count)",
            "op->count",
        ),
        (
            "a NaN behind the first page is not told",
            "op->special |= op",
            "op->special |= b < e->s.page_blocks && op",
        ),
        (
            "values of a late worker are not left out",
            "block->beyond = block->own > e->s.tops[largest] + e->s.spare_bits;",
            "block->beyond = 0;",
        ),
        (
            "a vote that lacks workers is one of all",
            "return votes == those;",
            "return votes == e->s.workers;",
        ),
        (
            "carried values of some are not scaled",
            "op->data[i] = (float)(sum * part);",
            "op->data[i] = (float)sum;",
        ),
    ),
    *_in(
        Kind.ENDPOINT,
        "workloads/native/results.c",
        ("sums have the bias of one worker taken off", " those * e->bias);", " e->bias);"),
        ("sums have all workers' bias taken off", " those * e->bias);", " e->s.workers * e->bias);"),
        (
            "contributors that cannot be are believed",
            "int wrong = (!those && !nobodys) || those > e->s.workers ? EVENT_IMPOSSIBLE : 0;",
            "int wrong = !those && !nobodys ? EVENT_IMPOSSIBLE : 0;",
        ),
        (
            "a sum that names nobody is believed though it says that it is whole",
            "!those && flags & WIRE_FLAG_DEGRADED && !op->raw;",
            "!those && !op->raw;",
        ),
        (
            "lanes as they are may be nobody's",
            "!those && flags & WIRE_FLAG_DEGRADED && !op->raw;",
            "!those && flags & WIRE_FLAG_DEGRADED;",
        ),
        (
            "what nobody contributed to stays as it was",
            "memset(op->data + start, 0, count * sizeof(*op->data));",
            ";",
        ),
        (
            "a mean is over all workers",
            "ldexp((double)e->s.workers / those, ",
            "ldexp(1, ",
        ),
    ),
)
