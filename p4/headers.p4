// SPDX-License-Identifier: Apache-2.0
// What a packet holds, and what the stages tell each other about it.
#ifndef HEADERS_P4
#define HEADERS_P4

#include "wire.p4"
#include "places.p4"
#include "verdicts.p4"
// this folder's is for MTU 1500, wide; testbed/dataplanes/bmv2/compile.py puts others before it
#include <lanes.p4>

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<8> IPPROTO_TCP = 6;
const bit<8> IPPROTO_UDP = 17;
const bit<16> IPV4_BYTES = 20;
const bit<16> NOTICE_BYTES = 8 + WIRE_HEADER_BYTES; // UDP length of a packet without lanes
const bit<16> LANES_BYTES = NOTICE_BYTES + 4 * WIRE_LANES; // and with them

header ethernet_h {
    bit<48> dstAddr;
    bit<48> srcAddr;
    bit<16> etherType;
}

header ipv4_h {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  diffserv;
    bit<16> totalLen;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragOffset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> hdrChecksum;
    bit<32> srcAddr;
    bit<32> dstAddr;
}

header udp_h {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<16> length;
    bit<16> checksum;
}

// The beginning of a TCP header.
header tcp_h {
    bit<16> srcPort;
    bit<16> dstPort;
    bit<32> sequence;
}

// What the checksum of a datagram is of: the sums of its headers, and the pseudo header (RFC 768).
header sums_h {
    bit<16> of_udp;
    bit<16> of_wire;
    bit<16> of_lanes;
    bit<32> source;
    bit<32> destination;
    bit<16> protocol;
    bit<16> length;
}

// The block of a packet, and its record. docs/trio.md.
header block_h {
    bit<32> at;     // its record
    bit<32> space;  // the first source of the job's vectors, or of its votes
    bit<32> floor;
    bit<32> beyond; // of the block from the floor
    bit<32> window; // of the terms, those of the space
    bit<32> reach;
    bit<32> ahead;
    bit<32> gone;   // active blocks that its record would take away: 1 or 0
    bit<32> active;
    bit<32> word;   // of a register, to work with
    bit<56> mark;
    bit<32> reached; // by a source
    bit<32> before;
    bit<32> least;
    bit<64> missing; // sources
    bit<1>  early;
    bit<7>  rest;   // a header has whole bytes
}

// A beat of an owned tree, and the least of its members'. docs/luwu-network.md.
header beat_h {
    bit<32> at;  // the record's first member
    bit<32> own; // the one that it is from
    bit<32> word; // of a register, to work with
    bit<32> ack;
    bit<32> credit;
    bit<32> from_ack; // what both are counted from
    bit<32> from_credit;
    bit<32> sent_ack;
    bit<32> sent_credit;
}

struct headers_t {
    ethernet_h ethernet;
    ipv4_h     ipv4; // the fixed part; options are payload, and no packet with options is looked into
    udp_h      udp;
    tcp_h      tcp;
    wire_h     wire;
    lanes_h    lanes;
    // room to work in: not valid, so that BMv2 neither sends it nor copies it with each packet
    lanes_h    held;
    sums_h     sums;
    terms_h    terms;
    block_h    block;
    beat_h     beat;
}

// What the owner of a tree alone may send: BY_OWNERS of testbed/wire/operations.py.
#define WIRE_IS_OWNERS(op) ((op) == WIRE_OP_PARAMETERS || (op) == WIRE_OP_GRADIENT_BEAT)

// Where a packet goes.
const bit<3> SEND_NOTHING = 0;
const bit<3> SEND_ROUTE = 1;  // by its destination address
const bit<3> SEND_BACK = 2;   // by the port it came from
const bit<3> SEND_GROUP = 3;  // to all ports of the tree's group
const bit<3> SEND_OTHERS = 4; // to all of them but the one it came from
const bit<3> SEND_WORKERS = 5; // to those of the tree's group that lead to hosts, but the one it came from

struct port_t {
    bit<2>  kind;
    bit<16> job;      // of who runs behind it
    bit<1>  has_worker;
    bit<16> worker;   // its number
    bit<1>  is_place; // whether the host is a place of the job
    bit<1>  is_owner; // whether it is the owner of the job's tree
}

// The slot that a packet names.
struct slot_t {
    bit<32> index;
    bit<8>  state;  // SLOT_*
    bit<32> generation;
    bit<32> fragment;
    bit<1>  is_new; // this packet's fragment takes the slot
    bit<2>  lanes;  // LANES_*: what to do with the lanes
    bit<64> bitmap; // whose contributions are in
    bit<64> mine;   // this contributor's bit
}

const bit<32> UNDECIDED = 0xffff; // no verdict yet

// v1model begins with zeros.
struct metadata_t {
    bit<32> verdict;
    bit<3>  send;
    bit<1>  is_gradient; // UDP to the gradient port
    bit<1>  is_known;    // its header is of this magic and version
    bit<1>  is_routed;   // a route was found
    bit<1>  is_changed;  // it leaves as another packet than it came
    bit<1>  prune;       // not all copies leave: none by the port it came from
    bit<32> address;     // of this switch
    bit<24> tree;        // of which job: its number, and the tree's
    bit<16> sum;         // of the datagram
    bit<16> bucket;      // of those that are spread over parallel circuits
    bit<8>  bundle;      // of such circuits: the port of the first
    bit<8>  circuits;    // how many there are
    bit<16> circuit;     // which one: the bundle, and its number there
    port_t  port;
    entry_t entry;
    slot_t  slot;
}

@name(".verdicts") counter(V_COUNT, CounterType.packets) verdicts;

#endif
