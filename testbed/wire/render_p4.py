"""Render the contract as P4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.wire import places, spec, spreading, verdicts
from testbed.wire.numbers import Number, named
from testbed.wire.operations import NOT_IN_P4
from testbed.wire.rendered_note import note

P4_LAYOUTS = {
    "wide": 64,
    "registers": 1,
}  # lanes per register; p4c accepts 2048 bits at most


_SPREAD = (
    "SPREAD_FACTOR",
    "SPREAD_BITS",
)  # without the numbers about dark circuits, of which P4 knows nothing


@dataclass(frozen=True, slots=True)
class HeaderType:
    """A P4 header: its type's name, its fields, and a one-line description."""

    name: str
    fields: Sequence[spec.Field]
    meaning: str


def _file(guard: str, sources: Sequence[str], body: Iterable[str], folder: str = "testbed/wire") -> str:
    head = (
        "// SPDX-License-Identifier: Apache-2.0",
        f"// {note(*sources, folder=folder)}",
        f"#ifndef {guard}",
        f"#define {guard}",
    )
    return "\n".join((*head, "", *body, "", "#endif")) + "\n"


def _constants(numbers: Iterable[Number]) -> list[str]:
    return [f"const bit<{n.bits}> {n.name} = {n.text};{_comment(n.meaning)}" for n in numbers]


def _comment(meaning: str) -> str:
    return f" // {meaning}" if meaning else ""


def _struct(kind: str, name: str, fields: Iterable[spec.Field]) -> list[str]:
    return [f"{kind} {name} {{", *(f"    bit<{f.bits}> {f.name};{_comment(f.meaning)}" for f in fields), "}"]


def header() -> str:
    """Render p4/wire.p4."""
    conditions = spec.conditions([op for op in spec.Op if op not in NOT_IN_P4])
    absent = {f"WIRE_OP_{op.name}" for op in NOT_IN_P4}
    body = (
        *_constants(number for number in spec.NUMBERS if number.name not in absent),
        f"#define WIRE_HEADER_BYTES {spec.HEADER_BYTES}",
        "",
        *(f"#define {name}(op) ({condition})" for name, condition in conditions),
        "",
        *_struct("header", "wire_h", spec.HEADER),
    )
    return _file("WIRE_P4", ("spec", "operations"), body)


def verdict_constants() -> str:
    """Render p4/verdicts.p4."""
    body = (
        "// What became of a packet: the index of its counter.",
        *_constants(verdicts.numbers(verdicts.Engine.P4)),
    )
    return _file("VERDICTS_P4", ("verdicts",), body)


def places_header() -> str:
    """Render p4/places.p4."""
    body = (
        f"#define SLOTS {places.SLOTS} // of a switch",
        f"#define CELLS {places.P4_CELLS} // of a register: slots, and a program's own behind them",
        "",
        "// Who works on a tree's contributions and ticks.",
        *_constants(named("PROGRAM_", places.Program, 8)),
        "",
        "// Who sits behind the port that a packet came in by.",
        *_constants(named("PORT_", places.AT_SWITCHES, 2)),
        "",
        "// What a slot is.",
        *_constants(named("SLOT_", places.SlotState, 8)),
        "",
        "// What becomes of the sum made here: also what a slot is then.",
        *_constants(named("ROLE_", (role for role in places.Role if role is not places.Role.NONE), 8)),
        "",
        "// Flags of a slot.",
        *_constants(named("SUM_", places.Sum, 8)),
        "",
        "// A tree of a job as this switch knows it.",
        *_struct("struct", "entry_t", places.P4_ENTRY),
        "",
        "// The one of several parallel circuits that a packet takes.",
        *_constants(number for number in spreading.NUMBERS if number.name in _SPREAD),
    )
    return _file("PLACES_P4", ("places", "spreading"), body)


def defines_of(guard: str, folder: str, source: str, numbers: Iterable[Number]) -> str:
    """Render the numbers of a system's own contract: the module `source` of its folder."""
    return _file(guard, (source,), _defines(numbers), folder)


