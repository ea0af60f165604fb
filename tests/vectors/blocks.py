"""Vectors of jobs that a switch sums by block records: when a record is made, which sources it waits for, how
long its result is kept, and what a tick may do (docs/trio.md).
"""

from __future__ import annotations

from typing import Any

from testbed.aggregation.entries import NO_IP, Entry
from testbed.reference_model.output_ports import To
from testbed.systems.trio.contract import BUCKET, P4_SOURCES
from testbed.systems.trio.terms import BlockTerms
from testbed.topology.addresses import CONTROL_PORT
from testbed.wire import spec
from testbed.wire.mapping import FIRST_VOTE
from tests.vectors.build import (
    GENERATION,
    GROUP_IP,
    JOB,
    OPTICAL,
    PS_IP,
    TOR_IP,
    Admit,
    Leave,
    Leaves,
    Table,
    Vector,
    lanes,
    notice,
    packet,
    partial,
    partial_sum,
    push,
    result,
    result_from_ps,
    sum_of,
    tick,
    unchanged,
    vector,
    worker_lanes,
    workers_at_ports,
)
from tests.vectors.ticks import NOBODYS, leaving_out

TABLE: Table = {}
entry = vector(TABLE)
KEPT, VOTES, CAP = 16, 4, 8
WINDOW = KEPT // 2
SLOTS = KEPT + VOTES
DEGRADED = int(spec.Flag.DEGRADED)
LACKING = int(spec.Flag.FINAL | spec.Flag.DEGRADED)


