"""The state of a place: its ports, jobs and slots; and that of the fabric around it: routes, circuits,
pullers.

The records are the values of the XDP programs' maps (bpf/maps.h says who writes and reads each). The P4
program shares their numbers, and the job's entry.
"""

from __future__ import annotations

from testbed.wire.mapping import VOTE_SLOTS
from testbed.wire.numbers import Choice, Number
from testbed.wire.records import Kind, Lanes, Member, Record, members
from testbed.wire.spec import Field
from testbed.wire.spreading import CHECKED

U32, U64, BE32 = Kind.U32, Kind.U64, Kind.BE32


class Port(Choice):
    """The kinds of neighbour at a place's port."""

    FABRIC = 0, "of another switch, or optical: what comes was checked where it entered"
    HOST = 1, "of a host"
    CONTROL = 2, "of whoever runs the place"
    LOOP = 3, "of the loop of a host that is a place"


AT_SWITCHES = (Port.FABRIC, Port.HOST, Port.CONTROL)
"""The kinds of port of a switch; hosts that are places run only XDP."""


class SlotState(Choice):
    """The states of a slot."""

    EMPTY = 0
    FILLING = 1
    PARTIAL = 2, "the lanes hold the sum made here, which was sent to the place above"
    FINAL = 3, "the lanes hold the result"


class Role(Choice):
    """The destination of a completed sum: the place above, or all workers. The slot of a completed sum is in
    the state with the same number.
    """

    NONE = 0, "an entry that is not in use"
    TRANSIT = 1, "no contributor here: results pass through"
    INNER = int(SlotState.PARTIAL), "it goes to the place above"
    TOP = int(SlotState.FINAL), "it is the result"


class Frames(Choice):
    """The kinds of frames that a routing over a timetable may treat differently. Kinds without routes of
    their own go as OWN.
    """

    OWN = 0, "of the unit's hosts"
    CARRIED = 1, "of other units, which came over a circuit"
    BULK = 2, "of the unit's hosts, with the mark of bulk traffic: DSCP CS1 or LE (RFC 8622)"
    RESULT = 3, "results of sums for several units, a copy for each"
    SPARE = 4, "of the unit's hosts, beyond what the next direct circuit takes; the goal is next"


AT_ONCE = "at-once"
ROUTINGS = (AT_ONCE, "direct", "vlb", "hoho", "opera")
"""How frames reach units over a timetable (testbed/ocs/routing.py), by number; the next is a user's class."""


class Sum(Choice):
    """Flags of a slot."""

    MARKED = 1, "a contribution came with congestion experienced (RFC 3168)"
    DEGRADED = 2, "workers are missing; the number is the header flag's"
    END = 16, "of a tree with an owner: the end of a request; the number is the header flag's"


class Program(Choice):
    """The program that processes a tree's contributions and ticks: the core's sum, or a system's own."""

    SUM = 0, "bpf/sum.h"
    BLOCKS = 1, "bpf/systems/blocks.h"
    OWNED = 2, "bpf/systems/owned.h"


NOBODY = Number("NOBODY", 0xFFFFFFFF, 32, "job or worker of a port", in_hex=True)

JOB_SLOTS = 1024  # of a place: shared equally by the jobs that inc.jobs allows; also the slots of a ring
GROUP_SLOTS = 512  # for the groups of all jobs
SLOTS = JOB_SLOTS + GROUP_SLOTS  # of a place
P4_OWN_CELLS = 2048  # register cells of a P4 switch after those of slots: for systems' programs
P4_CELLS = SLOTS + P4_OWN_CELLS

