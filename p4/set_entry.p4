// SPDX-License-Identifier: Apache-2.0
// Generated from testbed/wire/places.py by `make contract`: do not edit.
    @name(".set_entry") action set_entry(bit<64> workers,
                                         bit<64> places,
                                         bit<32> generation,
                                         bit<8> role,
                                         bit<32> base,
                                         bit<32> size,
                                         bit<16> number,
                                         bit<32> up_base,
                                         bit<32> result_base,
                                         bit<16> lanes,
                                         bit<32> self_ip,
                                         bit<32> up_ip,
                                         bit<32> group_ip,
                                         bit<16> group,
                                         bit<8> ways,
                                         bit<8> program,
                                         bit<8> record) {
        meta.entry.workers = workers;
        meta.entry.places = places;
        meta.entry.generation = generation;
        meta.entry.role = role;
        meta.entry.base = base;
        meta.entry.size = size;
        meta.entry.number = number;
        meta.entry.up_base = up_base;
        meta.entry.result_base = result_base;
        meta.entry.lanes = lanes;
        meta.entry.self_ip = self_ip;
        meta.entry.up_ip = up_ip;
        meta.entry.group_ip = group_ip;
        meta.entry.group = group;
        meta.entry.ways = ways;
        meta.entry.program = program;
        meta.entry.record = record;
    }
