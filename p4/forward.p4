// SPDX-License-Identifier: Apache-2.0
// Plain forwarding: by IPv4 destination, else by MAC address. As in the testbed's other switches, the TTL
// stays: a unit's network is one hop.
#ifndef FORWARD_P4
#define FORWARD_P4

#include "spread.p4"

control Forward(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Bucket() bucket;

    @name(".route") action route(bit<9> port) {
        meta.is_routed = 1;
        standard.egress_spec = port;
    }
    @name(".route_to") action route_to(bit<9> port, bit<48> mac) {
        meta.is_routed = 1;
        standard.egress_spec = port;
        hdr.ethernet.dstAddr = mac;
    }
    @name(".spread") action spread(bit<8> bundle, bit<8> circuits) {
        meta.bundle = bundle;
        meta.circuits = circuits;
    }
    @name(".no_route") action no_route() { }
    @name(".routes") table routes {
        key = { hdr.ipv4.dstAddr: lpm; }
        actions = { route; route_to; spread; no_route; }
        default_action = no_route();
        size = 1024;
    }
    @name(".circuits") table circuits {
        key = { meta.circuit: exact; }
        actions = { route; no_route; }
        default_action = no_route();
        size = 256;
    }

    @name(".switch_to") action switch_to(bit<9> port) {
        standard.egress_spec = port;
    }
    @name(".flood") action flood(bit<16> group) {
        standard.mcast_grp = group;
        meta.prune = 1;
    }
    @name(".unknown_station") action unknown_station() {
        meta.verdict = V_UNROUTABLE;
        mark_to_drop(standard);
    }
    @name(".stations") table stations {
        key = { hdr.ethernet.dstAddr: exact; }
        actions = { switch_to; flood; unknown_station; }
        default_action = unknown_station();
        size = 256;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            routes.apply();
            if (meta.circuits != 0) {
                bucket.apply(hdr, meta);
                meta.circuit = meta.bundle
                    ++ (bit<8>) ((meta.bucket * (bit<16>) meta.circuits) >> SPREAD_BITS);
                circuits.apply();
            }
        }
        if (meta.is_routed == 0) {
            stations.apply();
        }
        verdicts.count(meta.verdict);
    }
}

#endif