MAX_ENTRIES = 4096
MAX_AGGREGATORS = 1024
MAX_PROGRAMS = 16
MAX_ROUTES = 262144
MAX_OPTICAL_PORTS = 16384
OPTICAL_STRIDE = 64
MAX_MATCHINGS = 512
MAX_MEETINGS = 131072
MAX_FLOWS = 4096
SIZES: tuple[Number, ...] = (
    Number("MAX_PORTS", 8192, 32),
    Number("MAX_ENTRIES", MAX_ENTRIES, 32),
    Number("MAX_PULLERS", 16384, 32),
    Number("MAX_SLOTS", SLOTS, 32, "of one place"),
    Number("RING_SLOTS", JOB_SLOTS, 32, "of one ring: what a job may have of a place"),
    Number("VOTE_SLOTS", VOTE_SLOTS, 32, "the last of a segment"),
    Number("MAX_AGGREGATORS", MAX_AGGREGATORS, 32),
    Number("MAX_PROGRAMS", MAX_PROGRAMS, 32),
    Number("MAX_GROUPS", 4096, 32),
    Number("MAX_GROUP_CELLS", 8192, 32, "of all ways of all groups"),
    Number("MAX_ROUTES", MAX_ROUTES, 32),
    Number("MAX_OPTICAL_PORTS", MAX_OPTICAL_PORTS, 32),
    Number("OPTICAL_STRIDE", OPTICAL_STRIDE, 32, "between two units' port numbers at the optical switch"),
    Number("MAX_MATCHINGS", MAX_MATCHINGS, 32, "of a timetable; a power of two"),
    Number("MAX_MEETINGS", MAX_MEETINGS, 32, "of all of them"),
    Number("MAX_HOSTS", 4096, 32),
    Number("MAX_FLOWS", MAX_FLOWS, 32, "of plain traffic that are counted; of more, the latest"),
    Number("MAX_COPIES", 16384, 32, "pairs of devices by which places at hosts copy results"),
)
"""Sizes of the XDP programs' maps."""

MATCHING_SHIFT, MATCHING_BITS = 16, 10
FRAMES_SHIFT = MATCHING_SHIFT + MATCHING_BITS
WAITS_AGAIN, MOST_RETURNS = 255, 7
NEVER_NS = 1 << 62
CALENDAR_NUMBERS = (
    Number("MATCHING_SHIFT", MATCHING_SHIFT, 32, "in a route's owner: above it a matching, from 1, or 0"),
    Number("MATCHING_BITS", MATCHING_BITS, 32, "of that"),
    Number("FRAMES_SHIFT", FRAMES_SHIFT, 32, "in the same: above it the kind of frames, FRAMES_*"),
    Number("MOST_UNITS", 250, 32, "pods' ToRs and the core have larger numbers, and no optical ports"),
    Number("CORE_PORT", OPTICAL_STRIDE, 32, "port of a pass: to the core"),
    Number("WAITS_AGAIN", WAITS_AGAIN, 32, "port of a pass: the frame missed its slot"),
    Number("MOST_RETURNS", MOST_RETURNS, 32, "of a frame to its queue, in the last bits of a pass's time"),
)
"""Numbers of timetables, and of the passes of frames that wait for a slot in one."""

PORT = Record(
    "port",
    (
        Member(
            "owner",
            U32,
            "the switch's number, 0 for the optical one's; of a host's loop, the ifindex of its eth0",
        ),
        Member("number", U32, "port number at the optical switch"),
        Member("self_ip", BE32, "address that pushes are sent to here: of the switch, or the loop's"),
        Member("kind", U32, "PORT_*"),
        Member("job", U32, "of who runs at a host's port; NOBODY: no one"),
        Member("worker", U32, "its number, or NOBODY"),
        Member("index", U32, "the entry of the job's first tree at this place"),
        Member("is_place", U32, "whether the host is a place of the job"),
        Member("relays", U32, "whether that sends copies of results to hosts' own addresses"),
        Member("is_owner", U32, "whether the host is the owner of the job's tree"),
    ),
)

ENTRY_KEY = Record(
    "entry_key",
    (
        Member("owner", U32, "number of the switch, or ifindex of the host's eth0"),
        *members(U32, "job", "tree"),
    ),
)

