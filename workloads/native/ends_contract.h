/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from workloads/luwu/contract.py by `make wire`: do not edit. */
#ifndef ENDS_CONTRACT_H
#define ENDS_CONTRACT_H

#define ENDS_REQUESTS 64 /* under way in a stream */
#define ROLE_WORKER 0 /* gets parameters, gives gradients */
#define ROLE_OWNER 1 /* gives parameters, gets the sums of gradients */
#define DIRECTION_GIVEN 0 /* it sends */
#define DIRECTION_GOTTEN 1 /* it receives */
#define STATE_FREE 0 /* none yet */
#define STATE_SUBMITTED 1 /* its values are to be measured */
#define STATE_MEASURED 2 /* its largest exponent is known, its scale is not */
#define STATE_READY 3 /* it may be carried out */
#define STATE_DONE 4 /* the buffer is the caller's again */
#define STATE_FAILED 5 /* `error` says why */
#define FORMAT_BYTES 0 /* opaque: copied as they are */
#define FORMAT_BINARY32 1 /* numbers, summed with a scale */
#define FORMAT_BINARY16 2 /* the same, given only */
#define FORMAT_BFLOAT16 3 /* the same, given only */
#define WRONG_NOTHING 0 /* it did not */
#define WRONG_LENGTH 1 /* what came ends elsewhere than what was asked for */
#define WRONG_EARLIER 2 /* an earlier request of its stream has failed */

/* What an end is opened with. */
struct end_settings {
	__s32 memory_fd;
	__s32 socket_fd;
	__s32 event_fd;
	__u32 role; /* ROLE_* */
	__u32 job;
	__u32 worker;
	__u32 workers;
	__u32 generation;
	__u32 tree; /* its number on the wire */
	__u32 lanes; /* of every packet of the job */
	__u32 slots; /* of the tree's segment: fragment s has slot s modulo these */
	__u32 slot_base; /* where it begins at the place that a worker pushes to */
	__u32 depth; /* fragments that this end has room for */
	__be32 address; /* of a worker's place; for the owner, of the tree's group */
	__u32 port;
	__u32 burst; /* packets that the kernel makes of one datagram, at most */
	__u32 beat_us; /* between beats while something comes */
	__u32 detect_us; /* without a new acknowledgement, then it goes back; its stagger included */
	double rate_mbps; /* packets are paced by it; 0: they are not */
};

/* Writers: the asking process until READY but for `exponent`, the end after that. */
struct end_request {
	__u32 state; /* STATE_*; written last; a futex */
	__u32 format; /* FORMAT_* */
	__u64 offset; /* of its buffer in the memory */
	__u64 elements; /* bytes where they are opaque */
	double factor; /* by which a sum in units of the scale is multiplied, of what is gotten */
	__s32 scale; /* values times two to it become integers, of what is given */
	__u32 exponent; /* the largest biased exponent of binary32; 255: NaN or infinity */
	__u32 error; /* WRONG_* */
	__u32 rest;
	__u64 theirs; /* lanes that came until END; 0: END was not where ours is */
	__u64 zeroed; /* values that are not zero, and were given as zero */
};

struct end_stream {
	__u64 submitted; /* requests; writer: the asking process */
	__u64 done; /* requests, in their order; the end writes it, and all below */
	__u64 ack; /* the first fragment that is not acknowledged, or not here */
	__u64 next; /* given: the next fragment to be sent; gotten: the next to be taken */
	__u64 credit; /* the first fragment that may not be sent */
	__u64 packets; /* of fragments, sent or received */
	__u64 again; /* of these, sent before or received before */
	__u64 gone_back; /* times */
	__u64 overflowed; /* fragments that came beyond the credit: never, where all is right */
	__u64 beats; /* heard or sent */
};

/* The head of the memory: this, then two `end_stream`, then ENDS_REQUESTS `end_request` of each. */
struct end_memory {
	__u32 stop; /* the asking process ends it */
	__u32 running; /* 1 while the end runs */
	__u32 error; /* errno of the send that ended it; 0: none */
	__u32 pad;
	__u64 dropped; /* packets that the socket had no room for */
	__u64 refused; /* packets that are none of this tree's */
	__u64 busy_ns; /* processor time of the end */
	__u64 events; /* times that it slept and was woken */
};

#endif
