/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/contract/places.py by `make contract`: do not edit. */
#ifndef PLACES_H
#define PLACES_H

/* Of the maps. */
#define MAX_PORTS 8192
#define MAX_JOBS 4096
#define MAX_SLOTS 1024 /* of one switch or PS host */
#define MAX_AGGREGATORS 1024
#define MAX_GROUPS 1024
#define MAX_ROUTES 32768
#define MAX_OPTICAL_PORTS 16384
#define MAX_HOSTS 4096
#define MAX_FAULTS 4096

#define PORT_FABRIC 0 /* optical, another switch: what comes was checked where it entered */
#define PORT_HOST 1 /* of a host that takes part in no job */
#define PORT_WORKER 2
#define PORT_PS 3

#define ROLE_NONE 0 /* an entry that is not in use */
#define ROLE_TRANSIT 1 /* nothing is summed here: results pass through */
#define ROLE_PARTIAL 2 /* to be sent to the PS */
#define ROLE_FINAL 3 /* the result */

#define SLOT_EMPTY 0
#define SLOT_FILLING 1
#define SLOT_PARTIAL 2 /* all local contributions are in */
#define SLOT_FINAL 3 /* the lanes hold the result */

struct port {
	__u32 owner; /* unit of a ToR port, 0 for a port of the optical switch */
	__u32 number; /* port number at the optical switch */
	__be32 self_ip; /* address of the ToR */
	__u32 kind; /* PORT_* */
	__u32 job; /* of the worker or PS at a host's port */
	__u32 worker; /* its number */
	__u32 index; /* the job's entry in jobs, for this ToR */
	__u32 pad;
};

struct job_key {
	__u32 owner; /* unit of the ToR, or ifindex of the PS host's eth0 */
	__u32 job;
};

/* A job as one switch or PS host knows it. */
struct job {
	__u64 members; /* bitmap of the contributors expected here */
	__u32 id;
	__u32 generation;
	__u32 role; /* ROLE_* */
	__u32 aggregator; /* index into slots */
	__u32 base; /* MemID: first slot of the segment */
	__u32 size; /* Size: slots in the segment */
	__u32 group; /* index into groups: where results go */
	__u32 total; /* contributors in the final sum */
	__u32 local; /* contributors in the sum made here */
	__u32 unit; /* this unit's index in the job: the worker field of its partial sums */
	__u32 up_base; /* MemID of the job's segment at the PS */
	__be32 self_ip;
	__be32 up_ip; /* the PS */
	__be32 group_ip; /* destination of results */
};

struct slot {
	__u64 lock; /* 0 free, 1 held: a spin lock by compare-and-swap, for two ports may run on two CPUs */
	__u64 bitmap;
	__u32 generation;
	__u32 fragment;
	__u32 state; /* SLOT_* */
	__u32 count;
	__u32 marked; /* whether a contribution came with congestion experienced (RFC 3168) */
	__u32 pad;
	__u64 pairs[WIRE_LANES / 2]; /* two lanes each, the first in the upper half; one addition sums both */
};

struct route_key {
	__u32 owner; /* unit of the ToR */
	__be32 ip; /* network part */
	__u32 prefix; /* 32 or 24 */
};

struct route {
	__u32 ifindex;
	__u8 mac[6]; /* new destination; all zero: leave it */
	__u16 pad;
};

struct circuit {
	__u64 lit_at_ns; /* CLOCK_MONOTONIC; frames that arrive earlier are lost */
	__u32 peer; /* port number, 0: no circuit */
	__u32 ifindex; /* of the peer */
};

struct puller {
	__u32 job;
	__u32 generation;
	__u32 ring; /* index into rings and wakes */
	__u32 base; /* first slot, as results name it */
	__u32 size; /* slots */
	__be32 ip; /* of the host */
	__u8 mac[6];
	__u16 pad;
};

struct fault_key {
	__u32 ifindex;
	__u32 fragment;
};

#endif
