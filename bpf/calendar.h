/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/*
 * Calendar queues: while a timetable runs, a unit's switch sends frames for other units to one device, behind
 * which they wait for a slot of theirs (testbed/dataplanes/xdp/native/calendar.c). A frame that waits has its
 * unit in the place of its source address; one that leaves has a pass there, until the optical switch takes
 * it. A frame that comes there when its slot is over was held up by this machine alone: it waits again.
 */
#ifndef CALENDAR_H
#define CALENDAR_H

/* In the place of a source address, which begins with 02:00 otherwise. */
struct pass {
	u8 unit;
	u8 port;      /* optical, of the unit, from 1; CORE_PORT; 0: the frame is to wait */
	u8 latest[4]; /* when its slot ends, by the clock in 256 ns */
} __attribute__((packed));

/* The device behind which frames wait, or 0. */
static __always_inline u32 calendar_device(void)
{
	u32 zero = 0, *device = calendars.lookup(&zero);

	return device ? *device : 0;
}

static __always_inline int wait_behind(u32 device, struct ethhdr *eth, u32 owner, u32 *verdict)
{
	struct pass *pass = (void *)eth->h_source;

	pass->unit = owner;
	pass->port = 0;
	*verdict = V_HELD;
	return bpf_redirect(device, 0);
}

/* The device is 0 where the queues were closed meanwhile. */
static __always_inline int wait_again(struct ethhdr *eth, u32 *verdict)
{
	struct pass *pass = (void *)eth->h_source;
	u32 device = calendar_device();

	pass->port = WAITS_AGAIN;
	*verdict = V_MISSED;
	return device ? bpf_redirect(device, 0) : XDP_DROP;
}

static __always_inline int has_pass(struct ethhdr *eth)
{
	return ((struct pass *)eth->h_source)->port;
}

static __always_inline int is_over(struct ethhdr *eth, u64 now)
{
	u32 latest;

	__builtin_memcpy(&latest, ((struct pass *)eth->h_source)->latest, sizeof(latest));
	return (s32)((latest & ~MOST_RETURNS) - (u32)(now >> 8)) <= 0;
}

/*
 * The source address that a host's frame has: 02:00 and its IPv4 address. A result's copy has the unit that
 * it is for in the last byte of the other, which for a group ends like that (RFC 1112).
 */
static __always_inline void restore_source(struct ethhdr *eth, struct iphdr *ip)
{
	if (is_group(ip->daddr))
		eth->h_dest[5] = bpf_ntohl(ip->daddr) & 0xff;
	eth->h_source[0] = 2;
	eth->h_source[1] = 0;
	__builtin_memcpy(eth->h_source + 2, &ip->saddr, 4);
}

#endif
