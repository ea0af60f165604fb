"""Render the header as a Wireshark dissector."""

from __future__ import annotations

from testbed.wire import spec
from testbed.wire.rendered_note import note


def lua_dissector() -> str:
    """Render wireshark/optinc.lua."""
    places, at = [], 0
    for field in spec.HEADER:
        places.append((field, at))
        at += field.bytes
    lines = [
        "-- SPDX-License-Identifier: Apache-2.0 OR GPL-2.0",
        f"-- {note('spec', 'operations')}",
        "-- wireshark -X lua_script:wireshark/optinc.lua FILE.pcap",
        "",
        'local optinc = Proto("optinc", "Gradient aggregation")',
        "local ops = {",
        *(f'    [{op.value}] = "{op.name}",' for op in spec.Op),
        "}",
        "local f = optinc.fields",
        *(line for field, _ in places for line in _lua_fields(field)),
        'f.gradients = ProtoField.none("optinc.gradients", "gradients")',
        'f.gradient = ProtoField.uint32("optinc.gradient", "gradient")',
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
        f"        local list = root:add(f.gradients, buffer({spec.HEADER_BYTES}, 4 * lanes))",
        '        list:append_text(": " .. lanes)',
        "        for lane = 0, lanes - 1 do",
        f"            local item = list:add(f.gradient, buffer({spec.HEADER_BYTES} + 4 * lane, 4))",
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
