/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calendar queues (docs/configuration.md, Timetables): a thread that holds frames for other units while a
 * timetable runs, and sends each in a slot in which a circuit leads to its unit. Units' switches redirect all
 * such frames here (bpf/calendar.h), so that this thread alone knows what a link has under way. A frame
 * begins before its slot ends; the time by which it ends later is taken from the link's next slot.
 *
 * A frame leaves with a pass in the place of its source address: its unit, the port by which it leaves, and
 * when its slot ends. Programs send it back here where it is late, so that a machine that is busy loses
 * nothing.
 *
 * By which ports frames leave in which matching the routes of the timetable say (testbed/ocs/routing.py), for
 * kinds of frames that its routing treats differently each its own.
 *
 * Compiled by setup.py, called by testbed/dataplanes/xdp/calendar_queues.py through ctypes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <netinet/if_ether.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <linux/types.h>

#include "../../../../bpf/wire.h"
#include "../../../../bpf/places.h"
#include "../../../../workloads/native/sends_meaning.h"

#ifndef SOURCES_DIGEST
#define SOURCES_DIGEST "none"
#endif

/* by which testbed/native.py knows what it was compiled from */
__attribute__((used)) static const char sources_digest[] = SOURCES_DIGEST;

#define BATCH 32
#define UNITS 256 /* a unit's number is a byte of an address */
#define MOST_WAYS 40 /* optical ports of a unit */
#define LEAST_PLAN 4096
#define PRIORITY 1
#define AHEAD_NS 400000LL /* of a link's queue that is filled at a time: longer than a timer is late */
#define EARLY_NS 5000LL	  /* after the guard before a frame is sent */
#define LAST_NS 60000LL	  /* before the end of a slot no further frame begins; less in short slots */
#define IDLE_NS 2000000LL /* between looks at a timetable that is to begin or has ended */
#define LOOK_NS 5000000LL /* the longest time between two, while frames wait */
#define GRACE_NS 1000000000LL /* after a timetable's end, for frames that only another one leads on */
#define DARK_NS 5000000LL /* between looks at a port whose darkness has no end yet */
#define MOST_BATCHES 16	  /* that are received before what waits is served */
#define ROOM_FOR_RETURNS 64
#define MOST_BYTES (1ULL << 29) /* that wait in all queues */
#define RATES (1 << 15)
#define CORES (UNITS * OPTICAL_STRIDE) /* behind the numbers of optical ports: units' links to the core */
#define KINDS 3			       /* of frames that wait: FRAMES_OWN, _CARRIED, _BULK */
#define WORDS (UNITS / 64)	       /* of a set of units */
#define DSCP_CS1 8
#define DSCP_LE 1

struct frame {
	struct frame *next;
	int64_t since_ns; /* when it came */
	uint32_t length, bucket, returns;
	uint8_t data[];
};

struct counts { /* of one unit's frames for another; read by other threads */
	uint64_t held, sent, dropped, unlit; /* no room; no circuit ever leads there */
	uint64_t marked, missed;	     /* sent, but back in the queue, since its slot was over */
	uint64_t waiting, waiting_bytes;
	int64_t longest_ns;
};

struct line { /* frames of one kind */
	struct frame *first, *last;
	struct frame *back_first, *back_last; /* missed their slot: to be the first again */
	uint32_t waiting;
	uint64_t bytes;
};

struct queue {
	struct line lines[KINDS];
	struct counts counts;
};

struct link { /* an optical port's, or a unit's to the core */
	uint32_t ifindex, number; /* of the port at the optical switch, or 0 */
	uint32_t port;		  /* of a pass */
	int64_t free_ns; /* from when on it has nothing more to send, in the slot */
	int64_t begun_ns, end_ns; /* of that */
	uint64_t bytes_per_s;
	uint64_t stays[MAX_MATCHINGS / 64]; /* matchings, from 0, whose circuit was in the one before as well */
};

struct ways { /* by parallel circuits */
	uint32_t count;
	uint32_t links[MOST_WAYS]; /* positions in `links` */
};

struct neighbours { /* of a unit in a matching, to which frames may leave by light that nothing else needs */
	uint32_t count;
	uint8_t units[MOST_WAYS];
};

/* One of the plan: the ways of a unit's frames of a kind for a goal in a matching. */
struct place {
	uint32_t number; /* of kind, matching, unit and goal, and 1; 0: none */
	uint32_t ways;	 /* a position in `ways`; of FRAMES_SPARE for goal 0, in `neighbours` */
};

