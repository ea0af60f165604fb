"""Admission for Trio-ML's data-plane program: a tree is summed in block records, which a place has in a
table, and which may age out (docs/trio.md). Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from testbed.aggregation.forest import Forest, Tree
from testbed.aggregation.packets import Packets
from testbed.aggregation.program import (
    REFERENCE,
    At,
    Capacity,
    Clock,
    Findings,
    Grant,
    PlacePool,
)
from testbed.aggregation.system import Layout
from testbed.errors import RequestError
from testbed.systems.trio.absences import Absences
from testbed.systems.trio.contract import (
    BLOCK,
    BUCKET,
    BUCKET_RECORD,
    JOB_RECORD,
    KEPT_WINDOWS,
    LEAVING_WINDOWS,
    LOOK_TIMEOUTS,
    P4_RECORDS,
    P4_WINDOW,
    VOTE_WINDOW,
    buckets_for,
)
from testbed.systems.trio.counts import BlocksStatus
from testbed.systems.trio.leaving import Departure, Leaving
from testbed.systems.trio.options import USUAL_WINDOW, BlockChoices
from testbed.systems.trio.parts import BLOCKS, CountedBlocks, LeavingBlocks, TimedBlocks
from testbed.systems.trio.shares import Shares
from testbed.systems.trio.terms import BlockTerms
from testbed.topology import addresses
from testbed.topology.places import Place
from testbed.topology.units import Unit
from testbed.wire import spec
from testbed.wire.recovery import Recovery
from testbed.wire.votes import SPARE_BITS

_ROWS = {"bmv2": P4_RECORDS}
"""Block records of a place, for engines whose jobs have contiguous rows of their own; on other engines they
are a hash table.
"""
_GOES_ON = {"xdp"}
"""The engines whose places can sum blocks without absent sources."""


@dataclass(slots=True)
class BlockGrant(Grant):
    """A job's grant: the window of each worker, of vectors and of votes (the most blocks that it has under
    way); how long a block waits for a source (0: forever); and after how many events a source leaves (None:
    never).
    """

    windows: tuple[int, int]
    age_out_ms: float
    leave_after: int | None
    _leaving: list[Leaving] = field(default_factory=list)
    _absences: Absences = field(default_factory=Absences, compare=False)

    @property
    def kept(self) -> tuple[int, int]:
        """The number of results of vectors, and of votes, that are kept."""
        return kept_for(self.windows, self.leave_after)

    @property
    def vote_slots(self) -> int:
        return self.kept[1]

    @property
    def takes_empties(self) -> bool:
        return False

    def endpoint(self) -> dict[str, int]:
        window, vote_window = self.windows
        spare_bits = SPARE_BITS if self.age_out_ms else 0
        return {"window": window, "vote_window": vote_window, "spare_bits": spare_bits}

    def terms(self, tree: Tree, place: Place) -> BlockTerms:
        """Return the terms of a tree at a place. A place waits half a timeout longer than those below it, so
        that their sums arrive before; the distance by which ticks may be ahead of a source is divided among
        the levels.
        """
        heights = tree.top.heights()
        levels = max(heights.values())
        data, votes = self.windows
        ahead = (KEPT_WINDOWS + levels - 1) * data // levels, (KEPT_WINDOWS + levels - 1) * votes // levels
        age_out_ms = self.age_out_ms * (heights[place] + 1) / 2
        return BlockTerms(2 * data, self.windows, self.kept, ahead, age_out_ms)

    def counts(self, job: int, forest: Forest, at: At) -> BlocksStatus:
        """Sum the block counts over the places of a job's trees."""
        made = active = 0
        missed: Counter[str] = Counter()
        for number, tree in enumerate(forest.trees):
            for node in tree.top.nodes():
                part = at(node.place).part(BLOCKS)
                counts = part.counts(job, number) if isinstance(part, CountedBlocks) else None
                if counts is None:
                    continue
                made += counts.made if node is tree.top else 0
                active += counts.active
                below = {child.number: str(child.place) for child in node.below}
                for source, count in counts.missed.items():
                    missed[below.get(source, str(source))] += count
        return BlocksStatus(made, active, dict(sorted(missed.items())), self._absences.status())

    def failure(self, forest: Forest, at: At) -> str | None:
        """Return why blocks no longer age out, if a place's timers stopped."""
        why = None
        for place in forest.places if self.age_out_ms else ():
            part = at(place).part(BLOCKS)
            if isinstance(part, TimedBlocks) and (failure := part.failure()):
                why = f"its blocks age out no more: {place}: {failure}"
        return why

    @property
    def looks(self) -> bool:
        return self.leave_after is not None

    def look_every_s(self, forest: Forest) -> float:
        """Return the interval of checks: LOOK_TIMEOUTS timeouts of the place that waits longest. A block that
        constantly waits for a source is ticked within 8 timeouts.
        """
        levels = max(max(tree.top.heights().values()) for tree in forest.trees)
        return LOOK_TIMEOUTS * self.age_out_ms * (levels + 1) / 2 / 1e3

    def look(self, job: int, forest: Forest, at: At, clock: Clock) -> Findings:
        """Remove permanent stragglers, and return the sources that left or returned."""
        if not self.leave_after:
            return Findings()
        if not self._leaving:
            self._leaving = [Leaving(tree.top, self.leave_after, self.windows) for tree in forest.trees]
        departures: list[Departure] = []
        for number, tree in enumerate(self._leaving):
            parts = {node.place: at(node.place).part(BLOCKS) for node in tree.top.nodes()}
            able = {place: part for place, part in parts.items() if isinstance(part, LeavingBlocks)}
            seen = {place: part.standing(job, number) for place, part in able.items()}
            orders, those = tree.look({place: each for place, each in seen.items() if each})
            departures += those
            for (place, source), reached in orders.heard.items():
                able[place].hear(job, number, source, reached)
            for place, floors in orders.floors.items():
                able[place].rise(job, number, floors)
            for place, sources in orders.leave.items():
                able[place].leave(job, number, sources)
        return Findings(self._absences.add(departures, clock()), frozenset(self._absences.out()))


