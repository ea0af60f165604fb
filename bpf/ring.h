/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/wire/rings.py by `make contract`: do not edit. */
#ifndef RING_H
#define RING_H

#define RESULT_MARKED 0x0100
#define RESULT_REPEATED 0x0200

#ifndef RESULT_LANES
#define RESULT_LANES WIRE_LANES /* who learns it at run time defines this as nothing */
#endif

/* One for each slot of the job's segment. Writer: the host program; reader: the worker process, in place. */
struct result {
	__u64 sequence; /* fragment + 1, written last; 0: nothing yet */
	__u32 contributors;
	__u32 flags; /* those of the packet, and RESULT_* */
	__be32 lanes[RESULT_LANES]; /* as received */
};

struct wake {
	__u32 received; /* results stored; writer: host program */
	__u32 wake_at; /* value of received at which one packet goes to the socket; writer: worker process */
	__u32 notices; /* congestion notices; writer: host program */
	__u32 attached; /* worker processes that have used this memory; writer: worker process */
};

#endif