struct calendar {
	pthread_t thread;
	pthread_mutex_t lock; /* of rates and of `overrun` */
	uint64_t overrun;     /* frames that came while the socket had no room */
	int is_ending, wake_fd, socket_fd, timetable_fd, routes_fd, circuits_fd;
	uint32_t packets, mark_from, frame_bytes;
	/* the plan of the timetable that runs */
	struct timetable table;
	struct place *plan; /* by number, spread; matching 0: of no timetable */
	uint32_t plan_room, plan_bits, plan_count; /* 2^bits are the room, of which at most half is taken */
	struct ways *ways; /* the first: none */
	uint32_t ways_count, ways_room;
	struct neighbours *neighbours;
	uint32_t neighbours_count, neighbours_room;
	uint32_t kinds;		      /* bits of those that have ways of their own */
	uint64_t direct[UNITS][WORDS];  /* goals to which some matching has a way, by unit */
	uint64_t reached[UNITS][WORDS]; /* the same, or one by a neighbour */
	struct link *links;
	uint32_t link_count, link_room;
	int32_t link_of[CORES + UNITS]; /* positions by number, and 1; 0: none */
	/* queues by unit and goal */
	struct queue *queues[UNITS];
	uint64_t backlog[UNITS][KINDS][WORDS]; /* goals with frames, by unit */
	uint8_t turn[UNITS][KINDS];	       /* the goal that is served first, by unit */
	uint8_t spare_turn[UNITS];
	uint64_t bytes;			     /* that wait */
	int64_t ended_ns;		     /* when the last timetable did */
	int error; /* errno of a send that no later one makes good, which ends the thread */
	/* rates by ifindex */
	struct {
		uint32_t ifindex; /* 0: none */
		uint64_t bytes_per_s;
	} rates[RATES];
	uint32_t rate_serial, seen_serial;
	/* batches */
	uint8_t *buffers;
	struct iovec in_parts[BATCH], out_parts[BATCH];
	struct mmsghdr in[BATCH], out[BATCH];
	struct frame *leaving[BATCH];
	uint32_t pending;
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static long bpf_map(int command, int fd, const void *key, void *value)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_fd = fd;
	attr.key = (uint64_t)(uintptr_t)key;
	attr.value = (uint64_t)(uintptr_t)value; /* next_key is at the same place */
	return syscall(__NR_bpf, command, &attr, sizeof(attr));
}

/* ---- the plan ---- */

/* Where a number is in the plan, or would be. */
static struct place *place_of(struct calendar *c, uint32_t number)
{
	uint32_t at = number * SPREAD_FACTOR >> (32 - c->plan_bits);

	for (; c->plan[at].number && c->plan[at].number != number;)
		at = (at + 1) & (c->plan_room - 1);
	return c->plan + at;
}

static uint32_t number_of(uint32_t kind, uint32_t matching, uint32_t unit, uint32_t goal)
{
	return ((kind * (MAX_MATCHINGS + 1) + matching) * UNITS + unit) * UNITS + goal + 1;
}

static int has(const uint64_t *set, uint32_t unit)
{
	return set[unit / 64] >> (unit & 63) & 1;
}

static void include(uint64_t *set, uint32_t unit)
{
	set[unit / 64] |= 1ULL << (unit & 63);
}

static int make_plan(struct calendar *c, uint32_t room)
{
	struct place *before = c->plan;
	uint32_t count = c->plan_room;

	c->plan = calloc(room, sizeof(*c->plan));
	c->plan_room = c->plan ? room : 0;
	c->plan_bits = (uint32_t)__builtin_ctz(room);
	for (uint32_t i = 0; c->plan && i < count; i++)
		if (before[i].number)
			*place_of(c, before[i].number) = before[i];
	free(before);
	return c->plan ? 0 : -1;
}

/* Of a kind without ways of its own, those of FRAMES_OWN. */
static struct ways *ways_of(struct calendar *c, uint32_t kind, uint32_t matching, uint32_t unit, uint32_t goal)
{
	if (!matching || !(c->kinds >> kind & 1))
		kind = FRAMES_OWN;
	return c->ways + place_of(c, number_of(kind, matching, unit, goal))->ways;
}

static struct neighbours *neighbours_of(struct calendar *c, uint32_t matching, uint32_t unit)
{
	struct place *place = place_of(c, number_of(FRAMES_SPARE, matching, unit, 0));

	return place->number ? c->neighbours + place->ways : 0;
}

/* An array with room for one more; 0: there is none. */
static void *with_room(void *array, uint32_t count, uint32_t *room, size_t size)
{
	uint32_t more = *room ? 2 * *room : 64;

	if (count < *room)
		return array;
	array = realloc(array, more * size);
	if (array)
		*room = more;
	return array;
}

/* The place in the plan of a number that is not there yet; 0: there is no room. */
static struct place *new_place(struct calendar *c, uint32_t number)
{
	if (2 * (c->plan_count + 1) > c->plan_room && make_plan(c, 2 * c->plan_room))
		return 0;
	c->plan_count++;
	return place_of(c, number);
}

/* The ways that are written for a kind, a matching, a unit and a goal; 0: there is no room. */
static struct ways *new_ways(struct calendar *c, uint32_t kind, uint32_t matching, uint32_t unit, uint32_t goal)
{
	uint32_t number = number_of(kind, matching, unit, goal);
	struct place *place = place_of(c, number);
	struct ways *ways;

	if (place->number)
		return c->ways + place->ways;
	ways = with_room(c->ways, c->ways_count, &c->ways_room, sizeof(*ways));
	if (!ways)
		return 0;
	c->ways = ways;
	place = new_place(c, number);
	if (!place)
		return 0;
	*place = (struct place){number, c->ways_count};
	c->ways[c->ways_count] = (struct ways){0};
	return c->ways + c->ways_count++;
}

