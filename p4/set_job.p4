// SPDX-License-Identifier: Apache-2.0
// Generated from testbed/contract/places.py by `make contract`: do not edit.
    @name(".set_job") action set_job(bit<64> members,
                                     bit<32> generation,
                                     bit<8> role,
                                     bit<32> base,
                                     bit<32> size,
                                     bit<16> total,
                                     bit<16> local,
                                     bit<16> index,
                                     bit<32> result_base,
                                     bit<32> self_ip,
                                     bit<32> up_ip,
                                     bit<32> group_ip,
                                     bit<16> group) {
        meta.job.members = members;
        meta.job.generation = generation;
        meta.job.role = role;
        meta.job.base = base;
        meta.job.size = size;
        meta.job.total = total;
        meta.job.local = local;
        meta.job.index = index;
        meta.job.result_base = result_base;
        meta.job.self_ip = self_ip;
        meta.job.up_ip = up_ip;
        meta.job.group_ip = group_ip;
        meta.job.group = group;
    }
