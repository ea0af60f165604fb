"""The rows of the microbenchmarks: sums, copies and round trips. Pure.

A field that is UNSET does not apply to the case, or to the figure; None is a rate or share that was not
limited.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from testbed.messages.coding import UNSET, Number, UnsetType

T = TypeVar("T")
WAITED = 0.05
"""Share of a window, or of a packet's time, for which the head was ready to run without a core. Above it,
other processes distort the number.
"""


def known(value: T | UnsetType | None) -> T | None:
    """Return a value, None if it is UNSET."""
    return None if isinstance(value, UnsetType) else value


@dataclass(frozen=True, slots=True)
class RoundsVerdict:
    """Whether the median of a measurement's rounds is trustworthy."""

    trustworthy: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroRow:
    """A measurement in a round, or the medians of its rounds. `run`: its number in the report, or those of
    its rounds; UNSET until the report is complete. `shared`: hosts share the head's cores. `waited`: the
    share of time for which the head was ready to run without a core.
    """

    run: int | Sequence[int] | UnsetType = UNSET
    if TYPE_CHECKING:

        @property
        def case(self) -> str: ...
        @property
        def loss(self) -> Number: ...
        @property
        def shared(self) -> bool: ...
        @property
        def waited(self) -> Number: ...
        @property
        def verdict(self) -> RoundsVerdict | UnsetType: ...

    @property
    def key(self) -> Hashable:
        """Return what identifies a measurement across rounds."""
        raise NotImplementedError

    @property
    def is_trusted(self) -> bool:
        return not isinstance(self.verdict, UnsetType) and self.verdict.trustworthy

    @property
    def is_undisturbed(self) -> bool:
        """Return whether no other process used the head's cores during this measurement."""
        return self.waited <= WAITED and not self.shared


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow(MicroRow):
    """A case's throughput in a window of `seconds`, and the CPU time that the head used. `load`: the share of
    the head's cores in use; `gbps`: of gradients; `gbps_per_core`: Gb per CPU second.
    """

    cores: int
    shared: bool
    seconds: Number
    cpu_s: Number
    load: Number
    waited: Number
    gbps: Number
    gbps_per_core: Number
    case: str
    if TYPE_CHECKING:

        @property
        def lanes(self) -> int | UnsetType: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SumRow(CostRow):
    """A measurement of sums. With XDP: the gradients of a packet (`lanes`), the program, the asked packets a
    second and what became of the packets (`counts`). With TCP: the asked Gb/s, and the share of the head's
    CPU time that its processes used. `per_s`: packets. `target_gbps` is of table 2, `offered` of figure 6: a
    share of the highest rate.
    """

    lanes: int | UnsetType = UNSET
    program: str | UnsetType = UNSET
    asked_per_s: Number | UnsetType | None = UNSET
    asked_gbps: Number | UnsetType | None = UNSET
    per_s: Number = 0.0
    ns_per_packet: Number | None = None
    process_share: Number | UnsetType = UNSET
    loss: Number = 0.0
    counts: Mapping[str, int] | UnsetType = UNSET
    target_gbps: Number | UnsetType | None = UNSET
    offered: Number | UnsetType | None = UNSET
    round: int | UnsetType = UNSET
    verdict: RoundsVerdict | UnsetType = UNSET

    @property
    def key(self) -> Hashable:
        offered, target = known(self.offered), known(self.target_gbps)
        rate = None if offered is not None or target else known(self.asked_per_s)
        return self.case, self.lanes, self.cores, self.program, offered, target, rate


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRow(CostRow):
    """A measurement of copies, with fields as in `SumRow`. `offered`: a share of the highest rate."""

    lanes: int | UnsetType = UNSET
    per_s: Number | UnsetType = UNSET
    asked_per_s: Number | UnsetType | None = UNSET
    asked_gbps: Number | UnsetType | None = UNSET
    loss: Number = 0.0
    counts: Mapping[str, int] | UnsetType = UNSET
    offered: Number | UnsetType | None = UNSET
    round: int | UnsetType = UNSET
    verdict: RoundsVerdict | UnsetType = UNSET

    @property
    def key(self) -> Hashable:
        offered = known(self.offered)
        rate = known(self.asked_per_s) if offered is None else None
        return self.case, self.lanes, self.cores, offered, rate


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTripRow(MicroRow):
    """The times of packets there and back, at `asked_per_s` packets a second. None: no packet came back."""

    case: str
    asked_per_s: Number | None
    per_s: Number
    sent: int
    answered: int
    loss: Number
    shared: bool
    waited: Number
    mean_us: Number | None
    median_us: Number | None
    p99_us: Number | None
    round: int | UnsetType = UNSET
    verdict: RoundsVerdict | UnsetType = UNSET

    @property
    def key(self) -> Hashable:
        return self.case, self.asked_per_s


AnyRow = TypeVar("AnyRow", SumRow, CopyRow, RoundTripRow)
AnyCost = TypeVar("AnyCost", SumRow, CopyRow)
