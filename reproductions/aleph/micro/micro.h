/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * What micro.c, loaded by BCC, and traffic.c, compiled for the host, share: a packet of gradients, with as
 * many as the paper's (section 6.2). LANES may be given by who compiles.
 */
#ifndef MICRO_H
#define MICRO_H

#include <linux/types.h>

#ifndef LANES
#define LANES 128
#endif
#define MICRO_PORT 5998
#define MICRO_MAGIC 0x616c6570
#define OF_ALL 0xffffffff /* in the place of a worker: a sum */

/* In the order of the host's bytes: both ends are on one machine. */
struct gradients {
	__u32 magic;
	__u32 worker;
	__u32 segment;
	__u32 workers;
	__u64 sent_ns; /* CLOCK_MONOTONIC; 0: nobody times it */
	__u32 lanes[LANES];
};

#endif
