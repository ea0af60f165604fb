"""Compare records: the differences of their set-ups, then of their results. Pure, but reads the records'
results and inputs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from testbed.messages.coding import plain
from testbed.records.measures import Measure, known, measures
from testbed.records.outcome import Outcome, claims_of, outcome_of, outcomes
from testbed.records.record import Input, Record
from testbed.records.statistics import Difference, Mean, Said, differences, mean

ABSENT = "-"
MOST_SHOWN = 70  # the most characters shown of a value


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: a record with all its runs, or several records of one set-up."""

    records: tuple[Record, ...]

    @property
    def name(self) -> str:
        return ",".join(record.name for record in self.records)

    @property
    def runs(self) -> int:
        """The number of its runs that have a result."""
        return max((len(values) for values in self.values().values()), default=0)

    def values(self) -> dict[str, list[float]]:
        """Collect the values of its runs, by measure."""
        values: dict[str, list[float]] = {}
        for record in self.records:
            for name, each in values_by_name(outcomes(record)).items():
                values.setdefault(name, []).extend(each)
        return values

    def verdicts(self) -> tuple[int, int]:
        """Count its trustworthy runs and its judged runs. Failed runs are not judged: they have no result
        that links or the machine could have determined.
        """
        judged = [run.trustworthy for record in self.records for run in record.runs if run.failure is None]
        return sum(each is True for each in judged), sum(each is not None for each in judged)

    def is_doubtful(self) -> bool:
        """Return whether any run, failed ones included, is not trustworthy, so that the machine may have
        determined its times.
        """
        return any(run.trustworthy is False for record in self.records for run in record.runs)

    def ended(self) -> str:
        """List the states of its records, in words."""
        states = [record.state for record in self.records]
        return ", ".join(dict.fromkeys(states))


def values_by_name(results: Sequence[Outcome]) -> dict[str, list[float]]:
    """Collect the values of several results, by measure."""
    values: dict[str, list[float]] = {}
    for result in results:
        for name, each in measures(result).items():
            values.setdefault(name, []).extend(each)
    return values


def means_by_name(results: Sequence[Outcome]) -> dict[str, Mean]:
    """Compute the means of several results, by measure."""
    return {name: mean(values) for name, values in values_by_name(results).items()}


