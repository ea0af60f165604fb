"""What a place that sums knows: its ports, jobs and slots; and what the fabric around it knows: routes,
circuits, pullers.

The records are the values of the XDP programs' maps (bpf/maps.h says who writes and reads each); the numbers
in them, and the job's entry, are the P4 program's, too.
"""

from __future__ import annotations

from testbed.contract.numbers import Choice, Number
from testbed.contract.records import Kind, Lanes, Member, Record, members
from testbed.contract.spec import Field

U32, U64, BE32 = Kind.U32, Kind.U64, Kind.BE32


class Port(Choice):
    """Who sits behind a switch's port."""

    FABRIC = 0, "optical, another switch: what comes was checked where it entered"
    HOST = 1, "of a host that takes part in no job"
    WORKER = 2
    PS = 3


class SlotState(Choice):
    """What a slot is."""

    EMPTY = 0
    FILLING = 1
    PARTIAL = 2, "all local contributions are in"
    FINAL = 3, "the lanes hold the result"


class Role(Choice):
    """What a job's sum made here is; the slot of a complete sum is in the state of the same number."""

    NONE = 0, "an entry that is not in use"
    TRANSIT = 1, "nothing is summed here: results pass through"
    PARTIAL = int(SlotState.PARTIAL), "to be sent to the PS"
    FINAL = int(SlotState.FINAL), "the result"


SLOTS = 1024  # of a switch or PS host

SIZES: tuple[Number, ...] = (
    Number("MAX_PORTS", 8192, 32),
    Number("MAX_JOBS", 4096, 32),
    Number("MAX_SLOTS", SLOTS, 32, "of one switch or PS host"),
    Number("MAX_AGGREGATORS", 1024, 32),
    Number("MAX_GROUPS", 1024, 32),
    Number("MAX_ROUTES", 32768, 32),
    Number("MAX_OPTICAL_PORTS", 16384, 32),
    Number("MAX_HOSTS", 4096, 32),
    Number("MAX_FAULTS", 4096, 32),
)
"""Of the XDP programs' maps."""

PORT = Record(
    "port",
    (
        Member("owner", U32, "unit of a ToR port, 0 for a port of the optical switch"),
        Member("number", U32, "port number at the optical switch"),
        Member("self_ip", BE32, "address of the ToR"),
        Member("kind", U32, "PORT_*"),
        Member("job", U32, "of the worker or PS at a host's port"),
        Member("worker", U32, "its number"),
        Member("index", U32, "the job's entry in jobs, for this ToR"),
        Member("pad", U32),
    ),
)

JOB_KEY = Record(
    "job_key", (Member("owner", U32, "unit of the ToR, or ifindex of the PS host's eth0"), Member("job", U32))
)

JOB = Record(
    "job",
    (
        Member("members", U64, "bitmap of the contributors expected here"),
        Member("id", U32),
        Member("generation", U32),
        Member("role", U32, "ROLE_*"),
        Member("aggregator", U32, "index into slots"),
        Member("base", U32, "MemID: first slot of the segment"),
        Member("size", U32, "Size: slots in the segment"),
        Member("group", U32, "index into groups: where results go"),
        Member("total", U32, "contributors in the final sum"),
        Member("local", U32, "contributors in the sum made here"),
        Member("unit", U32, "this unit's index in the job: the worker field of its partial sums"),
        Member("up_base", U32, "MemID of the job's segment at the PS"),
        Member("self_ip", BE32),
        Member("up_ip", BE32, "the PS"),
        Member("group_ip", BE32, "destination of results"),
    ),
    "A job as one switch or PS host knows it.",
)

P4_JOB: tuple[Field, ...] = (
    Field("members", 64, "bitmap of the workers expected here"),
    Field("generation", 32, ""),
    Field("role", 8, "ROLE_*"),
    Field("base", 32, "MemID"),
    Field("size", 32, "Size"),
    Field("total", 16, "workers of the job"),
    Field("local", 16, "workers summed here"),
    Field("index", 16, "of this unit in the job"),
    Field("result_base", 32, "MemID where the results are made"),
    Field("self_ip", 32, ""),
    Field("up_ip", 32, "of the PS"),
    Field("group_ip", 32, ""),
    Field("group", 16, "multicast group"),
)
"""The same for the P4 program: the parameters of its action `set_job`, in this order."""

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
        Member("count", U32),
        Member("marked", U32, "whether a contribution came with congestion experienced (RFC 3168)"),
        Member("pad", U32),
        Member(
            "pairs", U64, "two lanes each, the first in the upper half; one addition sums both", Lanes(per=2)
        ),
    ),
)

ROUTE_KEY = Record(
    "route_key",
    (
        Member("owner", U32, "unit of the ToR"),
        Member("ip", BE32, "network part"),
        Member("prefix", U32, "32 or 24"),
    ),
)

ROUTE = Record(
    "route",
    (
        Member("ifindex", U32),
        Member("mac", Kind.U8, "new destination; all zero: leave it", 6),
        Member("pad", Kind.U16),
    ),
)

CIRCUIT = Record(
    "circuit",
    (
        Member("lit_at_ns", U64, "CLOCK_MONOTONIC; frames that arrive earlier are lost"),
        Member("peer", U32, "port number, 0: no circuit"),
        Member("ifindex", U32, "of the peer"),
    ),
)

PULLER = Record(
    "puller",
    (
        Member("job", U32),
        Member("generation", U32),
        Member("ring", U32, "index into rings and wakes"),
        Member("base", U32, "first slot, as results name it"),
        Member("size", U32, "slots"),
        Member("ip", BE32, "of the host"),
        Member("mac", Kind.U8, count=6),
        Member("pad", Kind.U16),
    ),
)

FAULT_KEY = Record("fault_key", members(U32, "ifindex", "fragment"))

RECORDS = (PORT, JOB_KEY, JOB, SLOT, ROUTE_KEY, ROUTE, CIRCUIT, PULLER, FAULT_KEY)
