"""Bugs in bpf/: what a hasty change could leave behind."""

from __future__ import annotations

from tests.mutants.mutation import Kind, Mutation


def _in(file: str, *bugs: tuple[str, str, str]) -> tuple[Mutation, ...]:
    return tuple(Mutation(Kind.XDP, f"bpf/{file}", name, old, new) for name, old, new in bugs)


XDP = (
    *_in(
        "programs.c",
        (
            "what goes to the others goes back as well",
            "counted(verdict, redirect_to_group(group, 0, BPF_F_BROADCAST | flags))",
            "counted(verdict, redirect_to_group(group, 0, BPF_F_BROADCAST))",
        ),
        (
            "a result leaves by one port of the group",
            "counted(verdict, redirect_to_group(group, 0, BPF_F_BROADCAST | flags))",
            "counted(verdict, redirect_to_group(group, 0, flags))",
        ),
        (
            "the last contributor gets no result",
            "return to_group(job, verdict, 0);",
            "return to_group(job, verdict, BPF_F_EXCLUDE_INGRESS);",
        ),
        (
            "a notice goes on to other switches",
            "return to_workers(job, V_NOTICE",
            "return to_group(job, V_NOTICE",
        ),
        ("a notice passes where the job has no workers", "if (!job->members)", "if (0)"),
        (
            "a worker speaks for another",
            " && port->worker == bpf_ntohs(p->inc->worker);",
            ";",
        ),
        (
            "a worker pushes to any address",
            "p->ip->daddr == port->self_ip && port->worker",
            "port->worker",
        ),
        ("a port's job is not looked at", "if (port->job != bpf_ntohs(p->inc->job))", "if (0)"),
        (
            "a PS's port sends no notices",
            "(p->inc->op == WIRE_OP_RESULT || p->inc->op == WIRE_OP_NOTICE)",
            "p->inc->op == WIRE_OP_RESULT",
        ),
        (
            "a result for another group enters",
            "if (p->ip->daddr != job->group_ip || job->role == ROLE_FINAL)",
            "if (job->role == ROLE_FINAL)",
        ),
        (
            "a result enters where results are made",
            "if (p->ip->daddr != job->group_ip || job->role == ROLE_FINAL)",
            "if (p->ip->daddr != job->group_ip)",
        ),
        (
            "a switch that only passes results keeps them",
            "if (job->role == ROLE_PARTIAL && !keep_result(p, job))",
            "if (!keep_result(p, job))",
        ),
        ("half of the groups are not seen", "bpf_htonl(0xff000000)", "bpf_htonl(0xffc00000)"),
        (
            "a PS takes what is for another address",
            "if (!job || p->ip->daddr != job->self_ip)",
            "if (!job)",
        ),
        (
            "a host takes pushes for partial sums",
            "if (p->inc->op == WIRE_OP_PARTIAL)",
            "if (p->inc->op <= WIRE_OP_PARTIAL)",
        ),
        (
            "a sum goes to the group where one asked again",
            "	if (send == SEND_RESULT)\n		return to_group(job, verdict, 0);",
            "	if (send == SEND_RESULT || send == SEND_RESULT_BACK)\n"
            "		return to_group(job, verdict, 0);",
        ),
    ),
    *_in(
        "aggregate.h",
        ("one slot behind the segment is the job's", "if (offset >= job->size)", "if (offset > job->size)"),
        (
            "a slot stays locked",
            "	unlock_slot(s);\n	if (send != SEND_NOTHING",
            "	if (send != SEND_NOTHING",
        ),
        ("a sum has the age of its last packet", "	p->inc->age = 0;\n", ""),
        ("a partial sum counts all workers", "bpf_htons(job->local);", "bpf_htons(job->total);"),
        ("a partial sum has the last worker's number", "p->inc->worker = bpf_htons(job->unit);", ""),
        (
            "a result's slot is the switch's, not the PS's",
            "(job->role == ROLE_PARTIAL ? job->up_base : job->base)",
            "job->base",
        ),
        ("another generation is summed", "if (bpf_ntohl(p->inc->generation) != generation)", "if (0)"),
        ("worker 64 is worker 0", "worker < WIRE_MAX_WORKERS", "worker <= WIRE_MAX_WORKERS"),
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
        ("a sum sent again has the asker's count", "			p->inc->count = bpf_htons(s->count);\n", ""),
        (
            "a partial sum asked for again goes to the asker",
            "send = s->state == SLOT_PARTIAL ? SEND_PARTIAL : SEND_RESULT_BACK;",
            "send = SEND_RESULT_BACK;",
        ),
        (
            "members of an older fragment stay in",
            "seen = newer > 0 ? bit : s->bitmap | bit;",
            "seen = s->bitmap | bit;",
        ),
        ("the marks of an older fragment stay", "(newer > 0 ? 0 : s->marked)", "s->marked"),
        ("the last sum is not kept", "				s->pairs[i] = sum;\n", ""),
        ("a slot keeps its former generation", "		s->generation = generation;\n", ""),
        (
            "a result of another generation is kept",
            " && s->fragment == fragment && s->generation == job->generation)",
            " && s->fragment == fragment)",
        ),
        (
            "any fragment's result is kept",
            " && s->fragment == fragment && s->generation == job->generation)",
            " && s->generation == job->generation)",
        ),
        ("a kept result is still a partial sum", "		s->state = SLOT_FINAL;\n", ""),
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
            "bpf_ntohs(inc->count) <= WIRE_LANES;",
            "bpf_ntohs(inc->count) <= WIRE_LANES + 1;",
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
        ("zero of a sum is said to be none", "p->udp->check = sum ? sum : 0xffff;", "p->udp->check = sum;"),
        (
            "a carry of a carry is lost in IPv4's checksum",
            "	sum = (sum & 0xffff) + (sum >> 16);\n	ip->check",
            "	ip->check",
        ),
        ("what is made here keeps the TTL", "	p->ip->ttl = WIRE_TTL;\n", ""),
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
            "	if (bpf_ntohs(p->inc->job) != puller->job)\n		return counted(V_BAD_JOB",
            "	if (0)\n		return counted(V_BAD_JOB",
        ),
        (
            "a result is at a place one too far",
            "if (place >= puller->size)",
            "if (place > puller->size)",
        ),
        (
            "a place is the slot's number",
            "bpf_ntohl(p->inc->slot) - puller->base",
            "bpf_ntohl(p->inc->slot) % puller->size",
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
        ("any other class is a repetition", "p->ip->tos >> 2 == WIRE_DSCP_REPEATED", "p->ip->tos >> 2 != 0"),
        ("contributors are not told", "	r->contributors = bpf_ntohs(p->inc->contributors);\n", ""),
        ("the last lane is not copied", "sizeof(r->lanes));", "sizeof(r->lanes) - 4);"),
        ("results are not counted", "	__sync_fetch_and_add(&wake->received, 1);\n", ""),
        ("any job's notice is heeded", "if (!wake || bpf_ntohs(p->inc->job) != puller->job)", "if (!wake)"),
        ("notices are not counted", "	*(volatile u32 *)&wake->notices += 1;\n", ""),
    ),
    *_in(
        "optics.h",
        (
            "the dark lasts a nanosecond longer",
            "bpf_ktime_get_ns() < circuit->lit_at_ns",
            "bpf_ktime_get_ns() <= circuit->lit_at_ns",
        ),
        (
            "deadlines have 32 bits",
            "bpf_ktime_get_ns() < circuit->lit_at_ns",
            "bpf_ktime_get_ns() < (u32)circuit->lit_at_ns",
        ),
        ("light goes back", "bpf_redirect(circuit->ifindex, 0)", "bpf_redirect(ctx->ingress_ifindex, 0)"),
        ("no circuit is no matter", "if (!circuit->peer)", "if (0)"),
        ("the probe is traffic", "	if (probe)\n		return XDP_TX;\n", ""),
        ("dark frames are counted as unlit", "counted(V_DARK, XDP_DROP)", "counted(V_UNLIT, XDP_DROP)"),
    ),
)
