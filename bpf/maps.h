/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* All state of the data plane. "Agent" is the daemon or the controller, both user space. */
#ifndef MAPS_H
#define MAPS_H

#include "wire.h"

/* Sizes that user space must know are given by the loader with -D, from testbed/xdp/layout.py. */

enum verdict {
	V_FORWARDED,	  /* routed by the fast path */
	V_TO_OVS,	  /* left to Open vSwitch */
	V_AGGREGATED,	  /* a contribution was added, the sum is not complete */
	V_COMPLETED,	  /* the last contribution: result or partial sum sent */
	V_RESENT,	  /* duplicate of a complete sum: sent again from the slot */
	V_DUPLICATE,	  /* contribution already in the sum */
	V_STALE,	  /* fragment older than the slot's */
	V_MISMATCH,	  /* slot still collecting an older fragment: the sender is told */
	V_BAD_JOB,	  /* no such job here */
	V_BAD_GENERATION, /* another incarnation of the job */
	V_BAD_SLOT,	  /* outside the job's segment */
	V_BAD_WORKER,	  /* not a member */
	V_BAD_SENDER,	  /* not what the worker or PS at that port may send */
	V_MALFORMED,	  /* wrong length, magic, version, op or count */
	V_CORRUPT,	  /* UDP checksum wrong or missing */
	V_LOCK_BUSY,	  /* slot lock not had in time */
	V_RESULT,	  /* result passed on to the job's group */
	V_PULLED,	  /* result stored in the worker's ring */
	V_PULL_DUPLICATE, /* result the ring had already */
	V_NOTICE,	  /* congestion notice passed on, or told to the worker */
	V_DARK,		  /* arrived at a dark optical port */
	V_UNLIT,	  /* arrived at an optical port without a circuit */
	V_LIT,		  /* crossed the optical switch */
	V_FAULT,	  /* lost on purpose */
	V_COUNT
};

/* Writer: every program; reader: agent. Per CPU, so no lock. */
BPF_PERCPU_ARRAY(verdicts, u64, V_COUNT);

struct port {
	u32 owner;	/* unit of a ToR port, 0 for a port of the optical switch */
	u32 number;	/* port number at the optical switch */
	__be32 self_ip; /* address of the ToR */
	u32 kind;	/* PORT_* */
	u32 job;	/* of the worker or PS at a host's port */
	u32 worker;	/* its number */
	u32 index;	/* the job's entry in jobs, for this ToR */
	u32 pad;
};

#define PORT_FABRIC 0 /* optical: what comes was checked where it entered */
#define PORT_HOST 1   /* of a host that takes part in no job */
#define PORT_WORKER 2
#define PORT_PS 3

/*
 * ifindex -> port. Writer: agent, at bring-up, and when a job comes or goes; an entry is replaced as a whole.
 * Readers: programs.
 */
BPF_HASH(ports, u32, struct port, MAX_PORTS);

/* ---- aggregation ---- */

struct job_key {
	u32 owner; /* unit of the ToR, or ifindex of the PS host's eth0 */
	u32 job;
};

struct job {
	u64 members; /* bitmap of the contributors expected here */
	u32 id;
	u32 generation;
	u32 role;	 /* ROLE_* */
	u32 aggregator;	 /* index into slots */
	u32 base;	 /* MemID: first slot of the segment */
	u32 size;	 /* Size: slots in the segment */
	u32 group;	 /* index into groups: where results go */
	u32 total;	 /* contributors in the final sum */
	u32 local;	 /* contributors in the sum made here */
	u32 unit;	 /* this unit's index in the job: the worker field of its partial sums */
	u32 up_base;	 /* MemID of the job's segment at the PS */
	__be32 self_ip;
	__be32 up_ip;	 /* the PS */
	__be32 group_ip; /* destination of results */
};

#define ROLE_NONE 0    /* an entry that is not in use */
#define ROLE_FINAL 1   /* the sum made here is the result */
#define ROLE_PARTIAL 2 /* the sum made here goes to the PS */
#define ROLE_TRANSIT 3 /* no contributor here: results pass through */

/*
 * One entry for each switch or PS host that a job uses, and how to find it. Writer: agent at admission and
 * release; readers: programs. An entry in use is written again with the same words when circuits change: what
 * changes is the map behind `group`.
 */
BPF_ARRAY(jobs, struct job, MAX_JOBS);
BPF_TABLE("hash", struct job_key, u32, job_index, MAX_JOBS);

#define SLOT_EMPTY 0
#define SLOT_FILLING 1
#define SLOT_PARTIAL 2 /* all local contributions are in */
#define SLOT_FINAL 3   /* lanes hold the result */

