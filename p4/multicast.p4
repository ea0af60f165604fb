// SPDX-License-Identifier: Apache-2.0
// The ports by which a packet leaves. The replication engine copies to a group; who must not get its own
// packet back is left out at the egress.
#ifndef MULTICAST_P4
#define MULTICAST_P4

control Multicast(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Bucket() bucket;

    action leave() {
        mark_to_drop(standard);
        if (meta.send == SEND_BACK) {
            standard.egress_spec = standard.ingress_port;
        } else if (meta.send >= SEND_GROUP) {
            standard.mcast_grp = meta.entry.group
                + ((meta.bucket * (bit<16>) meta.entry.ways) >> SPREAD_BITS);
            meta.prune = (bit<1>) (meta.send != SEND_GROUP);
        }
        verdicts.count(meta.verdict);
    }

    apply {
        bucket.apply(hdr, meta);
        leave();
    }
}

control Prune(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    @name(".leave_out") action leave_out() {
        mark_to_drop(standard);
    }
    @name(".to_host") action to_host() { }
    @name(".to_fabric") table to_fabric { // ports that lead to other switches
        key = { standard.egress_port: exact; }
        actions = { leave_out; to_host; }
        default_action = to_host();
        size = 512;
    }

    apply {
        if (meta.prune == 1) {
            if (standard.egress_port == standard.ingress_port) {
                mark_to_drop(standard);
            } else if (meta.send == SEND_WORKERS) {
                to_fabric.apply();
            }
        }
    }
}

#endif
