/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * The packet of gradients that micro.c (loaded by BCC) and traffic.c (compiled for the host) share. It has as
 * many gradients as the paper's (section 6.2), unless the compiler's command line defines LANES.
 */
#ifndef MICRO_H
#define MICRO_H

#include <linux/types.h>

#ifndef LANES
#define LANES 128
#endif
#define MICRO_PORT 5998
#define MICRO_MAGIC 0x616c6570
#define OF_ALL 0xffffffff /* value of `worker` in a sum */

/* In host byte order: both ends are on one machine. */
struct gradients {
	__u32 magic;
	__u32 worker;
	__u32 segment;
	__u32 workers;
	__u64 sent_ns; /* CLOCK_MONOTONIC; 0: the packet is not timed */
	__u32 lanes[LANES];
};

#endif