struct slot {
	/* 0 free, 1 held: a spin lock made of compare-and-swap, since two ports may run on two CPUs */
	u64 lock;
	u64 bitmap;
	u32 generation;
	u32 fragment;
	u32 state;
	u32 count;
	u32 marked; /* whether a contribution came with congestion experienced (RFC 3168) */
	u32 pad;
	u64 pairs[WIRE_LANES / 2]; /* two lanes each, the first in the upper half; one addition sums both */
};

/*
 * Per switch or PS host. Writers: programs, under the slot's lock. A slot that another job leaves behind is
 * told by its generation.
 */
BPF_TABLE("array", u32, struct slot, slots_template, MAX_SLOTS);
BPF_ARRAY_OF_MAPS(slots, "slots_template", MAX_AGGREGATORS);

/*
 * Where a job's results leave a switch. Writer: agent; readers: programs through redirect. Made as large as
 * needed: a broadcast looks at every entry.
 */
BPF_XDP_REDIRECT_MAP("devmap", u32, group_template, 1);
BPF_ARRAY_OF_MAPS(groups, "group_template", MAX_GROUPS);

/*
 * The ports of the group in the same cell that lead to hosts: where a notice leaves. Writer: agent; readers:
 * programs through redirect.
 */
BPF_ARRAY_OF_MAPS(worker_groups, "group_template", MAX_GROUPS);

/* ---- forwarding ---- */

struct route_key {
	u32 owner;   /* unit of the ToR */
	__be32 ip;   /* network part */
	u32 prefix;  /* 32 or 24 */
};

struct route {
	u32 ifindex;
	u8 mac[6]; /* new destination; all zero: leave it */
	u16 pad;
};

/* Writer: controller, from the flows that it read back from Open vSwitch; readers: programs. */
BPF_TABLE("hash", struct route_key, struct route, routes, MAX_ROUTES);

/* ---- optics ---- */

struct circuit {
	u64 lit_at_ns; /* CLOCK_MONOTONIC; frames that arrive earlier are lost */
	u32 peer;      /* port number, 0: no circuit */
	u32 ifindex;   /* of the peer */
};

/* port number -> circuit. Writer: controller, replacing an entry as a whole; readers: programs. */
BPF_ARRAY(circuits, struct circuit, MAX_OPTICAL_PORTS);

/* ---- pull ---- */

struct puller {
	u32 job;
	u32 generation;
	u32 ring;   /* index into rings and wakes */
	u32 base;   /* first slot, as results name it */
	u32 size;   /* slots */
	__be32 ip;  /* of the host */
	u8 mac[6];
	u16 pad;
};

/* ifindex of a worker's eth0 -> its job. Writer: agent; reader: host program. */
BPF_HASH(pullers, u32, struct puller, MAX_HOSTS);

struct result {
	u64 sequence; /* fragment + 1, written last; 0: nothing yet */
	u32 contributors;
	u32 flags; /* those of the wire, and RESULT_* */
	u32 lanes[WIRE_LANES]; /* network byte order, as received */
};

#define RESULT_MARKED 0x100   /* it came with congestion experienced */
#define RESULT_REPEATED 0x200 /* a repetition completed it, or asked for it */

struct wake {
	u32 received; /* results stored; writer: host program */
	u32 wake_at;  /* value of received at which one packet goes to the socket; writer: worker process */
	u32 notices;  /* congestion notices; writer: host program */
	u32 attached; /* worker processes that have used this memory; writer: worker process */
};

/*
 * Memory-mapped by the worker process, which reads results in place, at the place of their slot in the
 * segment. Writer: the host program; one veth has one receive queue, so no two CPUs write at once.
 */
BPF_F_TABLE("array", u32, struct result, ring_template, MAX_SLOTS, BPF_F_MMAPABLE);
BPF_ARRAY_OF_MAPS(rings, "ring_template", MAX_HOSTS);
BPF_F_TABLE("array", u32, struct wake, wake_template, 1, BPF_F_MMAPABLE);
BPF_ARRAY_OF_MAPS(wakes, "wake_template", MAX_HOSTS);

/* ---- faults ---- */

struct fault_key {
	u32 ifindex;
	u32 fragment;
};

/*
 * Gradient packets to lose where they arrive: (device, fragment) -> how many copies still. Writer: agent,
 * then programs, which count down; two CPUs that count at once may lose one copy more, which a fault may.
 * Looked at only while faults_on holds something.
 */
BPF_TABLE("hash", struct fault_key, u32, faults, MAX_FAULTS);
BPF_ARRAY(faults_on, u32, 1);

static void *(*inner_lookup)(void *map, void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*redirect_to_group)(void *map, u64 key, u64 flags) = (void *)BPF_FUNC_redirect_map;

static __always_inline int counted(u32 verdict, int action)
{
	u64 *n = verdicts.lookup(&verdict);

	if (n)
		*n += 1;
	return action;
}

#endif
