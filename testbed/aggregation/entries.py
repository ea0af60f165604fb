"""The entry of a job's tree at one place, and the sender that a host's port admits. Pure data, the same for
every data plane.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NO_IP = "0.0.0.0"


class Role(Enum):
    """The destination of a place's completed sums."""

    TOP = "top"  # to the workers: the sum is the result
    INNER = "inner"  # to its parent place
    TRANSIT = "transit"  # nowhere: it does not sum, and results only pass through


@dataclass(frozen=True, slots=True)
class Entry:
    """One tree of a job at one place; the fields are those of `struct entry` of the data planes.

    A contributor is a worker, named by its rank, or a place, named by the lowest rank that it sums. At one
    place these numbers differ, because each worker is in a tree once.
    """

    tree: int
    generation: int
    workers: int  # bitmap of the ranks that push here
    places: int  # bitmap of the numbers of the places that send their sums here
    number: int  # this place's number in its partial sums
    base: int  # MemID
    size: int
    up_base: int  # MemID at the parent; 0 at the top
    result_base: int  # MemID at the top, from which the slots of results are counted
    self_ip: str
    up_ip: str  # the parent's address; NO_IP at the top
    group_ip: str  # the address of results; NO_IP: each copy has a member's own address
    lanes: int  # in every packet of the tree
    program: str = "sum"
    terms: object | None = None  # that program's data on the tree here (Grant.terms)
    owner_ip: str = NO_IP  # at the top, of the tree's owner, if it has one: sums and beats go there
    asks: bool = False  # whether its workers ask which fragments a place has

    @property
    def members(self) -> int:
        """The bitmap of all contributors."""
        return self.workers | self.places

    @property
    def to_ip(self) -> str:
        """Return the destination address of sums made here, unless they are results."""
        return self.owner_ip if self.up_ip == NO_IP else self.up_ip

    @property
    def is_relayed(self) -> bool:
        """Return whether results leave as copies, each with a member's own address, rather than to a
        group.
        """
        return self.group_ip == NO_IP

    @property
    def role(self) -> Role:
        """The place's role in the tree."""
        if not self.members:
            return Role.TRANSIT
        return Role.TOP if self.up_ip == NO_IP else Role.INNER


@dataclass(frozen=True, slots=True)
class Tick:
    """A request to a place: the sum of a fragment has waited for `age_ms`. `slot` is in the place's
    numbering. `generation` is the job's when the tick was made: a place with an entry of another generation
    drops the tick. A system's program may also drop it if another number of `sources` contributed; 0: any
    number.
    """

    job: int
    generation: int
    tree: int
    slot: int
    fragment: int
    age_ms: int
    sources: int = 0


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender that a host's port admits: a job's worker by rank (None: no worker), and whether the host is
    a place of the job.
    """

    job: int
    worker: int | None
    is_place: bool = False
    relays: bool = False  # whether this place sends copies of results to its members' own addresses
    is_owner: bool = False  # whether the host is the owner of the job's tree
