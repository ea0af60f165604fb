/* SPDX-License-Identifier: Apache-2.0 */
/* Calendar queues (calendar.c): what their parts share. */
#ifndef CALENDAR_QUEUES_H
#define CALENDAR_QUEUES_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>

#include "../../../../bpf/wire.h"
#include "../../../../bpf/places.h"

#define BATCH 32
#define UNITS 256 /* a unit's number is a byte of an address */
#define MOST_WAYS 40 /* optical ports of a unit */
#define RATES (1 << 15)
#define MOST_DELAYS 256 /* different ones; links with others are served as if they had none */
#define CORES (UNITS * OPTICAL_STRIDE) /* behind the numbers of optical ports: units' links to the core */
#define KINDS 4			       /* of frames that wait: FRAMES_OWN, _CARRIED, _BULK, _RESULT */
#define WORDS (UNITS / 64)	       /* of a set of units */

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
	int64_t delay_ns, jitter_ns; /* of its frames on their way to the optical switch */
	uint64_t stays[MAX_MATCHINGS / 64]; /* matchings, from 0, whose circuit was in the one before */
};

struct ways { /* by parallel circuits */
	uint32_t count;
	uint32_t links[MOST_WAYS]; /* positions in `links` */
};

struct neighbours { /* of a unit in a matching, to which spare frames may leave */
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
	int is_ending, wake_fd, socket_fd, timetable_fd, routes_fd, circuits_fd, trees_fd;
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
	uint64_t leads[FRAMES_SPARE + 1][UNITS][WORDS]; /* goals to which some matching has a way, by unit */
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
	/* rates and delays by ifindex */
	struct {
		uint32_t ifindex; /* 0: none */
		uint64_t bytes_per_s;
		int64_t delay_ns, jitter_ns;
	} rates[RATES];
	uint32_t rate_serial, seen_serial;
	int64_t delays_ns[MOST_DELAYS]; /* that links have, each once */
	uint32_t delay_count;
	/* batches */
	uint8_t *buffers;
	struct iovec in_parts[BATCH], out_parts[BATCH];
	struct mmsghdr in[BATCH], out[BATCH];
	struct frame *leaving[BATCH];
	uint32_t pending;
};

#pragma GCC visibility push(hidden)

static inline int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline int has(const uint64_t *set, uint32_t unit)
{
	return set[unit / 64] >> (unit & 63) & 1;
}

static inline void include(uint64_t *set, uint32_t unit)
{
	set[unit / 64] |= 1ULL << (unit & 63);
}

/* A result for several units has the number of one in the last byte of its Ethernet destination. */
static inline int is_result(const uint8_t *data)
{
	return (data[30] & 0xf0) == 0xe0;
}

static inline uint32_t goal_of(const uint8_t *data)
{
	return is_result(data) ? data[5] : data[32];
}

/* calendar_plan.c */
long bpf_map(int command, int fd, const void *key, void *value);
int read_plan(struct calendar *c);
struct ways *ways_of(struct calendar *c, uint32_t kind, uint32_t matching, uint32_t unit, uint32_t goal);
struct neighbours *neighbours_of(struct calendar *c, uint32_t matching, uint32_t unit);
const uint64_t *leads_on(const struct calendar *c, uint32_t kind, uint32_t unit);
int rate_at(struct calendar *c, uint32_t ifindex);
void take_rates(struct calendar *c);

/* calendar_slots.c */
int64_t serve_all(struct calendar *c, int64_t now);
int64_t flush(struct calendar *c, int64_t now);
struct frame *first_of(struct line *line);
struct frame *take_out(struct calendar *c, uint32_t unit, uint32_t goal, uint32_t kind, int64_t now);

#pragma GCC visibility pop

#endif
