/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Every frame leaves by all devices of a map: how a switch sends a result, without the sum before it. */
#include <uapi/linux/bpf.h>

/* Writer: the test, before traffic; reader: the program. */
BPF_DEVMAP(members, 2);

int multiply(struct xdp_md *ctx)
{
	return members.redirect_map(0, BPF_F_BROADCAST);
}