def terms(**changes: Any) -> BlockTerms:
    return BlockTerms(
        **{
            "cap": CAP,
            "window": (WINDOW, VOTES // 2),
            "kept": (KEPT, VOTES),
            "ahead": (KEPT, VOTES),
            **changes,
        }
    )


def job(count: int, **changes: Any) -> Entry:
    """Return the entry of a switch at the top of a tree of workers 0, 1, ..., summed by blocks."""
    fields: dict[str, Any] = {
        "tree": 0,
        "generation": GENERATION,
        "workers": (1 << count) - 1,
        "places": 0,
        "number": 0,
        "base": 0,
        "size": SLOTS,
        "up_base": 0,
        "result_base": 0,
        "self_ip": TOR_IP,
        "up_ip": NO_IP,
        "group_ip": GROUP_IP,
        "lanes": spec.LANES,
        "program": "blocks",
        "terms": terms(),
        **changes,
    }
    return Entry(**fields)


def across(**changes: Any) -> Entry:
    """Return the entry of a switch with workers 1 and 3, below a place of another unit, summed by blocks."""
    return job(0, **{"workers": 0b01010, "number": 1, "up_ip": PS_IP, **changes})


class Scene:
    """A vector each of whose packets names the slot in which workers keep the result of its block."""

    def __init__(self, v: Vector, count: int = 3, **changes: Any) -> None:
        self._v = v
        v.senders |= workers_at_ports(range(count))
        v.admit(job(count, **changes))

    def push(self, worker: int, block: int, verdict: str, *leaves: Leaves, **changes: Any) -> None:
        self._v.push(worker, block, verdict, *leaves, **at(block), **changes)

    def tick(self, block: int, verdict: str, *leaves: Leaves, **changes: Any) -> None:
        self._v.tick(block, verdict, *leaves, **{**at(block), **changes})

    def whole(self, block: int, workers: tuple[int, ...] = (0, 1, 2)) -> None:
        """Push a block from all workers; the last push completes it."""
        for worker in workers[:-1]:
            self.push(worker, block, "aggregated")
        summed = sum_of(block, *workers)
        self.push(workers[-1], block, "completed", result(block, summed, len(workers), **at(block)))

    def again(self, block: int, workers: tuple[int, ...], **changes: Any) -> Leaves:
        """Return the expected repetition of a block's result, to the worker that pushed again."""
        return result(block, sum_of(block, *workers), len(workers), To.BACK, **{**at(block), **changes})


def at(block: int) -> dict[str, Any]:
    is_vote = block >= FIRST_VOTE
    return {"slot": KEPT + block % VOTES if is_vote else block % KEPT}


@entry
def a_block_record_is_made_by_the_first_packet(v: Vector) -> None:
    s = Scene(v)
    s.push(2, 5, "aggregated")
    s.push(2, 5, "duplicate")
    s.push(0, 5, "aggregated")
    s.push(1, 5, "completed", result(5, sum_of(5, 0, 1, 2), 3, **at(5)))
    for worker in (0, 1, 2):
        s.push(worker, 5, "resent", s.again(5, (0, 1, 2)))
    s.push(0, 5, "resent", s.again(5, (0, 1, 2)), data=lanes(99))


@entry
def blocks_are_under_way_in_any_order(v: Vector) -> None:
    s = Scene(v)
    order = [block * 3 % WINDOW for block in range(WINDOW)]
    for block in order:
        s.push(1, block, "aggregated")
    for block in reversed(order):
        s.push(0, block, "aggregated")
    for block in order:
        s.push(2, block, "completed", result(block, sum_of(block, 0, 1, 2), 3, **at(block)))
    for block in order:
        s.push(1, block, "resent", s.again(block, (0, 1, 2)))


@entry
def a_result_is_kept_until_nobody_can_need_it(v: Vector) -> None:
    s = Scene(v)
    for block in range(WINDOW):
        s.whole(block)
    s.push(1, 0, "resent", s.again(0, (0, 1, 2)))
    s.whole(WINDOW)  # a worker that pushes this has the result of block 0
    s.push(1, 0, "stale")
    s.push(1, 1, "resent", s.again(1, (0, 1, 2)))
    last = KEPT + WINDOW
    s.push(0, last + 1, "bad_slot")  # beyond every window
    s.push(0, last, "aggregated")
    s.push(1, last, "aggregated")
    s.push(2, last, "completed", result(last, sum_of(last, 0, 1, 2), 3, **at(last)))
    s.push(1, 1, "stale")


@entry
def an_older_block_that_is_completed_takes_nobodys_results_back(v: Vector) -> None:
    s = Scene(v)
    s.whole(2 * WINDOW)  # a worker that pushes this has the results of all blocks before WINDOW + 1
    s.whole(WINDOW + 1)
    s.push(0, WINDOW, "stale")
    s.push(0, WINDOW + 2, "aggregated")


@entry
def a_job_has_no_more_active_blocks_than_its_cap(v: Vector) -> None:
    s = Scene(v)
    for block in range(1, CAP + 1):
        s.push(0, block, "aggregated")
    s.push(0, CAP + 1, "capped", notice(0, CAP + 1, "10.0.1.1", **at(CAP + 1)))
    s.push(1, CAP + 1, "capped", notice(1, CAP + 1, "10.0.1.2", **at(CAP + 1)))
    s.push(0, 0, "aggregated")  # at the floor, which all wait for: within the cap
    s.push(1, 0, "aggregated")
    s.push(2, 0, "completed", result(0, sum_of(0, 0, 1, 2), 3, **at(0)))
    s.push(0, CAP + 1, "capped", notice(0, CAP + 1, "10.0.1.1", **at(CAP + 1)))
    s.push(1, 1, "aggregated")
    s.push(2, 1, "completed", result(1, sum_of(1, 0, 1, 2), 3, **at(1)))
    s.push(0, CAP + 1, "aggregated")
    s.push(0, CAP + 2, "capped", notice(0, CAP + 2, "10.0.1.1", **at(CAP + 2)))


@entry
def a_worker_that_leaves_its_values_out_of_a_block_is_no_contributor(v: Vector) -> None:
    s = Scene(v)
    out = leaving_out()
    s.push(1, 2, "aggregated", **out)
    s.push(1, 2, "duplicate", **out)
    s.push(0, 2, "aggregated")
    s.push(2, 2, "completed", result(2, sum_of(2, 0, 2), 2, flags=LACKING, **at(2)))
    s.push(1, 2, "resent", s.again(2, (0, 2), flags=LACKING), **out)
    s.push(0, 3, "aggregated")
    s.push(2, 3, "aggregated", **out)
    s.tick(3, "ticked", result(3, worker_lanes(0, 3), 1, flags=LACKING, **at(3)), contributors=2)
    s.push(1, 3, "late", s.again(3, (0,), flags=LACKING))
    for worker in (0, 1):  # the floor may rise by one: all have block 2
        s.push(worker, 4, "aggregated", **out)
    s.push(2, 4, "completed", result(4, worker_lanes(2, 4), 1, flags=LACKING, **at(4)))


@entry
def a_place_passes_on_that_its_workers_left_a_block_out(v: Vector) -> None:
    v.senders |= workers_at_ports([1, 3])
    v.admit(across())
    out = leaving_out()
    v.push(1, 2, "aggregated", **at(2), **out)
    lacking: dict[str, Any] = {"flags": DEGRADED, **at(2)}
    v.push(3, 2, "completed", partial_sum(2, worker_lanes(3, 2), contributors=1, **lacking), **at(2))
    v.push(1, 3, "aggregated", **at(3), **out)
    nobodys = partial_sum(3, NOBODYS, contributors=0, **{**lacking, **at(3)})
    v.push(3, 3, "completed", nobodys, **at(3), **out)
    v.push(1, 4, "aggregated", **at(4), **out)
    ticked = partial_sum(4, NOBODYS, contributors=0, age=12, **{**lacking, **at(4)})
    v.tick(4, "ticked", ticked, age=12, contributors=1, **at(4))
    v.push(3, 4, "late", ticked, **at(4))


@entry
def a_tick_completes_a_block_that_has_nobodys_values(v: Vector) -> None:
    """The missing worker may never push."""
    s = Scene(v)
    out = leaving_out()
    s.push(1, 2, "aggregated", **out)
    s.push(2, 2, "aggregated", **out)
    s.tick(2, "tick_late", contributors=1)
    lacking: dict[str, Any] = {"flags": LACKING, "age": 11}
    s.tick(2, "ticked", result(2, NOBODYS, 0, **lacking, **at(2)), age=11, contributors=2)
    nobodys = result(2, NOBODYS, 0, To.BACK, **lacking, **at(2))
    s.push(1, 2, "resent", nobodys, **out)
    s.push(0, 2, "late", nobodys)
    for worker in (1, 2):
        s.push(worker, 3, "aggregated", **out)
    s.push(0, 3, "completed", result(3, worker_lanes(0, 3), 1, flags=LACKING, **at(3)))


@entry
def ticks_of_nobodys_values_overtake_no_source(v: Vector) -> None:
    s = Scene(v, 2)
    out = leaving_out()
    for block in range(KEPT):
        s.push(1, block, "aggregated", **out)
        s.tick(block, "ticked", result(block, NOBODYS, 0, flags=LACKING, **at(block)))
    s.push(1, KEPT, "aggregated", **out)
    s.tick(KEPT, "tick_early")
    s.push(0, WINDOW, "late", result(WINDOW, NOBODYS, 0, To.BACK, flags=LACKING, **at(WINDOW)))
    s.tick(KEPT, "ticked", result(KEPT, NOBODYS, 0, flags=LACKING, **at(KEPT)))


@entry
def a_tick_completes_a_block_that_its_sources_are_still_those_of(v: Vector) -> None:
    s = Scene(v)
    s.push(0, 2, "aggregated", count=7)
    s.tick(2, "tick_late", contributors=2)
    s.push(2, 2, "aggregated", count=9)
    s.tick(2, "tick_late", contributors=1)  # another worker has pushed since
    s.tick(3, "tick_late")
    lacking: dict[str, Any] = {"flags": LACKING, "age": 37, "count": 9}
    s.tick(2, "ticked", result(2, sum_of(2, 0, 2), 2, **lacking, **at(2)), age=37, contributors=2)
    s.tick(2, "tick_late", contributors=2)
    s.push(0, 2, "resent", s.again(2, (0, 2), **lacking))
    s.push(1, 2, "late", s.again(2, (0, 2), **lacking))
    s.push(1, 2, "late", s.again(2, (0, 2), **lacking), data=lanes(99))
    s.push(1, 3, "aggregated")
    s.tick(3, "ticked", result(3, worker_lanes(1, 3), 1, flags=LACKING, **at(3)))  # whoever pushed


@entry
def ticks_overtake_no_source(v: Vector) -> None:
    """Results are kept for KEPT blocks. A worker that has not pushed yet has no result, not even that
    of block 0.
    """
    s = Scene(v, 2)
    for block in range(KEPT):
        s.push(0, block, "aggregated")
        s.tick(block, "ticked", result(block, worker_lanes(0, block), 1, flags=LACKING, **at(block)))
    s.push(0, KEPT, "aggregated")
    s.tick(KEPT, "tick_early")
    s.push(1, WINDOW - 1, "late", s.again(WINDOW - 1, (0,), flags=LACKING))
    s.tick(KEPT, "tick_early")  # worker 1 may lack all results from a window before its push on
    s.push(1, WINDOW, "late", s.again(WINDOW, (0,), flags=LACKING))
    s.tick(KEPT, "ticked", result(KEPT, worker_lanes(0, KEPT), 1, flags=LACKING, **at(KEPT)))
    s.push(1, 0, "stale")  # worker 1 has the result of block 0
    s.push(1, 1, "late", s.again(1, (0,), flags=LACKING))
    s.push(0, KEPT + 1, "aggregated")
    s.tick(KEPT + 1, "tick_early")
    s.push(1, KEPT + 1, "completed", result(KEPT + 1, sum_of(KEPT + 1, 0, 1), 2, **at(KEPT + 1)))


@entry
def votes_are_blocks_of_their_own(v: Vector) -> None:
    s = Scene(v, 2)
    s.push(0, 0, "aggregated")
    for vote in range(FIRST_VOTE, FIRST_VOTE + VOTES):
        s.push(0, vote, "aggregated")
    s.push(1, 0, "completed", result(0, sum_of(0, 0, 1), 2, **at(0)))
    vote = FIRST_VOTE + VOTES - 1
    s.push(1, vote, "completed", result(vote, sum_of(vote, 0, 1), 2, **at(vote)))
    s.push(1, FIRST_VOTE + 1, "stale")
    s.push(1, FIRST_VOTE + 2, "completed", result(
        FIRST_VOTE + 2, sum_of(FIRST_VOTE + 2, 0, 1), 2, **at(FIRST_VOTE + 2)
    ))  # fmt: skip
    v.push(0, FIRST_VOTE, "bad_slot", slot=SLOTS)
    v.push(0, FIRST_VOTE + 40, "bad_slot", slot=KEPT)


@entry
def block_numbers_come_round(v: Vector) -> None:
    s = Scene(v, 2)
    steps = [KEPT] * 3
    block = 0
    for step in steps:
        block += step
        s.whole(block, (0, 1))
    s.push(0, block - WINDOW, "stale")
    s.push(0, (block - 2**31) % 2**32 + WINDOW, "bad_slot", **{})


@entry
def what_another_generation_left_is_anybodys(v: Vector) -> None:
    s = Scene(v)
    s.push(0, 2, "aggregated")
    s.push(1, 2, "aggregated")
    v.release()
    s.push(2, 2, "bad_job")
    v.admit(job(3, generation=GENERATION + 1))
    s.push(2, 2, "bad_generation")
    following: dict[str, Any] = {"generation": GENERATION + 1}
    s.push(2, 2, "aggregated", **following)
    s.push(0, 2, "aggregated", **following)
    s.push(1, 2, "completed", result(2, sum_of(2, 0, 1, 2), 3, **following, **at(2)), **following)


@entry
def records_of_jobs_that_are_gone_are_used_again(v: Vector) -> None:
    """Make one record more than a bucket holds, all of the same block number and so in the same bucket."""
    s = Scene(v)
    for generation in range(GENERATION, GENERATION + BUCKET + 1):
        if generation != GENERATION:
            v.admit(job(3, generation=generation))
        for worker in (0, 1):
            s.push(worker, 2, "aggregated", generation=generation)
        if generation < GENERATION + BUCKET:
            v.release()
    summed = result(2, sum_of(2, 0, 1, 2), 3, generation=generation, **at(2))
    s.push(2, 2, "completed", summed, generation=generation)


@entry
def jobs_share_a_table(v: Vector) -> None:
    s = Scene(v)
    v.senders |= {port + 10: workers_at_ports([port - 1], 8)[port] for port in (1, 2)}
    v.admit(job(2, generation=9), 8)
    other: dict[str, Any] = {"job": 8, "generation": 9}
    s.push(0, 2, "aggregated")
    v.push(0, 2, "aggregated", port=11, **other, **at(2))
    v.push(1, 2, "bad_sender", port=2, **other, **at(2))
    v.push(1, 2, "completed", result(2, sum_of(2, 0, 1), 2, **other, **at(2)), port=12, **other, **at(2))
    s.push(1, 2, "aggregated")
    v.release(8)
    s.push(2, 2, "completed", result(2, sum_of(2, 0, 1, 2), 3, **at(2)))
    v.push(1, 2, "bad_sender", port=2, **other, **at(2))


def sources_of_any_numbers(v: Vector, places: int, before: tuple[int, ...], wrong: tuple[int, ...]) -> None:
    """Sum a worker and places of any numbers; place 63 completes the block."""
    v.senders |= workers_at_ports([0])
    v.admit(job(1, places=places | 1 << 63))
    v.push(0, 2, "aggregated", **at(2))
    for position, number in enumerate(before):
        said = partial(number, 2, to_ip=TOR_IP, from_ip="10.0.4.254", **at(2))
        v.sees(said, OPTICAL[position % 2], "aggregated")
    v.sees(partial(before[0], 2, to_ip=TOR_IP, from_ip="10.0.4.254", **at(2)), OPTICAL[0], "duplicate")
    for number in wrong:
        v.sees(partial(number, 2, to_ip=TOR_IP, from_ip="10.0.4.254", **at(2)), OPTICAL[0], "bad_worker")
    last = partial(63, 2, to_ip=TOR_IP, from_ip="10.0.4.254", flags=DEGRADED, age=9, **at(2))
    final: dict[str, Any] = {"flags": LACKING, "age": 9}
    summed, contributors = sum_of(2, 0, 63, *before), 1 + 2 * (1 + len(before))
    v.sees(last, OPTICAL[0], "completed", result(2, summed, contributors, **final, **at(2)))


@entry
def a_place_has_up_to_64_sources_of_any_numbers(v: Vector) -> None:
    sources_of_any_numbers(v, 1 << 3 | 1 << 35 | 1 << 62, (62, 35, 3), (61, 64, 255, 300))


@entry
def a_place_has_up_to_256_sources(v: Vector) -> None:
    places = 1 << 3 | 1 << 35 | 1 << 63 | 1 << 64 | 1 << 255
    sources_of_any_numbers(v, places, (255, 64, 3, 35), (62, 65, 256, 300))


@entry
def blocks_in_the_middle_of_a_tree(v: Vector) -> None:
    v.senders |= workers_at_ports([1, 3])
    v.admit(across())
    v.push(3, 2, "aggregated", **at(2))
    sent = partial_sum(2, sum_of(2, 1, 3), **at(2))
    v.push(1, 2, "completed", sent, **at(2))
    v.push(1, 2, "resent", sent, **at(2))
    from_above = result_from_ps(2, lanes(9), **at(2))
    v.sees(from_above, OPTICAL[0], "result", unchanged(To.OTHERS))
    v.push(1, 2, "resent", result(2, lanes(9), 5, To.BACK, **at(2)), **at(2))
    v.push(3, 3, "aggregated", **at(3))
    lacking = partial_sum(3, worker_lanes(3, 3), flags=DEGRADED, contributors=1, age=12, **at(3))
    v.tick(3, "ticked", lacking, age=12, contributors=1, **at(3))
    v.push(1, 3, "late", lacking, **at(3))
    v.push(1, 4, "aggregated", **at(4))
    v.sees(result_from_ps(4, lanes(7), **at(4)), OPTICAL[0], "result", unchanged(To.OTHERS))
    # a whole result contains this place's sum, so it ends no incomplete block
    v.push(3, 4, "completed", partial_sum(4, sum_of(4, 1, 3), **at(4)), **at(4))
    v.sees(result_from_ps(3, lanes(8), to_ip="239.192.0.9", **at(3)), OPTICAL[0], "malformed")
    v.sees(result_from_ps(3, lanes(8), slot=SLOTS), OPTICAL[0], "bad_slot")


@entry
def a_result_is_kept_where_nobody_has_pushed(v: Vector) -> None:
    v.senders |= workers_at_ports([1, 3])
    v.admit(across())
    v.push(1, 3, "aggregated", **at(3))
    for block in (2, 3):
        fields: dict[str, Any] = {"flags": LACKING, "contributors": 4, "age": 15, **at(block)}
        v.sees(result_from_ps(block, lanes(block), **fields), OPTICAL[0], "result", unchanged(To.OTHERS))
        for worker in (1, 3):
            kept = result(block, lanes(block), 4, To.BACK, flags=LACKING, age=15, **at(block))
            v.push(worker, block, "resent" if (worker, block) == (1, 3) else "late", kept, **at(block))
        v.tick(block, "tick_late", **at(block))


@entry
def what_a_place_of_blocks_does_not_take(v: Vector) -> None:
    s = Scene(v)
    v.empty(0, 2, "malformed", **at(2))
    question = packet(spec.Op.QUESTION, 2, lanes(1), "10.0.1.1", TOR_IP, count=1, **at(2))
    v.sees(question.pack(), 1, "malformed")
    v.sees(result_from_ps(2, lanes(1), **at(2)), OPTICAL[0], "malformed")
    v.sees(push(1, 2, **at(2)), 1, "bad_sender")
    v.push(0, 2, "malformed", data=lanes(1)[:128], **at(2))
    v.push(0, 2, "bad_slot", slot=SLOTS)
    v.push(0, 2, "bad_slot", slot=2**32 - 1)
    v.push(5, 2, "bad_sender", port=1, **at(2))
    v.tick(2, "bad_slot", slot=SLOTS)
    v.sees(tick(2, **at(2)), 1, "bad_sender")
    v.sees(push(1, 2, **at(2)), CONTROL_PORT, "bad_sender")
    v.push(0, 2, "bad_job", job=JOB, tree=1, **at(2))
    s.whole(2)


@entry
def new_blocks_do_not_wait_for_a_source_that_left(v: Vector) -> None:
    s = Scene(v)
    s.push(0, 2, "aggregated")
    v.leave(2)
    s.push(1, 2, "aggregated")  # made before worker 2 left: it waits for all three
    s.push(2, 3, "late")  # a source that is out makes no block
    s.push(0, 3, "aggregated")
    s.push(2, 3, "late")
    s.push(1, 3, "completed", result(3, sum_of(3, 0, 1), 2, flags=LACKING, **at(3)))
    s.push(2, 3, "late", s.again(3, (0, 1), flags=LACKING))
    lacking: dict[str, Any] = {"flags": LACKING, "age": 11}
    s.tick(2, "ticked", result(2, sum_of(2, 0, 1), 2, **lacking, **at(2)), age=11, contributors=2)
    s.push(2, 2, "late", s.again(2, (0, 1), **lacking))
    s.push(0, 4, "aggregated")
    s.tick(4, "ticked", result(4, worker_lanes(0, 4), 1, flags=LACKING, **at(4)))
    s.push(1, 4, "late", s.again(4, (0,), flags=LACKING))


@entry
def blocks_of_nobodys_values_do_not_wait_for_a_source_that_left(v: Vector) -> None:
    s = Scene(v)
    out = leaving_out()
    s.push(0, 2, "aggregated", **out)
    v.leave(2)
    s.push(1, 2, "aggregated", **out)  # made before worker 2 left: it waits for all three
    s.tick(2, "ticked", result(2, NOBODYS, 0, flags=LACKING, **at(2)), contributors=2)
    s.push(0, 3, "aggregated", **out)
    s.push(1, 3, "completed", result(3, NOBODYS, 0, flags=LACKING, **at(3)), **out)
    s.push(2, 3, "late", result(3, NOBODYS, 0, To.BACK, flags=LACKING, **at(3)))


@entry
def a_source_that_left_can_still_add_to_what_waited_for_it(v: Vector) -> None:
    s = Scene(v)
    s.push(0, 2, "aggregated")
    v.leave(2)
    s.push(1, 2, "aggregated")
    s.push(2, 2, "completed", result(2, sum_of(2, 0, 1, 2), 3, **at(2)))
    s.push(0, 3, "aggregated")
    s.push(1, 3, "completed", result(3, sum_of(3, 0, 1), 2, flags=LACKING, **at(3)))


@entry
def results_are_kept_for_a_source_that_left(v: Vector) -> None:
    """They are kept for as many blocks as the source's ring has slots; then the other workers wait for it."""
    s = Scene(v, 2)
    v.leave(1)
    for block in range(KEPT):
        s.push(0, block, "completed", result(block, worker_lanes(0, block), 1, flags=LACKING, **at(block)))
    s.push(0, KEPT, "capped", notice(0, KEPT, "10.0.1.1", **at(KEPT)))
    for block in range(KEPT):
        s.push(1, block, "late", s.again(block, (0,), flags=LACKING))
    s.push(1, KEPT, "late")  # the source is out, and this is no vote
    # until the control plane tells a floor
    s.push(0, KEPT, "capped", notice(0, KEPT, "10.0.1.1", **at(KEPT)))


@entry
def ticks_take_no_results_from_a_source_that_left(v: Vector) -> None:
    """A block that waited for the source before it left may be as far ahead of it as any block."""
    s = Scene(v, 2, terms=terms(ahead=(KEPT // 2, VOTES // 2)))
    for block in (KEPT // 2, KEPT - 1, KEPT):
        s.push(0, block, "aggregated")
        s.tick(block, "tick_early")
    v.leave(1)
    for block in (KEPT // 2, KEPT - 1):
        s.tick(block, "ticked", result(block, worker_lanes(0, block), 1, flags=LACKING, **at(block)))
    s.tick(KEPT, "tick_early")


@entry
def a_source_that_left_is_heard_where_it_is_not_summed(v: Vector) -> None:
    """A push shows that the source has the results up to a window before the pushed block, even if the push
    is not summed.
    """
    s = Scene(v, 2, terms=terms(ahead=(KEPT // 2, VOTES // 2)))
    s.push(0, KEPT, "aggregated")
    v.leave(1)
    s.tick(KEPT, "tick_early")
    s.push(1, KEPT - 2, "late")
    s.tick(KEPT, "ticked", result(KEPT, worker_lanes(0, KEPT), 1, flags=LACKING, **at(KEPT)))


@entry
def a_source_is_back_with_a_vote_that_is_not_late(v: Vector) -> None:
    s = Scene(v, 3)
    v.leave(2)
    votes = [FIRST_VOTE + number for number in range(3)]
    s.push(0, votes[0], "aggregated")
    s.push(1, votes[0], "completed", result(
        votes[0], sum_of(votes[0], 0, 1), 2, flags=LACKING, **at(votes[0])
    ))  # fmt: skip
    s.push(2, votes[0], "late", s.again(votes[0], (0, 1), flags=LACKING))
    s.push(2, 0, "late")  # worker 2 is still out
    s.push(0, 0, "aggregated")
    s.push(0, votes[1], "aggregated")
    s.push(2, votes[1], "late")  # this vote is summed without worker 2; after it, worker 2 is back
    s.push(2, 0, "late")  # this block was made while worker 2 was out
    s.push(1, votes[1], "completed", result(
        votes[1], sum_of(votes[1], 0, 1), 2, flags=LACKING, **at(votes[1])
    ))  # fmt: skip
    s.push(2, 1, "aggregated")
    s.push(0, 1, "aggregated")
    s.push(1, 1, "completed", result(1, sum_of(1, 0, 1, 2), 3, **at(1)))
    s.push(1, 0, "completed", result(0, sum_of(0, 0, 1), 2, flags=LACKING, **at(0)))
    v.leave(2)
    s.push(2, votes[2], "aggregated")  # its push is the vote's first, so the vote's block waits for it
    s.push(0, votes[2], "aggregated")
    s.push(1, votes[2], "completed", result(votes[2], sum_of(votes[2], 0, 1, 2), 3, **at(votes[2])))


@entry
def all_sources_of_a_place_below_may_leave(v: Vector) -> None:
    v.senders |= workers_at_ports([1, 3])
    v.admit(across())
    v.leave(1, 3)
    v.push(1, 2, "late", **at(2))
    from_above = result_from_ps(2, lanes(9), flags=LACKING, **at(2))
    v.sees(from_above, OPTICAL[0], "result", unchanged(To.OTHERS))
    v.push(1, 2, "late", result(2, lanes(9), 5, To.BACK, flags=LACKING, **at(2)), **at(2))
    vote = FIRST_VOTE
    alone = partial_sum(vote, worker_lanes(1, vote), flags=DEGRADED, contributors=1, **at(vote))
    v.push(1, vote, "completed", alone, **at(vote))  # worker 1 is back, and the only source that is
    v.push(3, vote, "late", alone, **at(vote))
    v.push(3, vote + 1, "aggregated", **at(vote + 1))
    whole = partial_sum(vote + 1, sum_of(vote + 1, 1, 3), **at(vote + 1))
    v.push(1, vote + 1, "completed", whole, **at(vote + 1))


def most_members(made: Vector) -> int:
    return max((step.entry.members for step in made.steps if isinstance(step, Admit)), default=0)


def leaves(made: Vector) -> bool:
    return any(isinstance(step, Leave) for step in made.steps)


NOT_IN_P4 = {name: made for name, made in TABLE.items() if most_members(made) >> P4_SOURCES or leaves(made)}
"""Those with sources that the P4 program has no bits for, or that leave."""
