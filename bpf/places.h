/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/wire/places.py, spreading.py by `make wire`: do not edit. */
#ifndef PLACES_H
#define PLACES_H

/* Of the maps. */
#define MAX_PORTS 8192
#define MAX_ENTRIES 4096
#define MAX_PULLERS 16384
#define MAX_SLOTS 1536 /* of one place */
#define RING_SLOTS 1024 /* of one ring: what a job may have of a place */
#define VOTE_SLOTS 16 /* the last of a segment */
#define MAX_AGGREGATORS 1024
#define MAX_PROGRAMS 16
#define MAX_GROUPS 4096
#define MAX_GROUP_CELLS 8192 /* of all ways of all groups */
#define MAX_ROUTES 262144
#define MAX_OPTICAL_PORTS 16384
#define OPTICAL_STRIDE 64 /* between two units' port numbers at the optical switch */
#define MAX_MATCHINGS 512 /* of a timetable; a power of two */
#define MAX_MEETINGS 131072 /* of all of them */
#define MAX_HOSTS 4096
#define MAX_FLOWS 4096 /* of plain traffic that are counted; of more, the latest */
#define MAX_COPIES 16384 /* pairs of devices by which places at hosts copy results */

#define MATCHING_SHIFT 16 /* in a route's owner: above it a matching, from 1, or 0 */
#define MATCHING_BITS 10 /* of that */
#define FRAMES_SHIFT 26 /* in the same: above it the kind of frames, FRAMES_* */
#define MOST_UNITS 250 /* pods' ToRs and the core have larger numbers, and no optical ports */
#define CORE_PORT 64 /* port of a pass: to the core */
#define WAITS_AGAIN 255 /* port of a pass: the frame missed its slot */
#define MOST_RETURNS 7 /* of a frame to its queue, in the last bits of a pass's time */

#define FRAMES_OWN 0 /* of the unit's hosts */
#define FRAMES_CARRIED 1 /* of other units, which came over a circuit */
#define FRAMES_BULK 2 /* of the unit's hosts, with the mark of bulk traffic: DSCP CS1 or LE (RFC 8622) */
#define FRAMES_RESULT 3 /* results of sums for several units, a copy for each */
#define FRAMES_SPARE 4 /* of the unit's hosts, beyond what the next direct circuit takes; the goal is next */

#define PORT_FABRIC 0 /* of another switch, or optical: what comes was checked where it entered */
#define PORT_HOST 1 /* of a host */
#define PORT_CONTROL 2 /* of whoever runs the place */
#define PORT_LOOP 3 /* of the loop of a host that is a place */

#define ROLE_NONE 0 /* an entry that is not in use */
#define ROLE_TRANSIT 1 /* no contributor here: results pass through */
#define ROLE_INNER 2 /* it goes to the place above */
#define ROLE_TOP 3 /* it is the result */

#define PROGRAM_SUM 0 /* bpf/sum.h */
#define PROGRAM_BLOCKS 1 /* bpf/systems/blocks.h */
#define PROGRAM_OWNED 2 /* bpf/systems/owned.h */

#define SLOT_EMPTY 0
#define SLOT_FILLING 1
#define SLOT_PARTIAL 2 /* the lanes hold the sum made here, which was sent to the place above */
#define SLOT_FINAL 3 /* the lanes hold the result */

#define SUM_MARKED 1 /* a contribution came with congestion experienced (RFC 3168) */
#define SUM_DEGRADED 2 /* workers are missing; the number is the header flag's */
#define SUM_END 16 /* of a tree with an owner: the end of a request; the number is the header flag's */
#define NOBODY 0xffffffff /* job or worker of a port */

#define SPREAD_FACTOR 0x9e3779b1 /* 2^32 over the golden ratio */
#define SPREAD_BITS 6 /* of a packet's bucket */
#define SPREAD_BUCKETS 64
#define SPREAD_TRIES 4 /* circuits that a packet is offered while its own is dark */
#define SPREAD_CHECKED 3 /* ports of parallel circuits of one way of a group that are heeded */

struct port {
	/* the switch's number, 0 for the optical one's; of a host's loop, the ifindex of its eth0 */
	__u32 owner;
	__u32 number; /* port number at the optical switch */
	__be32 self_ip; /* address that pushes are sent to here: of the switch, or the loop's */
	__u32 kind; /* PORT_* */
	__u32 job; /* of who runs at a host's port; NOBODY: no one */
	__u32 worker; /* its number, or NOBODY */
	__u32 index; /* the entry of the job's first tree at this place */
	__u32 is_place; /* whether the host is a place of the job */
	__u32 relays; /* whether that sends copies of results to hosts' own addresses */
	__u32 is_owner; /* whether the host is the owner of the job's tree */
};

struct entry_key {
	__u32 owner; /* number of the switch, or ifindex of the host's eth0 */
	__u32 job;
	__u32 tree;
};