static int add_neighbour(struct calendar *c, uint32_t matching, uint32_t unit, uint32_t other)
{
	uint32_t number = number_of(FRAMES_SPARE, matching, unit, 0);
	struct place *place = place_of(c, number);
	struct neighbours *near;

	if (!place->number) {
		near = with_room(c->neighbours, c->neighbours_count, &c->neighbours_room, sizeof(*near));
		if (!near)
			return -1;
		c->neighbours = near;
		place = new_place(c, number);
		if (!place)
			return -1;
		*place = (struct place){number, c->neighbours_count};
		c->neighbours[c->neighbours_count++] = (struct neighbours){0};
	}
	near = c->neighbours + place->ways;
	if (near->count < MOST_WAYS)
		near->units[near->count++] = (uint8_t)other;
	return 0;
}

/* Where a device's rate is, or is to be; -1: there is no room. */
static int rate_at(struct calendar *c, uint32_t ifindex)
{
	uint32_t at = ifindex * SPREAD_FACTOR >> 17;

	for (uint32_t tried = 0; tried < RATES; tried++, at = (at + 1) % RATES)
		if (!c->rates[at].ifindex || c->rates[at].ifindex == ifindex)
			return (int)at;
	return -1;
}

static int link_at(struct calendar *c, uint32_t unit, const struct route *route)
{
	uint32_t number = route->number ? route->number : CORES + unit;
	struct link *links;

	if (number >= CORES + UNITS)
		return -1;
	if (c->link_of[number])
		return c->link_of[number] - 1;
	links = with_room(c->links, c->link_count, &c->link_room, sizeof(*links));
	if (!links)
		return -1;
	c->links = links;
	c->links[c->link_count] = (struct link){
		.ifindex = route->ifindex,
		.number = route->number,
		.port = route->number ? route->number % OPTICAL_STRIDE : CORE_PORT,
	};
	c->link_of[number] = (int32_t)++c->link_count;
	return (int)c->link_count - 1;
}

static void take_rates(struct calendar *c)
{
	pthread_mutex_lock(&c->lock);
	for (uint32_t i = 0; i < c->link_count; i++)
		c->links[i].bytes_per_s = c->rates[rate_at(c, c->links[i].ifindex)].bytes_per_s;
	c->seen_serial = c->rate_serial;
	pthread_mutex_unlock(&c->lock);
}

static uint32_t unit_in(__be32 ip)
{
	return ntohl(ip) >> 8 & 0xff;
}

static uint32_t matching_in(const struct route_key *key)
{
	return key->owner >> MATCHING_SHIFT & ((1 << MATCHING_BITS) - 1);
}

static int goes_to_a_unit(const struct route_key *key)
{
	return key->prefix == 24 && (key->owner & 0xffff) < UNITS && matching_in(key) <= MAX_MATCHINGS &&
	       key->way < MOST_WAYS;
}

/* Takes a route into the plan; -1: there is no room. */
static int take_route(struct calendar *c, const struct route_key *key, const struct route *route)
{
	uint32_t kind = key->owner >> FRAMES_SHIFT, matching = matching_in(key);
	uint32_t unit = key->owner & 0xff, goal = unit_in(key->ip);
	struct ways *ways = new_ways(c, kind, matching, unit, goal);
	int link = link_at(c, unit, route);

	if (!ways || link < 0)
		return -1;
	c->kinds |= 1 << kind;
	if (kind != FRAMES_SPARE && (matching || !c->table.start_ns))
		include(c->direct[unit], goal);
	if (matching && route->stays)
		include(c->links[link].stays, matching - 1);
	ways->links[key->way] = (uint32_t)link;
	if (key->way)
		return 0;
	ways->count = route->ways ? route->ways : 1;
	return kind == FRAMES_SPARE ? add_neighbour(c, matching, unit, goal) : 0;
}

/* Frames reach what their unit has a way to, and what its neighbours have. */
static void spread_reach(struct calendar *c)
{
	memcpy(c->reached, c->direct, sizeof(c->reached));
	for (uint32_t i = 0; i < c->plan_room; i++) {
		uint32_t number = c->plan[i].number - 1, unit = number / UNITS % UNITS;
		struct neighbours *near;

		if (!c->plan[i].number || number % UNITS ||
		    number / UNITS / UNITS / (MAX_MATCHINGS + 1) != FRAMES_SPARE)
			continue;
		near = c->neighbours + c->plan[i].ways;
		for (uint32_t n = 0; n < near->count; n++)
			for (uint32_t word = 0; word < WORDS; word++)
				c->reached[unit][word] |= c->direct[near->units[n]][word];
	}
}

