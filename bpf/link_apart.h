/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/wire/links.py by `make contract`: do not edit. */
#ifndef LINK_APART_H
#define LINK_APART_H

#define HOST_IFINDEXES 65536

/* Whose job a host is. */
struct tenant {
	__u64 user; /* the user id of its job, and 1; 0: it has no job */
	__u64 dropped; /* frames to hosts of other users' jobs */
};

#endif
