/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meaning of a send's errno, for endpoints and for the timers of a place. Only this file says which
 * errors pass; all others end the sender, with their errno.
 */
#ifndef SENDS_MEANING_H
#define SENDS_MEANING_H

#include <errno.h>

enum meaning { MEANS_FULL, MEANS_LOST, MEANS_FAILED };

/*
 * MEANS_FULL: send the same again later. MEANS_LOST: a link or a receiver is down, and the packet is lost as
 * on a wire. MEANS_FAILED: no later send will succeed.
 */
static inline int sends_meaning(int code)
{
	switch (code) {
	case EAGAIN:
	case EINTR:
	case ENOBUFS:
	case ENOMEM:
		return MEANS_FULL;
	case ENETDOWN:
	case ENETUNREACH:
	case EHOSTDOWN:
	case EHOSTUNREACH:
	case ECONNREFUSED:
		return MEANS_LOST;
	default:
		return MEANS_FAILED;
	}
}

#endif
