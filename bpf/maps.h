/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * All state of the core's data plane; systems' programs have maps of their own (bpf/systems/). "Agent" is the
 * daemon or the controller, both user space.
 */
#ifndef MAPS_H
#define MAPS_H

/* What user space reads and writes here, testbed/wire/ says once: these are generated. */
#include "wire.h"
#include "verdicts.h"
#include "places.h"
#include "ring.h"

/* Writer: every program; reader: agent. Per CPU, so no lock. */
BPF_PERCPU_ARRAY(verdicts, u64, V_COUNT);

/*
 * ifindex -> port. Writer: agent, at bring-up, and when a job comes or goes; an entry is replaced as a whole.
 * Readers: programs.
 */
BPF_HASH(ports, u32, struct port, MAX_PORTS);

/* ---- aggregation ---- */

/*
 * One entry for each tree at each place that it uses, and how to find it. Writer: agent at admission and
 * release; readers: programs. An entry in use is written again with the same words when circuits change: what
 * changes is the map behind `group`.
 */
BPF_ARRAY(entries, struct entry, MAX_ENTRIES);
BPF_TABLE("hash", struct entry_key, u32, entry_index, MAX_ENTRIES);

/*
 * The lanes of a packet that has fewer than the fabric's MTU holds, and zeros behind them: programs work on
 * all of them in any case.
 */
struct few {
	u64 pairs[WIRE_LANES / 2];
};

/* Writer and reader: a program, for one packet. */
BPF_PERCPU_ARRAY(fews, struct few, 1);

/*
 * Per place. Writers: programs, under the slot's lock. A slot that another job leaves behind is
 * told by its generation.
 */
BPF_TABLE("array", u32, struct slot, slots_template, MAX_SLOTS);
BPF_ARRAY_OF_MAPS(slots, "slots_template", MAX_AGGREGATORS);

/*
 * Where a tree's results leave a place: a cell for each way over parallel circuits. Writer: agent; readers:
 * programs through redirect. Made as large as needed: a broadcast looks at every entry.
 */
BPF_XDP_REDIRECT_MAP("devmap", u32, group_template, 1);
BPF_ARRAY_OF_MAPS(groups, "group_template", MAX_GROUP_CELLS);

/*
 * entry's group and bucket -> that cell. Writer: agent; readers: programs. What is read while it is written
 * names a cell of the same tree, of before or of now.
 */
BPF_ARRAY(group_ways, struct group_way, MAX_GROUPS * SPREAD_BUCKETS);

/*
 * The ports of a group that lead to hosts: where a notice leaves. Writer: agent; readers: programs through
 * redirect.
 */
BPF_ARRAY_OF_MAPS(worker_groups, "group_template", MAX_GROUPS);

/*
 * Two devices, at the other ends of which room_port() is. Writer: agent, at bring-up; readers: programs
 * through redirect.
 */
BPF_ARRAY_OF_MAPS(rooms, "group_template", 1);

/*
 * ifindex of the inner end of a pair -> whom copies of results that come out there are for. Writer: agent,
 * when a job comes or goes; readers: programs.
 */
BPF_HASH(copies, u32, struct copy, MAX_COPIES);

/* ---- programs of systems ---- */

/*
 * NAME_port() and NAME_tick_port() by PROGRAM_NAME. Writer: agent, when a job first needs them; readers:
 * programs.
 */
BPF_PROG_ARRAY(port_programs, MAX_PROGRAMS);
BPF_PROG_ARRAY(tick_programs, MAX_PROGRAMS);

/* ---- forwarding ---- */

/*
 * Writer: controller, from the flows that it read back from Open vSwitch; readers: programs. Further ways of
 * a route are written before the first, which says how many there are, and taken away after it.
 */
BPF_TABLE("hash", struct route_key, struct route, routes, MAX_ROUTES);

/* ---- questions ---- */

/* question_port() alone. Writer: agent, when a job first needs it; readers: programs. */
BPF_PROG_ARRAY(question_ports, 1);

/* ---- optics ---- */

/*
 * port number -> circuit. Writer: controller, replacing an entry as a whole; readers: programs. An entry is
 * written from its first word to its last and read from its last to its first: until a change is there as a
 * whole, what is read is the circuit before it.
 */
BPF_ARRAY(circuits, struct circuit, MAX_OPTICAL_PORTS);

/*
 * port number -> what probes saw of a darkness, by the clock that made it. Writer: programs, of probes alone;
 * reader: controller, which clears an entry before the darkness.
 */
BPF_ARRAY(glimpses, struct glimpse, MAX_OPTICAL_PORTS);

/*
 * The timetable that the optical switch keeps, and by which ToRs send. Writer: controller, its start
 * last, and first taken away; readers: programs.
 */
BPF_ARRAY(timetables, struct timetable, 1);

/*
 * Which ports have a circuit in a matching. Writer: controller, while no timetable holds; readers: programs.
 */
BPF_TABLE("hash", struct meeting_key, struct meeting, meetings, MAX_MEETINGS);

/*
 * port number -> what became of the frames that entered there; at a ToR's own place, that of port 0, of those
 * for a unit that no circuit leads to. Writers: programs; reader: agent. Per CPU, so no lock.
 */
BPF_PERCPU_ARRAY(crossings, struct crossings, MAX_OPTICAL_PORTS);

/*
 * Bytes of plain traffic that entered by hosts' ports, with their Ethernet headers. Writer: programs, by
 * atomic addition; reader: controller.
 */
BPF_TABLE("lru_hash", struct flow, u64, flows, MAX_FLOWS);

/*
 * The device behind which frames wait for their slot in a timetable, or 0: none do. Writer: agent, at
 * bring-up; readers: programs.
 */
BPF_ARRAY(calendars, u32, 1);

/*
 * port number at the optical switch -> the device at its unit's switch, by which frames leave that waited;
 * for a unit's port 0 that of its link to the core. Writer: agent, at bring-up; readers: programs.
 */
BPF_ARRAY(unit_links, u32, MAX_OPTICAL_PORTS);

/*
 * Trees whose results wait for their slots at a unit's switch, by that -> the units that they are for.
 * Writer: agent; reader: the thread behind the device of `calendars`.
 */
BPF_TABLE("hash", struct entry_key, struct unit_set, queued_trees, MAX_ENTRIES);

/* ---- pull ---- */

/* What a worker waits for. Writer: agent; reader: host program. */
BPF_TABLE("hash", struct puller_key, struct puller, pullers, MAX_PULLERS);

/*
 * Memory-mapped by the worker process, which reads results in place, at the place of their slot in the
 * segments. Writer: the host program; one veth has one receive queue, and results of a tree come by one
 * device, so no two CPUs write to a place of the ring at once.
 */
BPF_F_TABLE("array", u32, struct result, ring_template, RING_SLOTS, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
BPF_ARRAY_OF_MAPS(rings, "ring_template", MAX_HOSTS);
BPF_F_TABLE("array", u32, struct wake, wake_template, 1, BPF_F_MMAPABLE);
BPF_ARRAY_OF_MAPS(wakes, "wake_template", MAX_HOSTS);

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