class BlockProgram:
    """The program for trees with block records of their own."""

    name, shares = BLOCKS, "block records"
    sources = MappingProxyType({"xdp": Path("systems/blocks.h"), "bmv2": Path("systems/blocks.p4")})
    parts = MappingProxyType(
        {
            "xdp": "testbed.systems.trio.xdp.table:BlockTable",
            "bmv2": "testbed.systems.trio.bmv2.blocks:SwitchBlocks",
            REFERENCE: "testbed.systems.trio.reference:ReferenceBlocks",
        }
    )
    maps = MappingProxyType(
        {"job_records": JOB_RECORD, "buckets_template": BUCKET_RECORD, "blocks_template": BLOCK}
    )

    def check(self, layout: Layout, packets: Packets, engines: Mapping[Unit, str]) -> None:
        """Raise RequestError for integrity recovery, since places answer no questions about block records;
        and for --leave-after where no place can proceed without a worker.
        """
        if packets.recovery is Recovery.INTEGRITY:
            raise RequestError(
                f"--recovery {packets.recovery}: {layout.system} sums by block records, and places answer no "
                f"questions about these; {Recovery.WINDOW} is accepted"
            )
        choices = BlockChoices.of(replace(packets, usual=layout.usual_options))
        if choices.leave_after is not None:
            check_leaving(layout, choices, engines)

    def grant(
        self, job: int, forest: Forest, packets: Packets, capacity: Capacity, size: int | None
    ) -> Grant:
        """Grant windows, by default so small that other jobs have room. RequestError if a table has no room
        for the requested window, or if a block would age out before its result can arrive.
        """
        choices = BlockChoices.of(packets)
        lanes = spec.lanes_for(capacity.topology.mtu)
        buckets = buckets_for(lanes, capacity.topology.inc.blocks)
        records, usual = BUCKET * buckets, min(USUAL_WINDOW, buckets // (KEPT_WINDOWS + 1))
        engines = {capacity.topology.engines[place.unit] for place in forest.places if place.is_switch}
        if rows := [_ROWS[engine] for engine in engines if engine in _ROWS]:
            records, usual = min(rows), P4_WINDOW
        kept = LEAVING_WINDOWS[0] if choices.leave_after else KEPT_WINDOWS
        most = records // (kept + 1) // 2
        if choices.window is not None and choices.window > most:
            raise RequestError(
                f"job {job}: a window of {choices.window} blocks; 1 to {most} are accepted, as a place has "
                f"{records} block records, and results are kept for {kept} windows"
            )
        slowest_mbps = capacity.slowest_mbps(forest)
        if choices.age_out_ms and slowest_mbps:
            frame_bits = 8 * (spec.FRAME_HEADERS_BYTES + spec.HEADER_BYTES + 4 * (packets.lanes or lanes))
            least_ms = 2 * frame_bits / slowest_mbps / 1e3
            if choices.age_out_ms < least_ms:
                raise RequestError(
                    f"--age-out {choices.age_out_ms:g}: a packet and its result alone take {least_ms:.3g} ms "
                    f"on a link of {slowest_mbps:g} Mb/s; more is accepted"
                )
        windows = max(1, (choices.window or usual) // len(forest.trees)), VOTE_WINDOW
        slots = sum(kept_for(windows, choices.leave_after))
        return BlockGrant(slots, windows, choices.age_out_ms or 0.0, choices.leave_after)

    def grants_of_groups(self, grant: Grant, trees: int) -> Sequence[Grant]:
        """Return the job's own grant: any tree may use the records."""
        assert isinstance(grant, BlockGrant)
        return [BlockGrant(grant.size, grant.windows, grant.age_out_ms, grant.leave_after)]

    def pool(self, capacity: Capacity, slots: int) -> PlacePool:
        return Shares(buckets_for(spec.lanes_for(capacity.topology.mtu), capacity.topology.inc.blocks))


def kept_for(windows: tuple[int, int], leave_after: int | None) -> tuple[int, int]:
    """Return how many results of vectors and of votes are kept, by their windows; more if workers may leave,
    since a returning worker reads there what it missed.
    """
    data, votes = LEAVING_WINDOWS if leave_after else (KEPT_WINDOWS, KEPT_WINDOWS)
    return data * windows[0], votes * windows[1]


def check_leaving(layout: Layout, choices: BlockChoices, engines: Mapping[Unit, str]) -> None:
    """Raise RequestError if nothing would detect that a worker is absent, or if a place cannot proceed
    without one.
    """
    assert layout.forest
    option = f"--leave-after {choices.leave_after}"
    if not choices.age_out_ms:
        raise RequestError(f"{option}: sums wait for every worker as long as it takes, by --age-out 0")
    if len(layout.workers) < 2:
        raise RequestError(f"{option}: the job has one worker, and nobody to go on without it")
    for unit in sorted({place.unit for place in layout.forest.places}):
        if engines[unit] not in _GOES_ON:
            raise RequestError(
                f"{option}: {addresses.unit_name(unit)} has engine: {engines[unit]}, whose blocks wait for "
                "every worker, or age out"
            )
