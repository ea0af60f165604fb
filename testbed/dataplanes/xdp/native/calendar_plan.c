/* SPDX-License-Identifier: Apache-2.0 */
/* Calendar queues' plan: by which links frames leave in each matching, as the timetable's routes say. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calendar.h"

#define LEAST_PLAN 4096

long bpf_map(int command, int fd, const void *key, void *value)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_fd = fd;
	attr.key = (uint64_t)(uintptr_t)key;
	attr.value = (uint64_t)(uintptr_t)value; /* next_key is at the same place */
	return syscall(__NR_bpf, command, &attr, sizeof(attr));
}

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
struct ways *ways_of(struct calendar *c, uint32_t kind, uint32_t matching, uint32_t unit, uint32_t goal)
{
	if (!matching || !(c->kinds >> kind & 1))
		kind = FRAMES_OWN;
	return c->ways + place_of(c, number_of(kind, matching, unit, goal))->ways;
}

struct neighbours *neighbours_of(struct calendar *c, uint32_t matching, uint32_t unit)
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
static struct ways *new_ways(struct calendar *c, uint32_t kind, uint32_t matching, uint32_t unit,
			     uint32_t goal)
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
	for (uint32_t i = 0; i < near->count; i++)
		if (near->units[i] == other)
			return 0;
	if (near->count < MOST_WAYS)
		near->units[near->count++] = (uint8_t)other;
	return 0;
}

/* Where a device's rate is, or is to be; -1: there is no room. */
int rate_at(struct calendar *c, uint32_t ifindex)
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

/* Whether a link's delay is among those by which slots are served. */
static int is_served(struct calendar *c, int64_t delay_ns)
{
	for (uint32_t i = 0; i < c->delay_count; i++)
		if (c->delays_ns[i] == delay_ns)
			return 1;
	if (c->delay_count == MOST_DELAYS)
		return 0;
	c->delays_ns[c->delay_count++] = delay_ns;
	return 1;
}

void take_rates(struct calendar *c)
{
	pthread_mutex_lock(&c->lock);
	c->delay_count = 1; /* the first: none */
	for (uint32_t i = 0; i < c->link_count; i++) {
		struct link *link = c->links + i;
		int at = rate_at(c, link->ifindex);

		link->bytes_per_s = c->rates[at].bytes_per_s;
		link->delay_ns = is_served(c, c->rates[at].delay_ns) ? c->rates[at].delay_ns : 0;
		link->jitter_ns = c->rates[at].jitter_ns;
	}
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
	if (matching || !c->table.start_ns)
		include(c->leads[kind][unit], goal);
	if (matching && route->stays)
		include(c->links[link].stays, matching - 1);
	ways->links[key->way] = (uint32_t)link;
	if (key->way)
		return 0;
	ways->count = route->ways ? route->ways : 1;
	return kind == FRAMES_SPARE ? add_neighbour(c, matching, unit, goal) : 0;
}

/* What leads on frames of a kind: those without ways of their own go as FRAMES_OWN. */
const uint64_t *leads_on(const struct calendar *c, uint32_t kind, uint32_t unit)
{
	return c->leads[c->kinds >> kind & 1 ? kind : FRAMES_OWN][unit];
}

/* Frames reach what their unit has a way to, and what its neighbours have. */
static void spread_reach(struct calendar *c)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t word = 0; word < WORDS; word++) {
			c->reached[unit][word] = 0;
			for (uint32_t kind = 0; kind < KINDS; kind++)
				c->reached[unit][word] |= c->leads[kind][unit][word];
		}
	for (uint32_t i = 0; i < c->plan_room; i++) {
		uint32_t number = c->plan[i].number - 1, unit = number / UNITS % UNITS;
		struct neighbours *near;

		if (!c->plan[i].number || number % UNITS ||
		    number / UNITS / UNITS / (MAX_MATCHINGS + 1) != FRAMES_SPARE)
			continue;
		near = c->neighbours + c->plan[i].ways;
		for (uint32_t n = 0; n < near->count; n++)
			for (uint32_t word = 0; word < WORDS; word++)
				c->reached[unit][word] |= leads_on(c, FRAMES_CARRIED, near->units[n])[word];
	}
}

/* Reads which links lead from each unit to each other in each matching. */
int read_plan(struct calendar *c)
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
	memset(c->leads, 0, sizeof(c->leads));
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