/* Reads which links lead from each unit to each other in each matching. */
static int read_plan(struct calendar *c)
{
	struct route_key key, next;
	struct route route;
	const void *before = 0;
	uint32_t zero = 0;

	if (bpf_map(BPF_MAP_LOOKUP_ELEM, c->timetable_fd, &zero, &c->table) || c->table.count > MAX_MATCHINGS)
		return -1;
	free(c->plan);
	c->plan = 0;
	c->plan_room = 0;
	c->plan_count = 0;
	c->link_count = 0;
	c->ways_count = 0;
	c->neighbours_count = 0;
	c->kinds = 1 << FRAMES_OWN;
	memset(c->direct, 0, sizeof(c->direct));
	memset(c->link_of, 0, sizeof(c->link_of));
	/* no goal of no unit has the ways 0: none */
	if (make_plan(c, LEAST_PLAN) || !new_ways(c, FRAMES_OWN, 0, 0, 0))
		return -1; /* `run` tries again */
	while (!bpf_map(BPF_MAP_GET_NEXT_KEY, c->routes_fd, before, &next)) {
		key = next;
		before = &key;
		if (!goes_to_a_unit(&key) || matching_in(&key) > c->table.count ||
		    bpf_map(BPF_MAP_LOOKUP_ELEM, c->routes_fd, &key, &route) || !route.ifindex)
			continue;
		if (take_route(c, &key, &route))
			return -1;
	}
	spread_reach(c);
	take_rates(c);
	return 0;
}

/* ---- frames that come ---- */

/* As spread.h has it for what is no gradient. */
static uint32_t bucket_of(const uint8_t *data, uint32_t length)
{
	uint32_t from, to, number;
	uint16_t ports[2];

	memcpy(&from, data + 26, 4);
	memcpy(&to, data + 30, 4);
	number = ntohl(from) + ntohl(to);
	if ((data[23] == 6 || data[23] == 17) && !(data[20] & 0x3f) && !data[21] && length >= 38) {
		memcpy(ports, data + 34, 4);
		number += ntohs(ports[0]) + ntohs(ports[1]);
	}
	return number * SPREAD_FACTOR >> (32 - SPREAD_BITS);
}

/* Congestion experienced (RFC 3168), if its sender reacts to it; the header's checksum by RFC 1624. */
static int mark(uint8_t *data)
{
	uint32_t sum;
	uint16_t check;

	if (!(data[15] & 3) || (data[15] & 3) == 3)
		return 0;
	memcpy(&check, data + 24, 2);
	sum = (uint16_t)~ntohs(check) + (uint32_t)(uint16_t)~(data[14] << 8 | data[15]);
	data[15] |= 3;
	sum += (uint32_t)(data[14] << 8 | data[15]);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	check = htons((uint16_t)~sum);
	memcpy(data + 24, &check, 2);
	return 1;
}

static void append(struct frame **first, struct frame **last, struct frame *frame)
{
	frame->next = 0;
	if (*first)
		(*last)->next = frame;
	else
		*first = frame;
	*last = frame;
}

/* What a frame that comes back has had of MOST_RETURNS; 0: it is new. */
static uint32_t returns_of(const uint8_t *data)
{
	uint32_t latest;

	memcpy(&latest, data + 8, sizeof(latest));
	return data[7] == WAITS_AGAIN ? (latest & MOST_RETURNS) + 1 : 0;
}

/* The kind of a unit's frame, as far as the routing treats kinds differently. */
static uint32_t kind_of(struct calendar *c, uint32_t unit, const uint8_t *data)
{
	uint32_t dscp = data[15] >> 2;

	if (data[28] != unit && c->kinds & (1 << FRAMES_CARRIED | 1 << FRAMES_SPARE))
		return FRAMES_CARRIED;
	if (c->kinds & 1 << FRAMES_BULK && (dscp == DSCP_CS1 || dscp == DSCP_LE))
		return FRAMES_BULK;
	return FRAMES_OWN;
}

static void take_in(struct calendar *c, const uint8_t *data, uint32_t length, int64_t now)
{
	uint32_t unit = data[6], goal = data[32], returns = returns_of(data), kind;
	struct counts *counts;
	struct queue *queue;
	struct line *line;
	struct frame *frame = 0;

	if (length < 34 || length > c->frame_bytes || data[12] != 8 || data[13] || data[30] != 10)
		return;
	if (!c->queues[unit]) {
		c->queues[unit] = calloc(UNITS, sizeof(struct queue));
		if (!c->queues[unit])
			return;
	}
	queue = c->queues[unit] + goal;
	kind = kind_of(c, unit, data);
	line = queue->lines + kind;
	counts = &queue->counts;
	if (returns && counts->sent)
		counts->sent--;
	if (!c->plan || !has(c->reached[unit], goal)) {
		counts->unlit++;
		return;
	}
	if (line->waiting < c->packets + (returns ? ROOM_FOR_RETURNS : 0) && returns <= MOST_RETURNS &&
	    c->bytes < MOST_BYTES)
		frame = malloc(sizeof(*frame) + length);
	if (!frame) {
		counts->dropped++;
		return;
	}
	memcpy(frame->data, data, length);
	frame->length = length;
	frame->since_ns = now;
	frame->bucket = bucket_of(data, length);
	frame->returns = returns;
	if (returns) {
		counts->missed++;
		append(&line->back_first, &line->back_last, frame);
	} else {
		counts->held++;
		if (line->waiting >= c->mark_from)
			counts->marked += mark(frame->data);
		append(&line->first, &line->last, frame);
	}
	line->waiting++;
	line->bytes += length;
	counts->waiting++;
	counts->waiting_bytes += length;
	c->bytes += length;
	include(c->backlog[unit][kind], goal);
}

