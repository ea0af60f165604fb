/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* All state of the data plane. "Agent" is the daemon or the controller, both user space. */
#ifndef MAPS_H
#define MAPS_H

/* What user space reads and writes here, testbed/contract/ says once: these are generated. */
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
 * One entry for each switch or PS host that a job uses, and how to find it. Writer: agent at admission and
 * release; readers: programs. An entry in use is written again with the same words when circuits change: what
 * changes is the map behind `group`.
 */
BPF_ARRAY(jobs, struct job, MAX_JOBS);
BPF_TABLE("hash", struct job_key, u32, job_index, MAX_JOBS);

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

/* Writer: controller, from the flows that it read back from Open vSwitch; readers: programs. */
BPF_TABLE("hash", struct route_key, struct route, routes, MAX_ROUTES);

/* ---- optics ---- */

/* port number -> circuit. Writer: controller, replacing an entry as a whole; readers: programs. */
BPF_ARRAY(circuits, struct circuit, MAX_OPTICAL_PORTS);

/* ---- pull ---- */

/* ifindex of a worker's eth0 -> its job. Writer: agent; reader: host program. */
BPF_HASH(pullers, u32, struct puller, MAX_HOSTS);

/*
 * Memory-mapped by the worker process, which reads results in place, at the place of their slot in the
 * segment. Writer: the host program; one veth has one receive queue, so no two CPUs write at once.
 */
BPF_F_TABLE("array", u32, struct result, ring_template, MAX_SLOTS, BPF_F_MMAPABLE);
BPF_ARRAY_OF_MAPS(rings, "ring_template", MAX_HOSTS);
BPF_F_TABLE("array", u32, struct wake, wake_template, 1, BPF_F_MMAPABLE);
BPF_ARRAY_OF_MAPS(wakes, "wake_template", MAX_HOSTS);

/* ---- faults ---- */

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
