"""Render the contract as C: for the BPF programs, and for the worker's compiled endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from testbed.wire import (
    calls,
    endpoint,
    links,
    places,
    recovery,
    rings,
    spec,
    spreading,
    verdicts,
)
from testbed.wire.numbers import Number, named
from testbed.wire.records import Lanes, Member, Record
from testbed.wire.rendered_note import note

_MOST = 104  # characters: a tab counts as eight
_HEADER_TYPES = {8: "__u8", 16: "__be16", 32: "__be32"}


def _file(guard: str, sources: Sequence[str], body: Iterable[str], folder: str = "testbed/wire") -> str:
    head = (
        "/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */",
        f"/* {note(*sources, folder=folder)} */",
        f"#ifndef {guard}",
        f"#define {guard}",
    )
    return "\n".join((*head, "", *body, "", "#endif")) + "\n"


def _comment(meaning: str) -> str:
    return f" /* {meaning} */" if meaning else ""


def _defines(numbers: Iterable[Number]) -> list[str]:
    return [f"#define {n.name} {n.text}{'ULL' if n.bits == 64 else ''}{_comment(n.meaning)}" for n in numbers]


def _macro(name: str, condition: str) -> list[str]:
    """Return a macro of an `op`, split into lines if it is long."""
    line = f"#define {name}(op) ({condition})"
    if len(line) <= _MOST:
        return [line]
    *parts, last = condition.split(" && ")
    return [f"#define {name}(op) ( \\", *(f"\t{part} && \\" for part in parts), f"\t{last})"]


def _struct(record: Record) -> list[str]:
    above = [f"/* {record.meaning} */"] if record.meaning else []
    return [*above, f"struct {record.name} {{", *map(_member, record.members), "};", ""]


def _member(member: Member) -> str:
    kind = member.kind.in_c
    count = member.count
    if isinstance(count, Lanes):
        count = count.in_c if count.per == 1 else f"{count.in_c} / {count.per}"
    size = "" if count is None else f"[{count}]"
    line = f"\t{kind}{'' if kind.endswith('*') else ' '}{member.name}{size};{_comment(member.meaning)}"
    if len(line) <= _MOST:
        return line
    return f"\t/* {member.meaning} */\n{line.partition(' /*')[0]}"


def header() -> str:
    """Render bpf/wire.h."""
    body = (
        *_defines(spec.NUMBERS),
        *_defines(recovery.NUMBERS),
        f"#define WIRE_FRAME_HEADERS_BYTES {spec.FRAME_HEADERS_BYTES} /* Ethernet, IPv4, UDP */",
        "#ifndef WIRE_LANES",
        f"#define WIRE_LANES {spec.LANES} /* at MTU 1500; for another one the loader says how many */",
        "#endif",
        "",
        *(line for name, condition in spec.conditions() for line in _macro(name, condition)),
        "",
        "struct wire_header {",
        *(f"\t{_HEADER_TYPES[f.bits]} {f.name}; /* {f.meaning} */" for f in spec.HEADER),
        "};",
    )
    return _file("WIRE_H", ("spec", "operations", "recovery"), body)


def verdict_numbers() -> str:
    """Render bpf/verdicts.h."""
    body = (
        "/* What became of a packet: the index of its counter. */",
        *_defines(verdicts.numbers(verdicts.Engine.XDP)),
    )
    return _file("VERDICTS_H", ("verdicts",), body)


def places_header() -> str:
    """Render bpf/places.h."""
    body = (
        "/* Of the maps. */",
        *_defines(places.SIZES),
        "",
        *_defines(places.CALENDAR_NUMBERS),
        "",
        *_defines(named("FRAMES_", places.Frames, 32)),
        "",
        *_defines(named("PORT_", places.Port, 32)),
        "",
        *_defines(named("ROLE_", places.Role, 32)),
        "",
        *_defines(named("PROGRAM_", places.Program, 32)),
        "",
        *_defines(named("SLOT_", places.SlotState, 32)),
        "",
        *_defines(named("SUM_", places.Sum, 32)),
        *_defines([places.NOBODY]),
        "",
        *_defines(spreading.NUMBERS),
        "",
        *(line for record in places.RECORDS for line in _struct(record)),
    )
    return _file("PLACES_H", ("places", "spreading"), _without_last(body))


def ring() -> str:
    """Render bpf/ring.h, for the host program and the worker's endpoint."""
    body = (
        *_defines(named("RESULT_", rings.Stored, 32, in_hex=True)),
        "",
        "#ifndef RESULT_LANES",
        "#define RESULT_LANES WIRE_LANES /* who learns it at run time defines this as nothing */",
        "#endif",
        "",
        *_struct(rings.RESULT),
        *_struct(rings.WAKE),
    )
    return _file("RING_H", ("rings",), _without_last(body))


def link_faults() -> str:
    """Render bpf/link_faults.h."""
    body = [line for record in links.FAULT_RECORDS for line in _struct(record)]
    return _file("LINK_FAULTS_H", ("links",), _without_last(body))


def link_marks() -> str:
    """Render bpf/link_marks.h."""
    records = [line for record in links.MARK_RECORDS for line in _struct(record)]
    return _file("LINK_MARKS_H", ("links",), _without_last([*_defines(links.MARK_NUMBERS), "", *records]))


def link_delay() -> str:
    """Render bpf/link_delay.h."""
    body = [line for record in links.DELAY_RECORDS for line in _struct(record)]
    return _file("LINK_DELAY_H", ("links",), _without_last(body))


def link_apart() -> str:
    """Render bpf/link_apart.h."""
    records = [line for record in links.APART_RECORDS for line in _struct(record)]
    return _file("LINK_APART_H", ("links",), _without_last([*_defines(links.APART_NUMBERS), "", *records]))


def endpoint_header() -> str:
    """Render workloads/native/wire.h."""
    body = (
        *_defines(endpoint.NUMBERS),
        "",
        "enum event {",
        *(f"\tEVENT_{event.name} = {int(event)},{_comment(event.meaning)}" for event in endpoint.Event),
        "};",
        "",
        *(line for record in endpoint.RECORDS for line in _struct(record)),
    )
    return _file("CONTRACT_H", ("endpoint",), _without_last(body))


def header_of(
    guard: str, folder: str, source: str, numbers: Iterable[Number], records: Iterable[Record]
) -> str:
    """Render the numbers and records of a system's own contract: the module `source` of its folder."""
    structs = [line for record in records for line in _struct(record)]
    return _file(guard, (source,), _without_last([*_defines(numbers), "", *structs]), folder)


def calls_header() -> str:
    """Render workloads/native/calls_contract.hpp."""
    body = (
        *_defines(calls.NUMBERS),
        "",
        *(line for record in calls.RECORDS for line in _struct(record)),
    )
    return _file("CALLS_CONTRACT_H", ("calls",), _without_last(body))


def _without_last(lines: Sequence[str]) -> Sequence[str]:
    """Drop the empty line after the last record."""
    return lines[:-1]