static int receive(struct calendar *c)
{
	int count = recvmmsg(c->socket_fd, c->in, BATCH, MSG_DONTWAIT, 0);
	int64_t now = now_ns();

	for (int i = 0; i < count; i++)
		take_in(c, c->in_parts[i].iov_base, c->in[i].msg_len, now);
	return count;
}

/* ---- frames that leave ---- */

static void send_batch(struct calendar *c)
{
	uint32_t done = 0;

	while (done < c->pending && !c->error) {
		int sent = sendmmsg(c->socket_fd, c->out + done, c->pending - done, MSG_DONTWAIT);

		if (sent > 0)
			done += (uint32_t)sent;
		else if (sends_meaning(errno) == MEANS_FAILED)
			c->error = errno;
		else if (errno != EINTR)
			break;
	}
	for (uint32_t i = 0; i < c->pending; i++) {
		if (i >= done) { /* the device had no room */
			struct queue *queue = c->queues[c->leaving[i]->data[6]] + c->leaving[i]->data[32];

			queue->counts.dropped++;
			queue->counts.sent--;
		}
		free(c->leaving[i]);
	}
	c->pending = 0;
}

static struct frame *first_of(struct line *line)
{
	return line->back_first ? line->back_first : line->first;
}

/* The frame that has waited longest of a kind for a goal. */
static struct frame *take_out(struct calendar *c, uint32_t unit, uint32_t goal, uint32_t kind, int64_t now)
{
	struct queue *queue = c->queues[unit] + goal;
	struct line *line = queue->lines + kind;
	struct frame *frame = first_of(line);

	if (frame == line->back_first)
		line->back_first = frame->next;
	else
		line->first = frame->next;
	if (!line->first && !line->back_first)
		c->backlog[unit][kind][goal / 64] &= ~(1ULL << (goal & 63));
	line->waiting--;
	line->bytes -= frame->length;
	queue->counts.sent++;
	queue->counts.waiting--;
	queue->counts.waiting_bytes -= frame->length;
	c->bytes -= frame->length;
	if (now - frame->since_ns > queue->counts.longest_ns)
		queue->counts.longest_ns = now - frame->since_ns;
	return frame;
}

/* When a slot's light begins and ends. */
struct span {
	uint32_t matching; /* from 1; 0: outside of timetables */
	int64_t begun_ns, end_ns;
	int64_t lit_ns;	 /* of circuits that were not in the matching before */
	int64_t last_ns; /* when its last frame may begin */
};

static struct span span_at(struct calendar *c, int64_t now)
{
	struct timetable *table = &c->table;
	int64_t period = (int64_t)table->period_ns, phase, begun;
	uint32_t low = 0, high = (uint32_t)table->count;
	struct span span = {.matching = 1};

	phase = (now - (int64_t)table->start_ns) % period;
	begun = now - phase;
	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;

		if ((int64_t)table->starts_ns[middle] <= phase)
			low = middle;
		else
			high = middle;
	}
	span.matching = low + 1;
	span.begun_ns = begun + (int64_t)table->starts_ns[low];
	span.lit_ns = span.begun_ns + (int64_t)table->guard_ns + EARLY_NS;
	span.end_ns = begun + (low + 1 < table->count ? (int64_t)table->starts_ns[low + 1] : period);
	/* what leaves last has the way through the kernel before it */
	span.last_ns = (span.end_ns - span.lit_ns) / 8;
	span.last_ns = span.end_ns - (span.last_ns < LAST_NS ? span.last_ns : LAST_NS);
	return span;
}

/* When to look again at a port that is dark; 0: it is lit. */
static int64_t dark_until(struct calendar *c, uint32_t number, int64_t now)
{
	struct circuit circuit;

	if (bpf_map(BPF_MAP_LOOKUP_ELEM, c->circuits_fd, &number, &circuit))
		return 0;
	if (circuit.dark_at_ns > (uint64_t)now || circuit.lit_at_ns <= (uint64_t)(now - EARLY_NS))
		return 0;
	if (circuit.lit_at_ns > (uint64_t)(now + DARK_NS))
		return now + DARK_NS;
	return (int64_t)circuit.lit_at_ns + EARLY_NS;
}

enum service { SENT, NOT_NOW, FULL }; /* FULL: its link has no time for it now */

static int64_t lit_from(struct calendar *c, const struct link *link, const struct span *span)
{
	if (span->matching && has(link->stays, span->matching - 1) &&
	    span->begun_ns > (int64_t)c->table.start_ns)
		return span->begun_ns;
	return span->lit_ns;
}

