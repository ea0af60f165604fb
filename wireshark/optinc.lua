-- SPDX-License-Identifier: Apache-2.0 OR GPL-2.0
-- Generated from testbed/contract/spec.py, operations.py by `make contract`: do not edit.
-- wireshark -X lua_script:wireshark/optinc.lua FILE.pcap

local optinc = Proto("optinc", "Gradient aggregation")
local ops = {[1] = "PUSH", [2] = "PARTIAL", [3] = "RESULT", [4] = "NOTICE"}
local f = optinc.fields
-- 0x4f49
f.magic = ProtoField.uint16("optinc.magic", "magic", base.HEX)
-- of this format
f.version = ProtoField.uint8("optinc.version", "version")
-- 1 push, 2 partial, 3 result, 4 notice
f.op = ProtoField.uint8("optinc.op", "op", base.DEC, ops)
-- 1 final, 2 degraded, 4 ECN, 8 retransmit
f.flags = ProtoField.uint8("optinc.flags", "flags", base.HEX)
f.flags_final = ProtoField.bool("optinc.flags.final", "final", 8, nil, 1)
f.flags_degraded = ProtoField.bool("optinc.flags.degraded", "degraded", 8, nil, 2)
f.flags_ecn = ProtoField.bool("optinc.flags.ecn", "ecn", 8, nil, 4)
f.flags_retransmit = ProtoField.bool("optinc.flags.retransmit", "retransmit", 8, nil, 8)
-- zero
f.reserved = ProtoField.uint8("optinc.reserved", "reserved")
-- job id, unique among the running jobs of a testbed
f.job = ProtoField.uint16("optinc.job", "job")
-- rank of the sender; in a partial, the index of the sender's unit in the job
f.worker = ProtoField.uint16("optinc.worker", "worker")
-- how many workers are summed in the lanes
f.contributors = ProtoField.uint16("optinc.contributors", "contributors")
-- which incarnation of the job; packets of another one never change a sum
f.generation = ProtoField.uint32("optinc.generation", "generation")
-- of the receiving switch; in a result, of the switch or PS that summed
f.slot = ProtoField.uint32("optinc.slot", "slot")
-- counts the job's fragments from 0, never reused within a generation
f.fragment = ProtoField.uint32("optinc.fragment", "fragment")
-- how many of the lanes are valid; the rest is zero padding
f.count = ProtoField.uint16("optinc.count", "count")
-- milliseconds that the oldest contribution waited, for degraded results
f.age = ProtoField.uint16("optinc.age", "age")
-- zero
f.trailer = ProtoField.uint32("optinc.trailer", "trailer")
f.lanes = ProtoField.none("optinc.lanes", "lanes")
f.lane = ProtoField.uint32("optinc.lane", "lane")

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
    root:add(f.reserved, buffer(5, 1))
    root:add(f.job, buffer(6, 2))
    root:add(f.worker, buffer(8, 2))
    root:add(f.contributors, buffer(10, 2))
    root:add(f.generation, buffer(12, 4))
    root:add(f.slot, buffer(16, 4))
    root:add(f.fragment, buffer(20, 4))
    root:add(f.count, buffer(24, 2))
    root:add(f.age, buffer(26, 2))
    root:add(f.trailer, buffer(28, 4))
    local lanes = math.floor((buffer:len() - 32) / 4)
    if lanes > 0 then
        local list = root:add(f.lanes, buffer(32, 4 * lanes))
        list:append_text(": " .. lanes)
        for lane = 0, lanes - 1 do
            local item = list:add(f.lane, buffer(32 + 4 * lane, 4))
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