@dataclass(frozen=True, slots=True)
class Differing:
    """A part of the set-up that differs, with each side's value."""

    what: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NumberRow:
    """A measure: each side's mean (None: it has none), and the difference of each further side from the
    first.
    """

    measure: Measure
    means: tuple[Mean | None, ...]
    differences: tuple[Difference | None, ...]  # from the second side on


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several sides compared; the first is the baseline."""

    sides: tuple[Side, ...]
    set_up: tuple[Differing, ...]
    rows: tuple[NumberRow, ...]
    claims: tuple[Differing, ...]  # for figures: our numbers for the paper's claims


def compare(sides: Sequence[Side]) -> Comparison:
    """Compare two or more sides."""
    return Comparison(
        sides=tuple(sides),
        set_up=tuple(set_up_differences(sides)),
        rows=tuple(_rows(sides)),
        claims=tuple(_claims(sides)),
    )


# ------------------------------------------------------------------ set-ups


def set_up_differences(sides: Sequence[Side]) -> Iterator[Differing]:
    """Yield the parts of the set-ups that are not the same for all sides. If a side's own records differ in a
    part, its value lists all of theirs.
    """
    facts = [[dict(_facts(record)) for record in side.records] for side in sides]
    names = list(dict.fromkeys(name for side in facts for each in side for name in each))
    for name in names:
        values = [" / ".join(dict.fromkeys(each.get(name, ABSENT) for each in side)) for side in facts]
        if len(set(values)) > 1 or " / " in values[0]:
            yield Differing(name, tuple(values))
    yield from _inputs(sides)


def _facts(record: Record) -> Iterator[tuple[str, str]]:
    """Yield all parts of a record's set-up, under the names that their users know."""
    set_up = record.set_up
    yield "command", record.command
    yield from ((f"option {name}", value) for name, value in _flat(set_up.options))
    yield from ((f"seed {name}", str(value)) for name, value in set_up.seeds.items())
    yield from ((f"configuration {name}", value) for name, value in _flat(record.configuration or {}))
    yield from ((f"network {name}", value) for name, value in _flat(plain(set_up.network)))
    yield from ((f"version of {name}", value) for name, value in set_up.versions.items())
    yield from ((f"source {name}", value) for name, value in _flat(plain(set_up.source)))
    yield from ((f"variable {name}", value) for name, value in set_up.environment.items())
    yield from ((f"host {name}", value) for name, value in _flat(plain(set_up.host)))
    for run in record.runs:
        for number, step in enumerate(run.steps, 1):
            yield f"step {number} in run {run.number}", f"{step.run_s:.0f} s: {step.command}"


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested mappings, and of lists of mappings, which are named by name or position. An
    empty list has no leaves.
    """
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and all(isinstance(each, Mapping) for each in value):
        for number, each in enumerate(value, 1):
            label = each.get("name") or each.get("link") or number
            yield from _flat(each, f"{path}[{label}]")
    else:
        yield path, _shown(value)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        text = " ".join("-".join(map(str, each)) if isinstance(each, list) else str(each) for each in value)
    else:
        text = {True: "yes", False: "no", None: ABSENT}.get(value, value) if _is_word(value) else str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def _is_word(value: object) -> bool:
    return value is None or isinstance(value, bool)


def _inputs(sides: Sequence[Side]) -> Iterator[Differing]:
    """Yield the inputs, by role, with different contents; if both copies were kept, with the number of
    differing lines.
    """
    by_role = [_by_role(side.records[0]) for side in sides]
    for role in dict.fromkeys(role for each in by_role for role in each):
        inputs = [each.get(role) for each in by_role]
        if len({given.sha256 if given else None for given in inputs}) > 1:
            first = _lines(sides[0].records[0], inputs[0])
            values = [_named(inputs[0])]
            for side, given in zip(sides[1:], inputs[1:], strict=True):
                values.append(_named(given) + _changed(first, _lines(side.records[0], given)))
            yield Differing(f"content of {role}", tuple(values))


def _by_role(record: Record) -> dict[str, Input]:
    return {given.role: given for given in record.set_up.inputs}


def _named(given: Input | None) -> str:
    return f"{given.path} {(given.sha256 or 'unread')[:8]}" if given else ABSENT


def _lines(record: Record, given: Input | None) -> list[str] | None:
    if given is None or given.copy is None:
        return None
    try:
        return (record.folder / given.copy).read_text(errors="replace").splitlines()
    except OSError:
        return None


def _changed(first: list[str] | None, second: list[str] | None) -> str:
    if first is None or second is None or first == second:
        return ""
    marks = [
        line[0] for line in difflib.unified_diff(first, second, n=0, lineterm="") if line[:3] not in _HEAD
    ]
    return f" (+{marks.count('+')} -{marks.count('-')} lines)"


_HEAD = ("+++", "---")

# ------------------------------------------------------------------ results


def _rows(sides: Sequence[Side]) -> Iterator[NumberRow]:
    """Yield the measures that at least two sides have. All measures of a pair of sides are judged
    together.
    """
    values = [side.values() for side in sides]
    names = [name for name in _in_order(values) if sum(name in each for each in values) > 1]
    judged: list[dict[str, Difference]] = []
    for side, other in zip(sides[1:], values[1:], strict=True):
        shared = [name for name in names if name in values[0] and name in other]
        pairs = [(values[0][name], other[name]) for name in shared]
        is_doubtful = sides[0].is_doubtful() or side.is_doubtful()
        judged.append(
            {
                name: replace(each, said=Said.UNJUDGED) if is_doubtful and known(name).timed else each
                for name, each in zip(shared, differences(pairs), strict=True)
            }
        )
    for name in names:
        means = tuple(mean(each[name]) if name in each else None for each in values)
        yield NumberRow(known(name), means, tuple(each.get(name) for each in judged))


def _in_order(values: Sequence[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for each in values for name in each))


def _claims(sides: Sequence[Side]) -> Iterator[Differing]:
    """Yield the claims of figures for which our numbers differ."""
    by_side = [_claims_of(side) for side in sides]
    for text in dict.fromkeys(text for each in by_side for text in each):
        values = tuple(each.get(text, ABSENT) for each in by_side)
        if len(set(values)) > 1:
            yield Differing(text, values)


def _claims_of(side: Side) -> dict[str, str]:
    record = side.records[0]
    result = outcome_of(record, record.runs[0]) if record.runs else None
    return {
        str(claim.get("text")): f"{claim.get('ours')} ({claim.get('verdict')})" for claim in claims_of(result)
    }
