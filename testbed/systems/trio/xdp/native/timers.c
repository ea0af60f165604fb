/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timers of a place that sums by block records (docs/trio.md): a thread that looks through the marks of
 * its buckets, and sends the place a tick for each block that nobody has contributed to for its timeout. It
 * writes nothing into the table: whether a block still waits the program says, under the bucket's lock.
 *
 * Compiled by setup.py, called by testbed/systems/trio/xdp/timers.py through ctypes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/types.h>

#include "../../../../../bpf/wire.h"
#include "../../../../../bpf/places.h"
#include "../../../../../bpf/systems/blocks_contract.h"
#include "../../../../../workloads/native/sends_meaning.h"

#ifndef SOURCES_DIGEST
#define SOURCES_DIGEST "none"
#endif

/* by which testbed/native.py knows what it was compiled from */
__attribute__((used)) static const char sources_digest[] = SOURCES_DIGEST;

#define BATCH 64 /* ticks that are sent by one call */
#define HEAD_BYTES (WIRE_FRAME_HEADERS_BYTES + sizeof(struct wire_header))
#define CHECKSUM_AT 40
#define VISITS 8 /* of each mark in a timeout, where there are as many timers */
#define MOST_BACKOFF 3 /* doublings of the time until a tick that did nothing is sent again */
#define PRIORITY 1 /* of the thread, where it may: before all that are not of real time */

/* A tree that is summed by blocks. */
struct job {
	uint32_t serial; /* 0: none */
	int64_t timeout_ns;
	uint8_t head[HEAD_BYTES]; /* of its ticks: what no block changes */
	uint32_t body_bytes;
	uint64_t lacked[MAX_SOURCES / 64]; /* sources that blocks waited for in vain, since this was asked */
};

struct timer_counts {
	uint64_t wakes, visited, ticks, unsent; /* wakes of the thread; buckets that it looked at; ticks */
	uint64_t busy_ns, late_ns_most;		/* the time that it took; how late it woke, at most */
};

struct timers {
	pthread_t thread;
	pthread_mutex_t lock;
	int is_ending;
	struct block_bucket *buckets;
	uint8_t *records;
	uint32_t count, record_bytes, parts;
	size_t bucket_bytes, table_bytes;
	int socket_fd;
	uint32_t next; /* bucket */
	int64_t least_ns; /* of all jobs' timeouts; 0: there are no jobs */
	uint32_t *seen;	  /* mark of each record, */
	int64_t *since;	  /* from when on it is so, by the program's clock, */
	int64_t *due;	  /* when it is to be ticked; 0: after its job's timeout */
	uint8_t *ticked;  /* how often it was */
	struct job jobs[MAX_JOB_RECORDS];
	struct timer_counts counts;
	int error; /* errno of a send that no later one makes good, which ends the thread; 0: none so far */
	/* a batch */
	uint32_t pending;
	uint32_t records_of[BATCH];
	uint8_t heads[BATCH][HEAD_BYTES];
	struct iovec parts_of[BATCH][2];
	struct mmsghdr messages[BATCH];
	uint8_t zeros[1 << 16];
};

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Ticks that do not leave are due again at once, and go by the next scans, until they do or none ever can. */
static void send_batch(struct timers *t)
{
	uint32_t done = 0;
	int sent;

	while (!t->error && done < t->pending) {
		sent = sendmmsg(t->socket_fd, t->messages + done, t->pending - done, MSG_DONTWAIT);
		if (sent <= 0)
			break;
		done += sent;
	}
	if (done < t->pending && !t->error && sends_meaning(errno) == MEANS_FAILED)
		t->error = errno;
	t->counts.ticks += done;
	t->counts.unsent += t->pending - done;
	for (; done < t->pending; done++) {
		uint32_t number = t->records_of[done];

		t->due[number] = 0;
		t->ticked[number] -= t->ticked[number] > 0;
	}
	t->pending = 0;
}

/* What the checksum does not have of a word that was zero (RFC 1624). */
static uint32_t words_of(uint32_t number)
{
	return (number >> 16) + (number & 0xffff);
}

static void tick(struct timers *t, struct job *job, uint32_t number, uint32_t fragment, uint32_t sources,
		 int64_t waited_ns)
{
	struct block_record *record = (void *)(t->records + (size_t)number * t->record_bytes);
	uint32_t slot = *(volatile uint32_t *)&record->slot;
	uint8_t *head = t->heads[t->pending];
	struct wire_header *inc = (void *)(head + WIRE_FRAME_HEADERS_BYTES);
	int64_t waited_ms = waited_ns / 1000000;
	uint32_t age = waited_ms > 0xffff ? 0xffff : (uint32_t)waited_ms;
	uint32_t sum = words_of(slot) + words_of(fragment) + sources + age;
	uint16_t check;

	memcpy(head, job->head, HEAD_BYTES);
	inc->slot = htonl(slot);
	inc->fragment = htonl(fragment);
	inc->contributors = htons(sources);
	inc->age = htons(age);
	memcpy(&check, head + CHECKSUM_AT, sizeof(check));
	sum += (uint16_t)~ntohs(check);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	check = htons((uint16_t)~sum ? (uint16_t)~sum : 0xffff);
	memcpy(head + CHECKSUM_AT, &check, sizeof(check));
	t->parts_of[t->pending][1].iov_len = job->body_bytes;
	t->records_of[t->pending] = number;
	if (++t->pending == BATCH)
		send_batch(t);
}

