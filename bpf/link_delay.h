/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/wire/links.py by `make wire`: do not edit. */
#ifndef LINK_DELAY_H
#define LINK_DELAY_H

/* One delayed direction of a wire. */
struct delayed {
	__u64 handed; /* frames that went to the thread */
	__u64 failed; /* a helper refused: the frame is lost */
	__u32 device; /* the ifindex by which they go */
	__u32 number; /* of the direction, from 0 to 65535 */
};

#endif
