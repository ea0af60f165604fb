"""Renders the wire format as C (bpf/wire.h), P4 (p4/wire.p4, p4/lanes.p4) and a Wireshark dissector
(wireshark/optinc.lua).

`python -m testbed.contract.emit` writes the files; with `--check` it says which one is stale and exits 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from testbed.contract import spec

ROOT = Path(__file__).resolve().parents[2]
P4_LAYOUTS = {
    "wide": 64,
    "registers": 1,
}  # how many lanes a register holds; 2048 bits are the most that p4c takes
_NOTE = (
    "Rendered by testbed/contract/emit.py from testbed/contract/spec.py; `make contract` renders it again."
)


def c_header() -> str:
    """bpf/wire.h."""
    types = {8: "__u8", 16: "__be16", 32: "__be32"}
    lines = [
        "/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0 */",
        f"/* {_NOTE} */",
        "#ifndef WIRE_H",
        "#define WIRE_H",
        "",
        f"#define WIRE_MAGIC {spec.MAGIC:#06x}",
        f"#define WIRE_VERSION {spec.VERSION}",
        f"#define WIRE_UDP_PORT {spec.UDP_PORT}",
        "#ifndef WIRE_LANES",
        f"#define WIRE_LANES {spec.LANES} /* at MTU 1500; a fabric with another one says so to the compiler "
        f"*/",
        "#endif",
        f"#define WIRE_MAX_WORKERS {spec.MAX_WORKERS}",
        "",
        *(f"#define WIRE_OP_{op.name} {op.value}" for op in spec.Op),
        *(f"#define WIRE_FLAG_{flag.name} {flag.value}" for flag in spec.Flag),
        "",
        "struct wire_header {",
        *(f"\t{types[f.bits]} {f.name}; /* {f.meaning} */" for f in spec.HEADER),
        "};",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def p4_header() -> str:
    """p4/wire.p4."""
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        f"// {_NOTE}",
        "#ifndef WIRE_P4",
        "#define WIRE_P4",
        "",
        f"const bit<16> WIRE_MAGIC = {spec.MAGIC:#06x};",
        f"const bit<8> WIRE_VERSION = {spec.VERSION};",
        f"const bit<16> WIRE_UDP_PORT = {spec.UDP_PORT};",
        f"#define WIRE_HEADER_BYTES {spec.HEADER_BYTES}",
        "",
        *(f"const bit<8> WIRE_OP_{op.name} = {op.value};" for op in spec.Op),
        *(f"const bit<8> WIRE_FLAG_{flag.name} = {flag.value};" for flag in spec.Flag),
        "",
        "header wire_h {",
        *(f"    bit<{f.bits}> {f.name}; // {f.meaning}" for f in spec.HEADER),
        "}",
        "",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def p4_lanes(layout: str, lanes: int) -> str:
    """p4/lanes.p4: the lanes as one header, the registers of the slots for them, and the stage that works on
    both.

    In the layout `wide`, fields and registers hold up to 64 lanes each, which one addition sums; lanes do not
    carry into each other since senders leave room (spec.bias). In `registers`, each lane has a field and a
    register array of its own, as in a hardware switch's stages; what of a slot would not fit there is in
    docs/p4.md.
    """
    if layout not in P4_LAYOUTS:
        raise ValueError(f"layout {layout!r}; {', '.join(P4_LAYOUTS)} are accepted")
    most = P4_LAYOUTS[layout]
    widths = [32 * min(most, lanes - first) for first in range(0, lanes, most)]
    numbered = list(enumerate(widths))
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        f"// {_NOTE}",
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
            f'@name(".lanes_{number}") register<bit<{width}>>(SLOTS) lanes_{number};'
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


def lua_dissector() -> str:
    """wireshark/optinc.lua."""
    places, at = [], 0
    for field in spec.HEADER:
        places.append((field, at))
        at += field.bytes
    lines = [
        "-- SPDX-License-Identifier: Apache-2.0 OR GPL-2.0",
        f"-- {_NOTE}",
        "-- wireshark -X lua_script:wireshark/optinc.lua FILE.pcap",
        "",
        'local optinc = Proto("optinc", "Gradient aggregation")',
        "local ops = {" + ", ".join(f'[{op.value}] = "{op.name}"' for op in spec.Op) + "}",
        "local f = optinc.fields",
        *(line for field, _ in places for line in _lua_fields(field)),
        'f.lanes = ProtoField.none("optinc.lanes", "lanes")',
        'f.lane = ProtoField.uint32("optinc.lane", "lane")',
        "",
        "function optinc.dissector(buffer, pinfo, tree)",
        f"    if buffer:len() < {spec.HEADER_BYTES} or buffer(0, 2):uint() ~= {spec.MAGIC:#06x} then",
        "        return 0",
        "    end",
        '    pinfo.cols.protocol = "OPTINC"',
        "    local root = tree:add(optinc, buffer())",
        *(line for field, start in places for line in _lua_additions(field, start)),
        f"    local lanes = math.floor((buffer:len() - {spec.HEADER_BYTES}) / 4)",
        "    if lanes > 0 then",
        f"        local list = root:add(f.lanes, buffer({spec.HEADER_BYTES}, 4 * lanes))",
        '        list:append_text(": " .. lanes)',
        "        for lane = 0, lanes - 1 do",
        f"            local item = list:add(f.lane, buffer({spec.HEADER_BYTES} + 4 * lane, 4))",
        '            item:prepend_text("[" .. lane .. "] ")',
        "        end",
        "    end",
        *(
            f"    local {name} = buffer({start}, {width}):uint()"
            for name, start, width in _lua_summary(places)
        ),
        '    local name = ops[op] or ("op " .. op)',
        '    local sender = " job " .. job .. " worker " .. worker',
        '    pinfo.cols.info = name .. sender .. " fragment " .. fragment .. " slot " .. slot',
        "    return buffer:len()",
        "end",
        "",
        f'DissectorTable.get("udp.port"):add({spec.UDP_PORT}, optinc)',
    ]
    return "\n".join(lines) + "\n"


def _lua_fields(field: spec.Field) -> list[str]:
    shown = {"magic": ", base.HEX", "op": ", base.DEC, ops", "flags": ", base.HEX"}.get(field.name, "")
    kind = f"ProtoField.uint{field.bits}"
    lines = [f"-- {field.meaning}", f'f.{field.name} = {kind}("optinc.{field.name}", "{field.name}"{shown})']
    if field.name == "flags":
        for flag in spec.Flag:
            name = (flag.name or "").lower()
            bit = f'"optinc.flags.{name}", "{name}", {field.bits}, nil, {flag.value}'
            lines.append(f"f.flags_{name} = ProtoField.bool({bit})")
    return lines


def _lua_additions(field: spec.Field, start: int) -> list[str]:
    place = f"buffer({start}, {field.bytes})"
    if field.name != "flags":
        return [f"    root:add(f.{field.name}, {place})"]
    flags = [f"    flags:add(f.flags_{(flag.name or '').lower()}, {place})" for flag in spec.Flag]
    return [f"    local flags = root:add(f.flags, {place})", *flags]


def _lua_summary(places: list[tuple[spec.Field, int]]) -> list[tuple[str, int, int]]:
    shown = ("op", "job", "worker", "slot", "fragment")
    return [(field.name, start, field.bytes) for field, start in places if field.name in shown]


def rendered() -> dict[Path, str]:
    """Every rendered file and what it should hold."""
    return {
        ROOT / "bpf" / "wire.h": c_header(),
        ROOT / "p4" / "wire.p4": p4_header(),
        ROOT / "p4" / "lanes.p4": p4_lanes("wide", spec.LANES),
        ROOT / "wireshark" / "optinc.lua": lua_dissector(),
    }


def stale() -> list[Path]:
    """The rendered files that do not hold what the format says now."""
    return [path for path, text in rendered().items() if not path.exists() or path.read_text() != text]


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m testbed.contract.emit", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is stale")
    arguments = parser.parse_args(argv)
    old = stale()
    if arguments.check:
        for path in old:
            print(
                f"{path.relative_to(ROOT)} is stale: run `python -m testbed.contract.emit`", file=sys.stderr
            )
        return 1 if old else 0
    for path, text in rendered().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