ENTRY = Record(
    "entry",
    (
        Member("workers", U64, "bitmaps of those who contribute here: of ranks,"),
        Member("places", U64, "and of the numbers of places"),
        Member("id", U32, "of the job"),
        Member("tree", U32),
        Member("generation", U32),
        Member("role", U32, "ROLE_*"),
        Member("aggregator", U32, "index into slots, where that is PROGRAM_SUM"),
        Member("base", U32, "MemID: first slot of the segment"),
        Member("size", U32, "Size: slots in the segment"),
        Member("group", U32, "where results go: row of group_ways, index into worker_groups"),
        Member("number", U32, "of this place, in its partial sums"),
        Member("up_base", U32, "MemID at the place above"),
        Member("result_base", U32, "MemID at the top"),
        Member("lanes", U32, "of every packet"),
        Member("self_ip", BE32),
        Member("up_ip", BE32, "the place above; at the top of a tree with an owner, the owner"),
        Member("group_ip", BE32, "destination of results; 0: a copy goes to each member's own address"),
        Member("program", U32, "PROGRAM_*"),
        Member("record", U32, "index into a map of that program's own"),
        Member("pad", U32),
    ),
    "A tree of a job at a place.",
)

P4_ENTRY: tuple[Field, ...] = (
    Field("workers", 64, "bitmap of the ranks that push here"),
    Field("places", 64, "bitmap of the numbers of the places whose sums come here"),
    Field("generation", 32, ""),
    Field("role", 8, "ROLE_*"),
    Field("base", 32, "MemID"),
    Field("size", 32, "Size"),
    Field("number", 16, "of this place, in its partial sums"),
    Field("up_base", 32, "MemID at the place above"),
    Field("result_base", 32, "MemID at the top"),
    Field("lanes", 16, "of every packet"),
    Field("self_ip", 32, ""),
    Field("up_ip", 32, "of the place above; at the top of a tree with an owner, of the owner"),
    Field("group_ip", 32, ""),
    Field("group", 16, "multicast group, the first of"),
    Field("ways", 8, "so many, among which results are spread"),
    Field("program", 8, "PROGRAM_*"),
    Field("record", 8, "of a tree with an owner: the beats of its members"),
)
"""The same for the P4 program: the parameters of its action `set_entry`, in order."""

SLOT = Record(
    "slot",
    (
        Member(
            "lock",
            U64,
            "0 free, 1 held: a spin lock by compare-and-swap, for two ports may run on two CPUs",
        ),
        Member("bitmap", U64),
        Member("generation", U32),
        Member("fragment", U32),
        Member("state", U32, "SLOT_*"),
        Member("flags", U32, "SUM_*"),
        Member("contributors", U32, "workers in the sum"),
        Member("count", Kind.U16, "of the last packet summed"),
        Member("age", Kind.U16, "of the packet that completed it"),
        Member(
            "pairs", U64, "two lanes each, the first in the upper half; one addition sums both", Lanes(per=2)
        ),
    ),
)

ROUTE_KEY = Record(
    "route_key",
    (
        Member("owner", U32, "number of the switch; above MATCHING_SHIFT a matching's, and FRAMES_*"),
        Member("ip", BE32, "network part"),
        Member("prefix", U32, "32, 24 or 0"),
        Member("way", U32, "of several parallel circuits, from 0"),
    ),
)

ROUTE = Record(
    "route",
    (
        Member("ifindex", U32, "0: nowhere, Open vSwitch drops it"),
        Member("mac", Kind.U8, "new destination; all zero: leave it", 6),
        Member("ways", Kind.U8, "how many circuits in parallel; said by way 0"),
        Member("stays", Kind.U8, "whether the circuit was in the timetable's matching before as well"),
        Member("number", U32, "port number at the optical switch, 0: a host's"),
    ),
)

GROUP_WAY = Record(
    "group_way",
    (
        Member("cell", U32, "index into groups: the ports by which results of some buckets leave"),
        Member(
            "checked", U32, "port numbers at the optical switch that others are parallel to; 0: none", CHECKED
        ),
    ),
)