/* Takes a link's time for a frame if it has any now, or says when it is to be asked again. */
static enum service take_time(struct calendar *c, struct link *link, uint32_t length, const struct span *span,
			      int64_t now, int64_t *due)
{
	int64_t lit_ns = lit_from(c, link, span), begin;

	if (!span->matching && link->number)
		lit_ns = dark_until(c, link->number, now);
	if (lit_ns > now) {
		*due = lit_ns < *due ? lit_ns : *due;
		return NOT_NOW;
	}
	if (link->begun_ns != span->begun_ns) {
		int64_t owes_ns = link->free_ns - link->end_ns; /* what a frame took longer than its slot */

		link->begun_ns = span->begun_ns;
		link->end_ns = span->end_ns;
		link->free_ns = lit_ns + (owes_ns > 0 ? owes_ns : 0);
	}
	begin = link->free_ns > now ? link->free_ns : now;
	if (begin > span->last_ns)
		return FULL;
	if (begin > now + AHEAD_NS) {
		*due = begin - AHEAD_NS < *due ? begin - AHEAD_NS : *due;
		return FULL;
	}
	link->free_ns = begin;
	if (link->bytes_per_s)
		link->free_ns += (int64_t)(length * 1000000000ULL / link->bytes_per_s);
	return SENT;
}

static struct link *link_for(struct calendar *c, const struct ways *ways, const struct frame *frame)
{
	uint32_t way = ways->count > 1 ? frame->bucket * ways->count >> SPREAD_BITS : 0;

	return c->links + ways->links[way < MOST_WAYS ? way : 0];
}

/* Sends the first frame of a kind for a goal by a link that has time for it. */
static void send_first(struct calendar *c, uint32_t unit, uint32_t goal, uint32_t kind, const struct link *link,
		       const struct span *span, int64_t now)
{
	struct frame *frame = take_out(c, unit, goal, kind, now);
	uint32_t latest = ((uint32_t)(span->end_ns >> 8) & ~(uint32_t)MOST_RETURNS) | frame->returns;

	frame->data[6] = (uint8_t)unit;
	frame->data[7] = (uint8_t)link->port;
	memcpy(frame->data + 8, &latest, sizeof(latest));
	c->leaving[c->pending] = frame;
	c->out_parts[c->pending] = (struct iovec){frame->data, frame->length};
	if (++c->pending == BATCH)
		send_batch(c);
}

/* Sends the first frame of a kind for a goal if its link has time for it. */
static enum service serve(struct calendar *c, uint32_t unit, uint32_t goal, uint32_t kind,
			  const struct span *span, int64_t now, int64_t *due)
{
	struct frame *frame = first_of(c->queues[unit][goal].lines + kind);
	struct ways *ways = ways_of(c, kind, span->matching, unit, goal);
	enum service service;
	struct link *link;

	if (!ways->count && !span->matching && now > c->ended_ns + GRACE_NS) {
		free(take_out(c, unit, goal, kind, now));
		c->queues[unit][goal].counts.sent--;
		c->queues[unit][goal].counts.unlit++;
		return SENT;
	}
	if (!ways->count)
		return NOT_NOW;
	link = link_for(c, ways, frame);
	service = take_time(c, link, frame->length, span, now, due);
	if (service == SENT)
		send_first(c, unit, goal, kind, link, span, now);
	return service;
}

/*
 * Serves a unit's goals in turn, a frame of a kind each, until no link takes any more. The first whose link
 * had no time is the first the next time: so goals that share a link share its time.
 */
static void serve_kind(struct calendar *c, uint32_t unit, uint32_t kind, const struct span *span, int64_t now,
		       int64_t *due)
{
	uint32_t first = c->turn[unit][kind], pass = 0;
	int any = 1, is_turned = 0;

	for (; any; pass++) {
		any = 0;
		for (uint32_t i = 0; i < UNITS; i++) {
			uint32_t goal = (first + i) % UNITS;
			uint64_t rest = c->backlog[unit][kind][goal / 64] >> (goal & 63);
			enum service service;

			if (!rest)
				i += 63 - (goal & 63); /* none up to the next word */
			if (!(rest & 1))
				continue;
			service = serve(c, unit, goal, kind, span, now, due);
			any |= service == SENT;
			if (service == FULL && !pass && !is_turned) {
				is_turned = 1;
				c->turn[unit][kind] = (uint8_t)goal;
			}
		}
	}
}

/*
 * Whether a unit has more frames for a goal than its next direct circuit has time for, and a neighbour leads
 * there and has room: hosts of RotorNet agree on that by messages, which here take no time.
 */
static int is_to_spare(struct calendar *c, uint32_t unit, uint32_t goal, uint32_t other, uint64_t slot_bytes)
{
	struct queue *queues = c->queues[other];

	if (goal == other || !has(c->direct[other], goal))
		return 0;
	if (has(c->direct[unit], goal) && c->queues[unit][goal].lines[FRAMES_OWN].bytes <= slot_bytes)
		return 0;
	return !queues || queues[goal].lines[FRAMES_CARRIED].waiting < c->packets / 2;
}