def header_of(guard: str, folder: str, source: str, numbers: Iterable[Number], header: HeaderType) -> str:
    """Render numbers and a header of a system's own contract."""
    body = (*_defines(numbers), "", f"// {header.meaning}", *_struct("header", header.name, header.fields))
    return _file(guard, (source,), body, folder)


def _defines(numbers: Iterable[Number]) -> list[str]:
    return [f"#define {n.name} {n.text}{_comment(n.meaning)}" for n in numbers]


def set_entry() -> str:
    """Render p4/set_entry.p4, which a control includes: an action that sets an entry's fields one by one."""
    return setting("set_entry", "meta.entry", places.P4_ENTRY, "testbed/wire", "places")


def setting(action: str, into: str, fields: Sequence[spec.Field], folder: str, source: str) -> str:
    """Render an action that sets the fields of a header or struct one by one."""
    parameters = [f"bit<{field.bits}> {field.name}" for field in fields]
    lines = (
        "// SPDX-License-Identifier: Apache-2.0",
        f"// {note(source, folder=folder)}",
        f'    @name(".{action}") action {action}(' + (",\n" + " " * 41).join(parameters) + ") {",
        *(f"        {into}.{field.name} = {field.name};" for field in fields),
        "    }",
    )
    return "\n".join(lines) + "\n"


def p4_lanes(layout: str, lanes: int) -> str:
    """Render p4/lanes.p4: the lanes as one header, the slots' registers for them, and the stage that
    processes both.

    In the layout `wide`, fields and registers hold up to 64 lanes each, which one addition sums; lanes do not
    carry into each other, since senders leave room (spec.bias). In `registers`, each lane has a field and a
    register array of its own, as in a hardware switch's stages; docs/p4.md lists the parts of a slot that
    would not fit there.
    """
    if layout not in P4_LAYOUTS:
        raise ValueError(f"layout {layout!r}; {', '.join(P4_LAYOUTS)} are accepted")
    most = P4_LAYOUTS[layout]
    widths = [32 * min(most, lanes - first) for first in range(0, lanes, most)]
    numbered = list(enumerate(widths))
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        f"// {note('spec')}",
        f"// {lanes} lanes, {most} to a register.",
        "#ifndef LANES_P4",
        "#define LANES_P4",
        "",
        f"#define WIRE_LANES {lanes}",
        "",
        "const bit<2> LANES_LEAVE = 0;",
        "const bit<2> LANES_KEEP = 1;   // the packet's into the slot",
        "const bit<2> LANES_ADD = 2;    // to those in the slot; the packet then has the sum",
        "const bit<2> LANES_RECALL = 3; // the slot's into the packet",
        "",
        "header lanes_h {",
        *(f"    bit<{width}> l{number};" for number, width in numbered),
        "}",
        "",
        *(
            f'@name(".lanes_{number}") register<bit<{width}>>(CELLS) lanes_{number};'
            for number, width in numbered
        ),
        "",
        "// `held` is room to work in.",
        "control Lanes(inout lanes_h lanes, inout lanes_h held, in bit<32> slot, in bit<2> what) {",
        "    action keep() {",
        *(f"        lanes_{number}.write(slot, lanes.l{number});" for number, _ in numbered),
        "    }",
        "    action add() {",
        *(line for number, _ in numbered for line in _p4_addition(number)),
        "    }",
        "    action recall() {",
        *(f"        lanes_{number}.read(lanes.l{number}, slot);" for number, _ in numbered),
        "    }",
        "",
        "    apply {",
        "        if (what == LANES_KEEP) {",
        "            keep();",
        "        } else if (what == LANES_ADD) {",
        "            add();",
        "        } else if (what == LANES_RECALL) {",
        "            recall();",
        "        }",
        "    }",
        "}",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _p4_addition(number: int) -> list[str]:
    return [
        f"        lanes_{number}.read(held.l{number}, slot);",
        f"        lanes.l{number} = lanes.l{number} + held.l{number};",
        f"        lanes_{number}.write(slot, lanes.l{number});",
    ]
