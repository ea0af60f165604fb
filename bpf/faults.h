/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Loss on purpose, packet by packet, for tests: a stage that user space switches on. */
#ifndef FAULTS_H
#define FAULTS_H

static __always_inline int is_lost(u32 ifindex, struct gradient_packet *p)
{
	struct fault_key key = {.ifindex = ifindex};
	u32 zero = 0, *on = faults_on.lookup(&zero), *copies;

	if (!on || !*on)
		return 0;
	key.fragment = bpf_ntohl(p->inc->fragment);
	copies = faults.lookup(&key);
	if (!copies || !*copies)
		return 0;
	*copies -= 1;
	return 1;
}

#endif
