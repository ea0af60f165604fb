"""A tree of a job as one place that sums for it knows it, and who may send by a host's port. Pure data, the
same for every data plane.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NO_IP = "0.0.0.0"


class Role(Enum):
    """The way that a sum made at a place goes."""

    TOP = "top"  # it is the result
    INNER = "inner"  # it goes to the place above
    TRANSIT = "transit"  # nothing is summed here: results pass through


@dataclass(frozen=True, slots=True)
class Entry:
    """One tree of a job at one place; the fields are those of `struct entry` of the data planes.

    A contributor is a worker, named by its rank, or a place, named by the lowest rank that it sums: at one
    place these numbers differ, since each worker is in a tree once.
    """

    tree: int
    generation: int
    workers: int  # bitmap of the ranks that push here
    places: int  # bitmap of the numbers of the places whose sums come here
    number: int  # of this place, in its partial sums
    base: int  # MemID
    size: int
    up_base: int  # MemID at the place above; 0 at the top
    result_base: int  # MemID at the top: where the slots of results are counted from
    self_ip: str
    up_ip: str  # of the place above; NO_IP at the top
    group_ip: str  # where results are addressed to; NO_IP: each copy to a member's own address
    lanes: int  # of every packet of the tree
    program: str = "sum"
    terms: object | None = None  # what that program says of the tree here (Grant.terms)
    owner_ip: str = NO_IP  # of an owned tree, at its top: of the owner, whom sums and beats go to
    asks: bool = False  # whether its workers ask which fragments there are

    @property
    def members(self) -> int:
        """Bitmap of all contributors."""
        return self.workers | self.places

    @property
    def to_ip(self) -> str:
        """Return the address that sums made here go to, where they are no results."""
        return self.owner_ip if self.up_ip == NO_IP else self.up_ip

    @property
    def is_relayed(self) -> bool:
        """Say whether results leave as copies, each with a member's own address, and not to a group."""
        return self.group_ip == NO_IP

    @property
    def role(self) -> Role:
        if not self.members:
            return Role.TRANSIT
        return Role.TOP if self.up_ip == NO_IP else Role.INNER


@dataclass(frozen=True, slots=True)
class Tick:
    """A word to a place that the sum of a fragment has waited for `age_ms`. `slot` is as the place counts
    slots; `generation` is the job's when the tick was made: a place whose entry is of another drops it.
    A place that sums by blocks drops it, too, where another number of `sources` came; 0: whichever did.
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
    """The one who runs at a host's port: a worker of a job (or None), and whether the host is a place of the
    job's.
    """

    job: int
    worker: int | None
    is_place: bool = False
    relays: bool = False  # whether that place sends copies of results to its members' own addresses
    is_owner: bool = False  # whether the host is the owner of the job's tree