CIRCUIT = Record(
    "circuit",
    (
        Member("before", U32, "port number of the other end until dark_at_ns, 0: no circuit"),
        Member("before_ifindex", U32, "of the device there"),
        Member("dark_at_ns", U64, "CLOCK_MONOTONIC; frames that arrive earlier take the circuit before"),
        Member("lit_at_ns", U64, "frames that arrive from dark_at_ns on and earlier than this are lost"),
        Member("peer", U32, "port number of the other end from lit_at_ns on, 0: no circuit"),
        Member("ifindex", U32, "of the device there"),
    ),
)

GLIMPSE = Record(
    "glimpse",
    (
        Member("lit_ns", U64, "the last probe that came before the darkness"),
        Member("dark_ns", U64, "the first one in the dark"),
        Member("still_dark_ns", U64, "the last one in the dark"),
        Member("lit_again_ns", U64, "the first one after it"),
    ),
)

TIMETABLE = Record(
    "timetable",
    (
        Member("start_ns", U64, "CLOCK_MONOTONIC; from then on it holds, 0: never"),
        Member("period_ns", U64),
        Member("guard_ns", U64, "of darkness at the beginning of each matching"),
        Member("count", U64, "matchings"),
        Member("routing", U64, "index into ROUTINGS (testbed/wire/places.py)"),
        Member(
            "starts_ns", U64, "when each begins in a period, the first at 0; else NEVER_NS", MAX_MATCHINGS
        ),
    ),
)

UNIT_SET = Record("unit_set", (Member("bits", U64, "by a unit's number", 4),))

MEETING_KEY = Record(
    "meeting_key", (Member("port", U32), Member("matching", U32, "its number in the timetable"))
)

MEETING = Record(
    "meeting",
    (
        Member("peer", U32),
        Member("ifindex", U32, "of the device there"),
        Member("stays", U32, "whether it was the peer in the matching before as well: then it is not dark"),
    ),
)

CROSSINGS = Record(
    "crossings",
    (
        Member("lit", U64, "frames that left at the other end"),
        Member("dark", U64, "lost in the dark"),
        Member("unlit", U64, "lost where no circuit was"),
    ),
)

FLOW = Record(
    "flow",
    (
        Member("from_ip", BE32),
        Member("to_ip", BE32),
        Member("port", U32, "the lower of TCP's or UDP's two; 0: none, or a fragment"),
        Member("protocol", U32, "of IP"),
    ),
    "Plain traffic that entered by a host's port: all but packets to the gradient port.",
)

COPY = Record(
    "copy",
    (
        Member("ifindex", U32, "of the eth0 by which it leaves"),
        Member("from_ip", BE32, "of the host that copies"),
        Member("to_ip", BE32, "of the member that it is for"),
        Member("mac", Kind.U8, "of that", 6),
        Member("pad", Kind.U16),
    ),
    "The copies of results that a place at a host sends to one of its members.",
)

PULLER_KEY = Record(
    "puller_key",
    (Member("ifindex", U32, "of a host's eth0, or of its loop's outer end"), Member("tree", U32)),
)

PULLER = Record(
    "puller",
    (
        Member("job", U32),
        Member("generation", U32),
        Member("ring", U32, "index into rings and wakes"),
        Member("base", U32, "first slot of the tree's segment, as results name it"),
        Member("size", U32, "slots"),
        Member("first", U32, "the segment's place in the ring"),
        Member("lanes", U32, "of every packet"),
        Member("ip", BE32, "of the host"),
        Member("mac", Kind.U8, "of the device", 6),
        Member("port", Kind.BE16, "UDP, of the socket that is woken"),
        Member(
            "at_place",
            Kind.U16,
            "whether the host is a place of any tree: results are for that, too",
        ),
        Member("pad", Kind.U16),
    ),
)

RECORDS = (
    *(PORT, ENTRY_KEY, ENTRY, SLOT, ROUTE_KEY, ROUTE, GROUP_WAY, CIRCUIT, GLIMPSE),
    *(TIMETABLE, UNIT_SET, MEETING_KEY, MEETING, CROSSINGS, FLOW, COPY, PULLER_KEY, PULLER),
)