/* Looks at a record whose mark says that it waits. */
static void visit(struct timers *t, uint32_t bucket, uint32_t place, uint32_t mark, int64_t now)
{
	uint32_t number = bucket * BUCKET_BLOCKS + place, index;
	struct block_record *record = (void *)(t->records + (size_t)number * t->record_bytes);
	uint64_t key;
	struct job *job;
	int64_t waited, touched;

	if (mark != t->seen[number]) {
		t->seen[number] = mark;
		t->since[number] = *(volatile __u64 *)&record->touched_ns;
		if (t->since[number] > now) /* it came behind this visit's beginning */
			t->since[number] = now;
		t->due[number] = 0;
		t->ticked[number] = 0;
		return;
	}
	index = *(volatile uint32_t *)&record->job;
	key = *(volatile __u64 *)&t->buckets[bucket].keys[place];
	job = &t->jobs[index % MAX_JOB_RECORDS];
	waited = now - t->since[number];
	if (!job->serial || job->serial != key >> KEY_SHIFT)
		return;
	if (waited < job->timeout_ns || now < t->due[number])
		return;
	touched = *(volatile __u64 *)&record->touched_ns;
	if (touched > t->since[number]) { /* another job's block, with the mark of the one before */
		t->since[number] = touched < now ? touched : now;
		t->due[number] = 0;
		t->ticked[number] = 0;
		return;
	}
	for (uint32_t i = 0; i < MAX_SOURCES / 64; i++)
		job->lacked[i] |= *(volatile __u64 *)&record->awaits[i] &
				  ~*(volatile __u64 *)&record->sources[i];
	t->due[number] = now + (job->timeout_ns << t->ticked[number]);
	t->ticked[number] += t->ticked[number] < MOST_BACKOFF;
	/* if the record is another block's by now, the tick says so, and is too late */
	tick(t, job, number, (uint32_t)key, mark & ((1 << MARK_SHIFT) - 1), waited);
}

static void scan(struct timers *t, uint32_t count, int64_t now)
{
	for (; count; count--) {
		struct block_bucket *bucket = &t->buckets[t->next];
		const volatile uint64_t *pairs = (void *)bucket->marks;

		if (pairs[0] | pairs[1] | pairs[2] | pairs[3])
			for (uint32_t i = 0; i < BUCKET_BLOCKS; i++) {
				uint32_t mark = *(volatile uint32_t *)&bucket->marks[i];

				if (mark)
					visit(t, t->next, i, mark, now);
				else
					t->seen[t->next * BUCKET_BLOCKS + i] = 0;
			}
		t->next = t->next + 1 == t->count ? 0 : t->next + 1;
		t->counts.visited++;
	}
	if (t->pending)
		send_batch(t);
}

static void sleep_until(int64_t at_ns)
{
	struct timespec at = {.tv_sec = at_ns / 1000000000LL, .tv_nsec = at_ns % 1000000000LL};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0) == EINTR)
		;
}

static void *run(void *opened)
{
	struct timers *t = opened;
	struct sched_param priority = {.sched_priority = PRIORITY};
	uint32_t visits = t->parts < VISITS ? t->parts : VISITS;
	int64_t next = now_ns();

	pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority); /* if it may */
	while (!t->error && !__atomic_load_n(&t->is_ending, __ATOMIC_ACQUIRE)) {
		int64_t before = now_ns(), pause_ns;

		pthread_mutex_lock(&t->lock);
		pause_ns = t->least_ns ? t->least_ns / t->parts : 10000000;
		if (t->least_ns) {
			int64_t late = before - next;
			/* what was missed while it was late is looked at now, each bucket once at most */
			uint64_t turns = 1 + (late > 0 ? late / pause_ns : 0);
			uint64_t count = turns * ((uint64_t)t->count * visits / t->parts + 1);

			scan(t, count < t->count ? (uint32_t)count : t->count, before);
			t->counts.wakes++;
			if (late > 0 && (uint64_t)late > t->counts.late_ns_most)
				t->counts.late_ns_most = late;
			t->counts.busy_ns += now_ns() - before;
		}
		pthread_mutex_unlock(&t->lock);
		next += pause_ns;
		if (next <= now_ns())
			next = now_ns() + pause_ns;
		sleep_until(next);
	}
	return 0;
}

/* The layout of the table that this was compiled for: who calls it may have another by now. */
uint64_t timers_layout(void)
{
	return (uint64_t)sizeof(struct block_bucket) << 32 | offsetof(struct block_record, pairs);
}

void timers_close(struct timers *t)
{
	if (!t)
		return;
	__atomic_store_n(&t->is_ending, 1, __ATOMIC_RELEASE);
	if (t->thread)
		pthread_join(t->thread, 0);
	if (t->buckets && t->buckets != MAP_FAILED)
		munmap(t->buckets, t->bucket_bytes);
	if (t->records && t->records != MAP_FAILED)
		munmap(t->records, t->table_bytes);
	free(t->seen);
	free(t->since);
	free(t->due);
	free(t->ticked);
	free(t);
}