/* The goal of which a frame is to leave to a neighbour, each in turn; 0: none. */
static uint32_t goal_to_spare(struct calendar *c, uint32_t unit, uint32_t other, uint64_t slot_bytes)
{
	for (uint32_t i = 1; i <= UNITS; i++) {
		uint32_t goal = (c->spare_turn[unit] + i) % UNITS;
		uint64_t rest = c->backlog[unit][FRAMES_OWN][goal / 64] >> (goal & 63);

		if (!rest)
			i += 63 - (goal & 63);
		if ((rest & 1) && is_to_spare(c, unit, goal, other, slot_bytes))
			return goal;
	}
	return 0;
}

/* Sends frames to neighbours by the time that their links have left. */
static void serve_spare(struct calendar *c, uint32_t unit, const struct span *span, int64_t now, int64_t *due)
{
	struct neighbours *near = neighbours_of(c, span->matching, unit);

	for (uint32_t n = 0; near && n < near->count; n++) {
		struct ways *ways = ways_of(c, FRAMES_SPARE, span->matching, unit, near->units[n]);
		uint32_t goal;

		for (;;) {
			uint64_t slot_ns = (uint64_t)(span->end_ns - span->lit_ns), slot_bytes;
			struct link *link = c->links + ways->links[0];

			slot_bytes = ways->count * (link->bytes_per_s * slot_ns / 1000000000ULL);
			goal = slot_bytes ? goal_to_spare(c, unit, near->units[n], slot_bytes) : 0;
			if (!goal)
				break;
			link = link_for(c, ways, first_of(c->queues[unit][goal].lines + FRAMES_OWN));
			if (take_time(c, link, first_of(c->queues[unit][goal].lines + FRAMES_OWN)->length,
				      span, now, due) != SENT)
				break;
			send_first(c, unit, goal, FRAMES_OWN, link, span, now);
			c->spare_turn[unit] = (uint8_t)goal;
		}
	}
}

/* What is on its way already goes first, bulk traffic last. */
static void serve_unit(struct calendar *c, uint32_t unit, const struct span *span, int64_t now, int64_t *due)
{
	serve_kind(c, unit, FRAMES_CARRIED, span, now, due);
	serve_kind(c, unit, FRAMES_OWN, span, now, due);
	serve_kind(c, unit, FRAMES_BULK, span, now, due);
	if (c->kinds & 1 << FRAMES_SPARE && span->matching)
		serve_spare(c, unit, span, now, due);
}

static int has_backlog(struct calendar *c, uint32_t unit)
{
	uint64_t any = 0;

	for (uint32_t kind = 0; kind < KINDS; kind++)
		for (uint32_t word = 0; word < WORDS; word++)
			any |= c->backlog[unit][kind][word];
	return any != 0;
}

/* Sends what may leave now; returns when to do so again. */
static int64_t serve_all(struct calendar *c, int64_t now)
{
	struct span span = span_at(c, now);
	int64_t due = span.end_ns;
	int any = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++) {
		if (!has_backlog(c, unit))
			continue;
		any = 1;
		serve_unit(c, unit, &span, now, &due);
	}
	if (c->pending)
		send_batch(c);
	return any && due < now + LOOK_NS ? due : now + (any ? LOOK_NS : 1000000000LL);
}

/* Where no timetable runs, frames leave as plain routes say, one after the other. */
static int64_t flush(struct calendar *c, int64_t now)
{
	struct span span = {.matching = 0, .end_ns = INT64_MAX / 2, .last_ns = INT64_MAX / 2};
	int64_t due = now + LOOK_NS;
	int any = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++) {
		if (!has_backlog(c, unit))
			continue;
		any = 1;
		serve_unit(c, unit, &span, now, &due);
	}
	if (c->pending)
		send_batch(c);
	return any ? due : now + 1000000000LL;
}

/* ---- the thread ---- */

static void wait_until(struct calendar *c, int64_t due)
{
	struct pollfd files[] = {{c->socket_fd, POLLIN, 0}, {c->wake_fd, POLLIN, 0}};
	int64_t left = due - now_ns();
	struct timespec timeout;

	if (left <= 0)
		return;
	timeout = (struct timespec){left / 1000000000LL, left % 1000000000LL};
	ppoll(files, 2, &timeout, 0);
	if (files[1].revents) {
		uint64_t number;

		if (read(c->wake_fd, &number, sizeof(number)) < 0)
			return;
	}
}

/* The kernel's count starts anew with each reading. */
static void count_overrun(struct calendar *c)
{
	struct tpacket_stats stats;
	socklen_t length = sizeof(stats);

	if (getsockopt(c->socket_fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length))
		return;
	pthread_mutex_lock(&c->lock);
	c->overrun += stats.tp_drops;
	pthread_mutex_unlock(&c->lock);
}

static uint64_t start_of(struct calendar *c)
{
	struct timetable table;
	uint32_t zero = 0;

	return bpf_map(BPF_MAP_LOOKUP_ELEM, c->timetable_fd, &zero, &table) ? 0 : table.start_ns;
}

