"""Read the counts of a job's data-plane program, whose type its system's folder has
(testbed/aggregation/counts.py). Imports only those types, no system and no program.
"""

from __future__ import annotations

import functools

from testbed.aggregation.counts import ProgramCounts
from testbed.errors import TestbedError
from testbed.messages.coding import as_json, decode, plain
from testbed.messages.jobs import JobStatus, WrittenCounts
from testbed.plugins.declarations import declared


@functools.cache
def counts_types() -> tuple[type[ProgramCounts], ...]:
    """Return the types that systems declare in `COUNTS`, sorted by system. TestbedError names a module that
    cannot be imported.
    """
    return tuple(kind for kinds in declared("counts", "COUNTS") for kind in kinds)


def counts_of(job: JobStatus) -> ProgramCounts | None:
    """Return the counts in a job's status; None if it has none. TestbedError for data that no type has."""
    return None if job.blocks is None else _read(job.blocks, f"job {job.id}: its program's counts")


def checked(counts: object, job: int) -> ProgramCounts:
    """Return the counts of a job's program. TestbedError if they are of no declared type, or have other
    values than their type says.
    """
    kinds = counts_types()
    kind = next((each for each in kinds if type(counts) is each), None)
    if kind is None:
        accepted = " or ".join(each.__name__ for each in kinds)
        raise TestbedError(f"job {job}: its program counts {type(counts).__name__}, not {accepted}")
    what = f"job {job}: its program's counts"
    try:
        return decode(kind, as_json(counts), what)
    except TypeError as error:  # a value that JSON does not have
        raise TestbedError(f"{what}: {error}") from error


def written(counts: ProgramCounts) -> WrittenCounts:
    """Convert counts to the JSON that messages transfer."""
    return WrittenCounts(plain(counts))


def _read(data: WrittenCounts, what: str) -> ProgramCounts:
    """Decode counts as the first type that has their fields."""
    *others, last = counts_types()
    for kind in others:
        try:
            return decode(kind, data, what)
        except TestbedError:
            pass
    return decode(last, data, what)