/*
 * The timers of a table, `parts` of them; 0 on failure, with errno set. By `socket_fd`, a packet socket,
 * frames reach the program.
 */
struct timers *timers_open(int buckets_fd, int records_fd, uint32_t count, uint32_t record_bytes,
			   int socket_fd, uint32_t parts)
{
	struct timers *t = calloc(1, sizeof(*t));
	size_t page = sysconf(_SC_PAGESIZE), records = (size_t)count * BUCKET_BLOCKS;
	int code;

	if (!t)
		return 0;
	t->count = count;
	t->record_bytes = (record_bytes + 7) / 8 * 8; /* as the kernel lays an array's values out */
	t->parts = parts;
	t->socket_fd = socket_fd;
	t->bucket_bytes = (count * sizeof(struct block_bucket) + page - 1) / page * page;
	t->table_bytes = (records * t->record_bytes + page - 1) / page * page;
	t->buckets = mmap(0, t->bucket_bytes, PROT_READ, MAP_SHARED, buckets_fd, 0);
	t->records = mmap(0, t->table_bytes, PROT_READ, MAP_SHARED, records_fd, 0);
	t->seen = calloc(records, sizeof(*t->seen));
	t->since = calloc(records, sizeof(*t->since));
	t->due = calloc(records, sizeof(*t->due));
	t->ticked = calloc(records, sizeof(*t->ticked));
	if (t->buckets == MAP_FAILED || t->records == MAP_FAILED || !t->seen || !t->since || !t->due ||
	    !t->ticked)
		goto failed;
	for (uint32_t i = 0; i < BATCH; i++) {
		t->parts_of[i][0] = (struct iovec){.iov_base = t->heads[i], .iov_len = HEAD_BYTES};
		t->parts_of[i][1] = (struct iovec){.iov_base = t->zeros};
		t->messages[i].msg_hdr = (struct msghdr){.msg_iov = t->parts_of[i], .msg_iovlen = 2};
	}
	pthread_mutex_init(&t->lock, 0);
	errno = pthread_create(&t->thread, 0, run, t);
	if (!errno)
		return t;
	t->thread = 0;
failed:
	code = errno;
	timers_close(t);
	errno = code;
	return 0;
}

/*
 * Has blocks of a tree age out after `timeout_ns`, from now on; `frame` is a tick of a block 0 in slot 0 that
 * nobody is in, `serial` the job record's number. 0 for `timeout_ns`: not any more.
 */
void timers_set(struct timers *t, uint32_t index, uint32_t serial, int64_t timeout_ns, const uint8_t *frame,
		uint32_t bytes)
{
	struct job *job = &t->jobs[index % MAX_JOB_RECORDS];

	pthread_mutex_lock(&t->lock);
	job->serial = timeout_ns ? serial : 0;
	job->timeout_ns = timeout_ns;
	memset(job->lacked, 0, sizeof(job->lacked));
	if (timeout_ns) {
		memcpy(job->head, frame, HEAD_BYTES);
		job->body_bytes = bytes - HEAD_BYTES;
	}
	t->least_ns = 0;
	for (uint32_t i = 0; i < MAX_JOB_RECORDS; i++)
		if (t->jobs[i].serial && (!t->least_ns || t->jobs[i].timeout_ns < t->least_ns))
			t->least_ns = t->jobs[i].timeout_ns;
	pthread_mutex_unlock(&t->lock);
}

/* The errno by which they stopped; 0 while they go on. */
int timers_error(struct timers *t)
{
	int error;

	pthread_mutex_lock(&t->lock);
	error = t->error;
	pthread_mutex_unlock(&t->lock);
	return error;
}

void timers_counts(struct timers *t, struct timer_counts *out)
{
	pthread_mutex_lock(&t->lock);
	*out = t->counts;
	pthread_mutex_unlock(&t->lock);
}

/* The sources of a tree that blocks waited for in vain since this was called last, a bitmap. */
void timers_lacked(struct timers *t, uint32_t index, uint64_t *out)
{
	struct job *job = &t->jobs[index % MAX_JOB_RECORDS];

	pthread_mutex_lock(&t->lock);
	memcpy(out, job->lacked, sizeof(job->lacked));
	memset(job->lacked, 0, sizeof(job->lacked));
	pthread_mutex_unlock(&t->lock);
}

/* Sets bits of a word that programs clear bits of at the same time. */
void timers_set_bits(uint64_t *word, uint64_t bits)
{
	__atomic_fetch_or(word, bits, __ATOMIC_SEQ_CST);
}

/* Raises a floor that programs raise at the same time, or keeps it: raise_floor() of bpf/systems/blocks.h. */
void timers_raise(uint64_t *floor, uint32_t to)
{
	uint64_t old = __atomic_load_n(floor, __ATOMIC_SEQ_CST);

	while ((int32_t)(to - (uint32_t)old) > 0)
		if (__atomic_compare_exchange_n(floor, &old, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			break;
}
