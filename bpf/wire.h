/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */
/* Generated from testbed/wire/spec.py, operations.py, recovery.py by `make wire`: do not edit. */
#ifndef WIRE_H
#define WIRE_H

#define WIRE_MAGIC 0x4f49
#define WIRE_VERSION 2
#define WIRE_UDP_PORT 47001
#define WIRE_MAX_WORKERS 64
#define WIRE_NO_WORKER 0xffff /* in a result */
#define WIRE_TTL 64 /* of what is made on the way */
#define WIRE_ECT 2 /* ECN-capable (RFC 3168) */
#define WIRE_CE 3 /* congestion experienced: both bits */
#define WIRE_DSCP_REPEATED 3 /* of what a worker sends again */
#define WIRE_GROUP_BYTE 239 /* the first of a group's address */
#define WIRE_PROBE_ETHERTYPE 0x88b5 /* of the agent's question to the optics */
#define WIRE_OP_PUSH 1 /* worker to the place that it contributes to: its gradients of a fragment */
#define WIRE_OP_PARTIAL 2 /* place to the place above: the sum of what came to it */
#define WIRE_OP_RESULT 3 /* towards the workers: the sum made at the top */
#define WIRE_OP_NOTICE 4 /* to the sender of a push or partial sum: congestion */
#define WIRE_OP_TICK 5 /* to a place, by its control port alone: complete this fragment as it is */
#define WIRE_OP_EMPTY 6 /* worker to the place that it contributes to: its gradients are zeros, unsent */
#define WIRE_OP_QUESTION 7 /* worker to its place, and on to the place above: which fragments are missing */
#define WIRE_OP_ANSWER 8 /* place to the worker that asked: what it found in each fragment's slot */
#define WIRE_OP_SUM 9 /* place at the top of a tree with an owner to its owner: the sum of a fragment */
#define WIRE_OP_PARAMETERS 10 /* owner to the workers: bytes, which are copied and never summed */
#define WIRE_OP_PARAMETER_BEAT 11 /* worker to its place, and on to the owner: how far it is */
#define WIRE_OP_GRADIENT_BEAT 12 /* owner to the workers: how far it is */
#define WIRE_FLAG_FINAL 1
#define WIRE_FLAG_DEGRADED 2
#define WIRE_FLAG_ECN 4
#define WIRE_FLAG_RETRANSMIT 8
#define WIRE_FLAG_END 16
#define FOUND_SUMMED 0 /* the sum is complete here, and went to the place above; or nobody has looked */
#define FOUND_LACKS 1 /* no contribution of the asker's is there */
#define FOUND_HELD 2 /* the asker's is there, others are missing; or the slot is a newer fragment's */
#define FOUND_FINAL 3 /* the result is there */
#define FOUND_SHIFT 16 /* above the slot's offset in the segment */
#define QUESTION_MOST 256 /* fragments that one question is of */
#define WIRE_FRAME_HEADERS_BYTES 42 /* Ethernet, IPv4, UDP */
#ifndef WIRE_LANES
#define WIRE_LANES 360 /* at MTU 1500; for another one the loader says how many */
#endif

#define WIRE_IS_OP(op) ((op) >= WIRE_OP_PUSH && (op) <= WIRE_OP_GRADIENT_BEAT)
#define WIRE_HAS_LANES(op) ( \
	(op) != WIRE_OP_NOTICE && \
	(op) != WIRE_OP_EMPTY && \
	(op) != WIRE_OP_PARAMETER_BEAT && \
	(op) != WIRE_OP_GRADIENT_BEAT)

struct wire_header {
	__be16 magic; /* 0x4f49 */
	__u8 version; /* of this format */
	__u8 op; /* the operation: WIRE_OP_* */
	__u8 flags; /* 1 final, 2 degraded, 4 ECN, 8 retransmit, 16 end */
	__u8 tree; /* which tree of the job, from 0 */
	__be16 job; /* job id, unique among the running jobs of a testbed */
	__be16 worker; /* rank of the sender; in a partial, the sending place's number; in a result, 65535 */
	__be16 contributors; /* how many workers are in the sum: 1 in a push */
	__be32 generation; /* which incarnation of the job; packets of another one never change a sum */
	__be32 slot; /* of the receiving place; in a result, of the place at the top */
	__be32 fragment; /* counts the tree's fragments from 0, never reused within a generation */
	__be16 count; /* how many of the lanes are valid; the rest is zero padding */
	__be16 age; /* milliseconds that the fragment waited before a tick completed it, else 0 */
	__be16 lanes; /* how many lanes follow; in a notice, of the packet that it answers */
	__be16 reserved; /* zero */
};

#endif