static void *run(void *of)
{
	struct calendar *c = of;
	int64_t looked_ns = 0, due = 0;
	uint64_t start_ns = 0;
	struct sched_param priority = {.sched_priority = PRIORITY};

	pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
	while (!__atomic_load_n(&c->is_ending, __ATOMIC_RELAXED) && !c->error) {
		int64_t now;

		wait_until(c, due);
		now = now_ns();
		if (!start_ns || now - looked_ns > IDLE_NS) { /* does another run, or this one still? */
			uint64_t starts_ns = start_of(c);

			if (start_ns && !starts_ns)
				c->ended_ns = now;
			if (starts_ns != start_ns && read_plan(c)) /* again at the next look */
				starts_ns = 0;
			start_ns = starts_ns;
			looked_ns = now;
			count_overrun(c);
		}
		if (c->seen_serial != __atomic_load_n(&c->rate_serial, __ATOMIC_ACQUIRE))
			take_rates(c);
		for (int batches = 0; batches < MOST_BATCHES && receive(c) == BATCH; batches++)
			;
		now = now_ns();
		if (start_ns && now < (int64_t)start_ns)
			due = (int64_t)start_ns;
		else if (c->plan)
			due = start_ns ? serve_all(c, now) : flush(c, now);
		else
			due = now + 1000000000LL;
	}
	return 0;
}

/* ---- for Python ---- */

/*
 * Starts the thread, for `packets` frames of a unit for another, of `frame_bytes` at most with their headers.
 * The descriptors of maps are the caller's, who keeps them open. 0 and errno: it failed.
 */
struct calendar *calendar_open(int socket_fd, int timetable_fd, int routes_fd, int circuits_fd,
			       uint32_t packets, uint32_t frame_bytes)
{
	struct calendar *c = calloc(1, sizeof(*c));
	int code;

	if (!c)
		return 0;
	c->socket_fd = socket_fd;
	c->timetable_fd = timetable_fd;
	c->routes_fd = routes_fd;
	c->circuits_fd = circuits_fd;
	c->packets = packets;
	c->mark_from = packets / 4 ? packets / 4 : 1;
	c->frame_bytes = frame_bytes;
	pthread_mutex_init(&c->lock, 0);
	c->wake_fd = eventfd(0, EFD_CLOEXEC);
	c->buffers = malloc((size_t)BATCH * frame_bytes);
	for (int i = 0; c->buffers && i < BATCH; i++) {
		c->in_parts[i] = (struct iovec){c->buffers + (size_t)i * frame_bytes, frame_bytes};
		c->in[i].msg_hdr.msg_iov = c->in_parts + i;
		c->in[i].msg_hdr.msg_iovlen = 1;
		c->out[i].msg_hdr.msg_iov = c->out_parts + i;
		c->out[i].msg_hdr.msg_iovlen = 1;
	}
	code = c->wake_fd < 0 || !c->buffers ? errno : pthread_create(&c->thread, 0, run, c);
	if (!code)
		return c;
	if (c->wake_fd >= 0)
		close(c->wake_fd);
	free(c->buffers);
	free(c);
	errno = code;
	return 0;
}

/* Sets the rate of the link at a device; 0: it has none. */
int calendar_rate(struct calendar *c, uint32_t ifindex, uint64_t bytes_per_s)
{
	int at;

	pthread_mutex_lock(&c->lock);
	at = rate_at(c, ifindex);
	if (at >= 0) {
		c->rates[at].ifindex = ifindex;
		c->rates[at].bytes_per_s = bytes_per_s;
		__atomic_add_fetch(&c->rate_serial, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&c->lock);
	return at < 0 ? -1 : 0;
}

/* Copies the counts of a unit's frames for each unit, 256 of them; 0: it had none. */
int calendar_counts(struct calendar *c, uint32_t unit, struct counts *counts)
{
	struct queue *queues = unit < UNITS ? c->queues[unit] : 0;

	for (uint32_t goal = 0; queues && goal < UNITS; goal++)
		counts[goal] = queues[goal].counts;
	return queues != 0;
}

uint64_t calendar_overrun(struct calendar *c)
{
	uint64_t overrun;

	count_overrun(c);
	pthread_mutex_lock(&c->lock);
	overrun = c->overrun;
	pthread_mutex_unlock(&c->lock);
	return overrun;
}

int calendar_error(struct calendar *c)
{
	return c->error;
}

void calendar_close(struct calendar *c)
{
	uint64_t one = 1;

	__atomic_store_n(&c->is_ending, 1, __ATOMIC_RELAXED);
	if (write(c->wake_fd, &one, sizeof(one)) < 0)
		return;
	pthread_join(c->thread, 0);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		for (uint32_t goal = 0; c->queues[unit] && goal < UNITS; goal++) {
			struct queue *queue = c->queues[unit] + goal;

			for (uint32_t kind = 0; kind < KINDS; kind++)
				while (first_of(queue->lines + kind))
					free(take_out(c, unit, goal, kind, 0));
		}
		free(c->queues[unit]);
	}
	close(c->wake_fd);
	free(c->plan);
	free(c->ways);
	free(c->neighbours);
	free(c->links);
	free(c->buffers);
	free(c);
}
