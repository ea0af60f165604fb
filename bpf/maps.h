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
	V_BUSY,		  /* slot still collecting an older fragment */
	V_BAD_JOB,	  /* no such job here */
	V_BAD_GENERATION, /* another incarnation of the job */
	V_BAD_SLOT,	  /* outside the job's segment */
	V_BAD_WORKER,	  /* not a member */
	V_MALFORMED,	  /* wrong length, magic, version, op or count */
	V_LOCK_BUSY,	  /* slot lock not had in time */
	V_RESULT,	  /* result passed on to the job's group */
	V_PULLED,	  /* result stored in the worker's ring */
	V_PULL_DUPLICATE, /* result the ring had already */
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
	u32 pad;
};

/* ifindex -> port. Writer: agent at bring-up; readers: programs. Never changes under traffic. */
BPF_HASH(ports, u32, struct port, MAX_PORTS);

/* ---- aggregation ---- */

struct job_key {
	u32 owner; /* unit of the ToR, or ifindex of the PS host's eth0 */
	u32 job;
};

struct job {
	u64 members; /* bitmap of the contributors expected here */
	u32 generation;
	u32 role;	/* ROLE_* */
	u32 base;	/* MemID: first slot of the segment */
	u32 size;	/* Size: slots in the segment */
	u32 group;	/* index into groups: where results go */
	u32 total;	/* contributors in the final sum */
	u32 local;	/* contributors in the sum made here */
	u32 index;	/* this unit's index in the job: the worker field of its partial sums */
	u32 up_base;	/* MemID of the job's segment at the PS */
	__be32 self_ip;
	__be32 up_ip;	 /* the PS */
	__be32 group_ip; /* destination of results */
};

#define ROLE_FINAL 0   /* the sum made here is the result */
#define ROLE_PARTIAL 1 /* the sum made here goes to the PS */
#define ROLE_TRANSIT 2 /* no contributor here: results pass through */

/* Writer: agent at admission and release; readers: programs. An entry is replaced as a whole. */
BPF_TABLE("hash", struct job_key, struct job, jobs, MAX_JOBS);

#define SLOT_EMPTY 0
#define SLOT_FILLING 1
#define SLOT_PARTIAL 2 /* all local contributions are in */
#define SLOT_FINAL 3   /* lanes hold the result */

struct slot {
	u64 lock; /* 0 free, 1 held: a spin lock made of compare-and-swap, since two ports may run on two CPUs */
	u64 bitmap;
	u32 generation;
	u32 fragment;
	u32 state;
	u32 count;
	u32 lanes[WIRE_LANES]; /* host byte order */
};

/* Per switch or PS host, two entries a slot: the current fragment and the one before it (shadow copy), by the parity of
 * fragment / size. Writers: programs, under the entry's lock; the agent clears a segment before it admits a job to it. */
BPF_TABLE("array", u32, struct slot, slots_template, SLOT_ENTRIES);
BPF_HASH_OF_MAPS(slots, u32, "slots_template", MAX_AGGREGATORS);

/* Where a job's results leave a switch. Writer: agent; readers: programs through redirect. */
BPF_XDP_REDIRECT_MAP("devmap", u32, group_template, MAX_GROUP_PORTS);
BPF_ARRAY_OF_MAPS(groups, "group_template", MAX_GROUPS);

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
	u32 ring;   /* key in rings and wakes */
	__be32 ip;  /* of the host */
	u8 mac[6];
	u16 pad;
};

/* ifindex of a worker's eth0 -> its job. Writer: agent; reader: host program. */
BPF_HASH(pullers, u32, struct puller, MAX_HOSTS);

struct result {
	u64 sequence; /* fragment + 1, written last; 0: nothing yet */
	u32 contributors;
	u32 flags;
	u32 lanes[WIRE_LANES]; /* network byte order, as received */
};

struct wake {
	u32 received; /* results stored; writer: host program */
	u32 wake_at;  /* value of received at which one packet goes to the socket; writer: worker process */
};

/* Memory-mapped by the worker process, which reads results in place. Writer: the host program; one veth has one receive queue, so
 * no two CPUs write at once. */
BPF_F_TABLE("array", u32, struct result, ring_template, RING_ENTRIES, BPF_F_MMAPABLE);
BPF_HASH_OF_MAPS(rings, u32, "ring_template", MAX_HOSTS);
BPF_F_TABLE("array", u32, struct wake, wake_template, 1, BPF_F_MMAPABLE);
BPF_HASH_OF_MAPS(wakes, u32, "wake_template", MAX_HOSTS);

/* ---- faults ---- */

struct fault_key {
	u32 ifindex;
	u32 fragment;
};

/* Gradient packets to lose where they arrive: (device, fragment) -> how many copies still. Writer: agent, then programs, which count down;
 * two CPUs that count at once may lose one copy more, which a fault may. Looked at only while faults_on holds something. */
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
