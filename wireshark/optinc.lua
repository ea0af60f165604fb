-- SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
-- Generated from testbed/wire/spec.py, operations.py by `make contract`: do not edit.
-- wireshark -X lua_script:wireshark/optinc.lua FILE.pcap

local optinc = Proto("optinc", "Gradient aggregation")
local ops = {
    [1] = "PUSH",
    [2] = "PARTIAL",
    [3] = "RESULT",
    [4] = "NOTICE",
    [5] = "TICK",
    [6] = "EMPTY",
    [7] = "QUESTION",
    [8] = "ANSWER",
    [9] = "SUM",
    [10] = "PARAMETERS",
    [11] = "PARAMETER_BEAT",
    [12] = "GRADIENT_BEAT",
}
local f = optinc.fields
-- 0x4f49
f.magic = ProtoField.uint16("optinc.magic", "magic", base.HEX)
-- of this format
f.version = ProtoField.uint8("optinc.version", "version")
-- the operation: WIRE_OP_*
f.op = ProtoField.uint8("optinc.op", "op", base.DEC, ops)
-- 1 final, 2 degraded, 4 ECN, 8 retransmit, 16 end
f.flags = ProtoField.uint8("optinc.flags", "flags", base.HEX)
f.flags_final = ProtoField.bool("optinc.flags.final", "final", 8, nil, 1)
f.flags_degraded = ProtoField.bool("optinc.flags.degraded", "degraded", 8, nil, 2)
f.flags_ecn = ProtoField.bool("optinc.flags.ecn", "ecn", 8, nil, 4)
f.flags_retransmit = ProtoField.bool("optinc.flags.retransmit", "retransmit", 8, nil, 8)
f.flags_end = ProtoField.bool("optinc.flags.end", "end", 8, nil, 16)
-- which tree of the job, from 0
f.tree = ProtoField.uint8("optinc.tree", "tree")
-- job id, unique among the running jobs of a testbed
f.job = ProtoField.uint16("optinc.job", "job")
-- rank of the sender; in a partial, the sending place's number; in a result, 65535
f.worker = ProtoField.uint16("optinc.worker", "worker")
-- how many workers are in the sum: 1 in a push
f.contributors = ProtoField.uint16("optinc.contributors", "contributors")
-- which incarnation of the job; packets of another one never change a sum
f.generation = ProtoField.uint32("optinc.generation", "generation")
-- of the receiving place; in a result, of the place at the top
f.slot = ProtoField.uint32("optinc.slot", "slot")
-- counts the tree's fragments from 0, never reused within a generation
f.fragment = ProtoField.uint32("optinc.fragment", "fragment")
-- how many of the lanes are valid; the rest is zero padding
f.count = ProtoField.uint16("optinc.count", "count")
-- milliseconds that the fragment waited before a tick completed it, else 0
f.age = ProtoField.uint16("optinc.age", "age")
-- how many lanes follow; in a notice, of the packet that it answers
f.lanes = ProtoField.uint16("optinc.lanes", "lanes")
-- zero
f.reserved = ProtoField.uint16("optinc.reserved", "reserved")
f.gradients = ProtoField.none("optinc.gradients", "gradients")
f.gradient = ProtoField.uint32("optinc.gradient", "gradient")

function optinc.dissector(buffer, pinfo, tree)
    if buffer:len() < 32 or buffer(0, 2):uint() ~= 0x4f49 then
        return 0
    end
    pinfo.cols.protocol = "OPTINC"
    local root = tree:add(optinc, buffer())
    root:add(f.magic, buffer(0, 2))
    root:add(f.version, buffer(2, 1))
    root:add(f.op, buffer(3, 1))
    local flags = root:add(f.flags, buffer(4, 1))
    flags:add(f.flags_final, buffer(4, 1))
    flags:add(f.flags_degraded, buffer(4, 1))
    flags:add(f.flags_ecn, buffer(4, 1))
    flags:add(f.flags_retransmit, buffer(4, 1))
    flags:add(f.flags_end, buffer(4, 1))
    root:add(f.tree, buffer(5, 1))
    root:add(f.job, buffer(6, 2))
    root:add(f.worker, buffer(8, 2))
    root:add(f.contributors, buffer(10, 2))
    root:add(f.generation, buffer(12, 4))
    root:add(f.slot, buffer(16, 4))
    root:add(f.fragment, buffer(20, 4))
    root:add(f.count, buffer(24, 2))
    root:add(f.age, buffer(26, 2))
    root:add(f.lanes, buffer(28, 2))
    root:add(f.reserved, buffer(30, 2))
    local lanes = math.floor((buffer:len() - 32) / 4)
    if lanes > 0 then
        local list = root:add(f.gradients, buffer(32, 4 * lanes))
        list:append_text(": " .. lanes)
        for lane = 0, lanes - 1 do
            local item = list:add(f.gradient, buffer(32 + 4 * lane, 4))
            item:prepend_text("[" .. lane .. "] ")
        end
    end
    local op = buffer(3, 1):uint()
    local job = buffer(6, 2):uint()
    local worker = buffer(8, 2):uint()
    local slot = buffer(16, 4):uint()
    local fragment = buffer(20, 4):uint()
    local name = ops[op] or ("op " .. op)
    local sender = " job " .. job .. " worker " .. worker
    pinfo.cols.info = name .. sender .. " fragment " .. fragment .. " slot " .. slot
    return buffer:len()
end

DissectorTable.get("udp.port"):add(47001, optinc)
