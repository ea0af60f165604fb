"""Each class that one process writes and another reads comes back equal in every field.

The values are filled in by the declared types: a field to come is filled in too, and one that cannot be
fails here until a value is given for it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from itertools import count
from pathlib import Path
from typing import Any, NewType, get_args

import pytest

from testbed.aggregation.forest import Forest, Node, Tree
from testbed.aggregation.messages import layout_from_json, layout_to_json, site_from_json, site_to_json
from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout
from testbed.client.last_words import LastWords
from testbed.dataplanes.xdp import objects
from testbed.dataplanes.xdp.objects import Objects
from testbed.encoding import from_json, items_of, to_json, types_of, without_none
from testbed.messages.coding import Number, UnsetType, as_json, decode
from testbed.ocs.glimpses import Glimpses, Turned
from testbed.records.record import Record, SetUp
from testbed.scheduling import messages
from testbed.scheduling.model import Decision, Job, Limits, State
from testbed.topology.model import Topology
from testbed.topology.places import Place
from testbed.topology.units import Unit
from workloads.luwu.spans import Span

NUMBERS = count(7)
U1, U2 = Unit(1), Unit(2)
WORKERS = ((U1, 1), (U1, 2), (U2, 1))
OWNED = Tree(Node(Place(U2), (2,), (Node(Place(U1), (0, 1)),)), 2.5, (U2, 4))
RELAYED = Tree(Node(Place(U2, 1), (2,), (Node(Place(U1, 1), (0, 1)),)), relayed=True)
GIVEN: dict[Any, Any] = {  # of classes and fields with rules of their own
    Forest: Forest(WORKERS, (OWNED,)),
    (Layout, "workers"): WORKERS,
    (Record, "state"): "done",
}
MORE: dict[Any, tuple[Any, ...]] = {  # values for fields that cannot be said together
    Layout: (Layout("relayed", WORKERS, "packets", forest=Forest(WORKERS, (RELAYED,))),),
}
PLACES = {"Record.folder", "Run.folder"}  # where they lie, which is not in them


def filled(kind: Any) -> Any:
    """Make a value of a type, each part of it another than any before."""
    if kind in GIVEN:
        return GIVEN[kind]
    if kind == Number:
        return next(NUMBERS) + 0.5
    if isinstance(kind, NewType):
        return filled(kind.__supertype__)
    if UnsetType in get_args(kind):
        return filled(next(each for each in get_args(kind) if each not in (UnsetType, type(None))))
    if (some := without_none(kind)) is not None:
        return filled(some)
    if is_dataclass(kind):
        own = {name: of for name, of in types_of(kind).items() if (kind, name) not in GIVEN}
        given = {name: GIVEN[kind, name] for name in types_of(kind) if (kind, name) in GIVEN}
        return kind(**{name: filled(of) for name, of in own.items()}, **given)
    if collection := items_of(kind):
        made, of = collection
        if made is dict:
            return {filled(of[0]): filled(of[1]) for _ in range(2)}
        if made is tuple and (len(of) > 1 and of[1] is not ...):
            return tuple(filled(each) for each in of)
        return made(filled(of[0]) for _ in range(2))
    number = next(NUMBERS)
    values: dict[Any, Any] = {
        int: number, float: number + 0.5, str: f"text {number}", bool: True, bytes: b"%d" % number,
        Any: {"any": number}, Path: Path("/"),
    }  # fmt: skip
    return values[kind]


def parts(value: Any) -> Iterator[Any]:
    """Yield the dataclasses in a value, itself among them."""
    if is_dataclass(value):
        yield value
        for field in fields(value):
            yield from parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from (*parts(key), *parts(each))
    elif isinstance(value, tuple | list | frozenset):
        for each in value:
            yield from parts(each)


def unsaid(value: Any) -> list[str]:
    """Return the fields that are at their default in every part of a value, of which nothing is seen."""
    said: dict[str, bool] = {}
    for part in parts(value):
        for field in fields(part):
            made = field.default_factory
            default = field.default if made is MISSING else made()
            name = f"{type(part).__name__}.{field.name}"
            said[name] = said.get(name, False) or getattr(part, field.name) != default
    return [name for name, is_said in said.items() if not is_said]


def differences(a: Any, b: Any, where: str) -> list[str]:
    """Say where two values differ, in kind as well, whether or not `==` compares that."""
    if is_dataclass(a) and type(a) is type(b):
        names = [each.name for each in fields(a) if f"{type(a).__name__}.{each.name}" not in PLACES]
        pairs = [(getattr(a, name), getattr(b, name), f".{name}") for name in names]
    elif isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        pairs = [(x, y, f"[{at}]") for at, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        kinds = (Mapping, Mapping) if isinstance(a, Mapping) else (type(a), type(b))
        return [] if a == b and isinstance(b, kinds[0]) else [f"{where}: {a!r} became {b!r}"]
    return [each for x, y, name in pairs for each in differences(x, y, where + name)]


def through_json(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: read(json.loads(json.dumps(write(value))))


def kept(value: Objects, folder: Path) -> Any:
    objects.keep("key", value, folder / "objects")
    return objects.kept("key", folder / "objects")


def last(value: LastWords, folder: Path) -> Any:
    value.write(folder, -1)
    return LastWords.read(folder)


def plain(kind: Any) -> Callable[[Any], Any]:
    return through_json(dataclasses.asdict, lambda data: kind(**data))


CROSSINGS: dict[Any, Callable[[Any, Path], Any]] = {
    **{
        kind: lambda value, _, crossing=crossing: crossing(value)
        for kind, crossing in {
            Site: through_json(site_to_json, site_from_json),
            Layout: through_json(layout_to_json, layout_from_json),
            Limits: through_json(to_json, messages.limits_from_json),
            Job: through_json(to_json, messages.job_from_json),
            State: through_json(to_json, messages.state_from_json),
            Decision: through_json(to_json, messages.decision_from_json),
            Topology: lambda value: Topology.from_json(value.to_json()),
            SetUp: through_json(as_json, lambda data: decode(SetUp, data, "set-up")),
            Turned: plain(Turned), Glimpses: plain(Glimpses), Span: plain(Span),
        }.items()
    },
    Record: lambda value, folder: through_json(
        Record.to_json, lambda data: decode(Record, data, "record")
    )(value),
    Objects: kept,
    LastWords: last,
}  # fmt: skip


@pytest.mark.parametrize("kind", CROSSINGS, ids=lambda kind: kind.__name__)
def test_every_field_crosses(kind: Any, tmp_path: Path) -> None:
    values = (filled(kind), *MORE.get(kind, ()))
    assert unsaid(values) == [], "GIVEN needs a value for these that is not their default"
    for value in values:
        assert differences(value, CROSSINGS[kind](value, tmp_path), kind.__name__) == []


def test_a_field_to_come_crosses_or_is_said_to_be_lost() -> None:
    later: Any = dataclasses.make_dataclass(
        "Later", [("to_come", tuple[int, ...], ())], bases=(Job,), frozen=True, slots=True
    )
    job = filled(later)
    data = json.loads(json.dumps(to_json(job)))
    assert differences(job, from_json(later, data), "") == []
    del data["to_come"]
    assert differences(job, from_json(later, data, defaults=True), "") == [
        f".to_come: {job.to_come} became ()"
    ]
    with pytest.raises(ValueError, match="Later without 'to_come'"):
        from_json(later, data)
    with pytest.raises(ValueError, match="Job has no field 'to_come'"):
        from_json(Job, to_json(job))


@dataclass(frozen=True)
class Numbers:
    """A field of each plain kind."""

    whole: int
    part: float
    word: str
    yes: bool


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("whole", 1.0),
        ("whole", True),
        ("whole", None),
        ("part", "1"),
        ("part", True),
        ("word", 3),
        ("yes", 1),
    ],
)
def test_a_value_of_another_type_is_refused_on_both_sides(name: str, wrong: Any) -> None:
    right = Numbers(3, 0.5, "x", True)
    assert from_json(Numbers, to_json(right)) == right
    with pytest.raises(TypeError):
        from_json(Numbers, {**to_json(right), name: wrong})
    with pytest.raises(TypeError):
        to_json(dataclasses.replace(right, **{name: wrong}))