/* A tree of a job at a place. */
struct entry {
	__u64 workers; /* bitmaps of those who contribute here: of ranks, */
	__u64 places; /* and of the numbers of places */
	__u32 id; /* of the job */
	__u32 tree;
	__u32 generation;
	__u32 role; /* ROLE_* */
	__u32 aggregator; /* index into slots, where that is PROGRAM_SUM */
	__u32 base; /* MemID: first slot of the segment */
	__u32 size; /* Size: slots in the segment */
	__u32 group; /* where results go: row of group_ways, index into worker_groups */
	__u32 number; /* of this place, in its partial sums */
	__u32 up_base; /* MemID at the place above */
	__u32 result_base; /* MemID at the top */
	__u32 lanes; /* of every packet */
	__be32 self_ip;
	__be32 up_ip; /* the place above; at the top of a tree with an owner, the owner */
	__be32 group_ip; /* destination of results; 0: a copy goes to each member's own address */
	__u32 program; /* PROGRAM_* */
	__u32 record; /* index into a map of that program's own */
	__u32 pad;
};

struct slot {
	__u64 lock; /* 0 free, 1 held: a spin lock by compare-and-swap, for two ports may run on two CPUs */
	__u64 bitmap;
	__u32 generation;
	__u32 fragment;
	__u32 state; /* SLOT_* */
	__u32 flags; /* SUM_* */
	__u32 contributors; /* workers in the sum */
	__u16 count; /* of the last packet summed */
	__u16 age; /* of the packet that completed it */
	__u64 pairs[WIRE_LANES / 2]; /* two lanes each, the first in the upper half; one addition sums both */
};

struct route_key {
	__u32 owner; /* number of the switch; above MATCHING_SHIFT a matching's, and FRAMES_* */
	__be32 ip; /* network part */
	__u32 prefix; /* 32, 24 or 0 */
	__u32 way; /* of several parallel circuits, from 0 */
};

struct route {
	__u32 ifindex; /* 0: nowhere, Open vSwitch drops it */
	__u8 mac[6]; /* new destination; all zero: leave it */
	__u8 ways; /* how many circuits in parallel; said by way 0 */
	__u8 stays; /* whether the circuit was in the timetable's matching before as well */
	__u32 number; /* port number at the optical switch, 0: a host's */
};

struct group_way {
	__u32 cell; /* index into groups: the ports by which results of some buckets leave */
	__u32 checked[3]; /* port numbers at the optical switch that others are parallel to; 0: none */
};

struct circuit {
	__u32 before; /* port number of the other end until dark_at_ns, 0: no circuit */
	__u32 before_ifindex; /* of the device there */
	__u64 dark_at_ns; /* CLOCK_MONOTONIC; frames that arrive earlier take the circuit before */
	__u64 lit_at_ns; /* frames that arrive from dark_at_ns on and earlier than this are lost */
	__u32 peer; /* port number of the other end from lit_at_ns on, 0: no circuit */
	__u32 ifindex; /* of the device there */
};

struct glimpse {
	__u64 lit_ns; /* the last probe that came before the darkness */
	__u64 dark_ns; /* the first one in the dark */
	__u64 still_dark_ns; /* the last one in the dark */
	__u64 lit_again_ns; /* the first one after it */
};

struct timetable {
	__u64 start_ns; /* CLOCK_MONOTONIC; from then on it holds, 0: never */
	__u64 period_ns;
	__u64 guard_ns; /* of darkness at the beginning of each matching */
	__u64 count; /* matchings */
	__u64 routing; /* index into ROUTINGS (testbed/wire/places.py) */
	__u64 starts_ns[512]; /* when each begins in a period, the first at 0; else NEVER_NS */
};

struct unit_set {
	__u64 bits[4]; /* by a unit's number */
};

struct meeting_key {
	__u32 port;
	__u32 matching; /* its number in the timetable */
};

struct meeting {
	__u32 peer;
	__u32 ifindex; /* of the device there */
	__u32 stays; /* whether it was the peer in the matching before as well: then it is not dark */
};

struct crossings {
	__u64 lit; /* frames that left at the other end */
	__u64 dark; /* lost in the dark */
	__u64 unlit; /* lost where no circuit was */
};

/* Plain traffic that entered by a host's port: all but packets to the gradient port. */
struct flow {
	__be32 from_ip;
	__be32 to_ip;
	__u32 port; /* the lower of TCP's or UDP's two; 0: none, or a fragment */
	__u32 protocol; /* of IP */
};

/* The copies of results that a place at a host sends to one of its members. */
struct copy {
	__u32 ifindex; /* of the eth0 by which it leaves */
	__be32 from_ip; /* of the host that copies */
	__be32 to_ip; /* of the member that it is for */
	__u8 mac[6]; /* of that */
	__u16 pad;
};

struct puller_key {
	__u32 ifindex; /* of a host's eth0, or of its loop's outer end */
	__u32 tree;
};

struct puller {
	__u32 job;
	__u32 generation;
	__u32 ring; /* index into rings and wakes */
	__u32 base; /* first slot of the tree's segment, as results name it */
	__u32 size; /* slots */
	__u32 first; /* the segment's place in the ring */
	__u32 lanes; /* of every packet */
	__be32 ip; /* of the host */
	__u8 mac[6]; /* of the device */
	__be16 port; /* UDP, of the socket that is woken */
	__u16 at_place; /* whether the host is a place of any tree: results are for that, too */
	__u16 pad;
};

#endif
