// SPDX-License-Identifier: Apache-2.0
// Generated from testbed/systems/trio/contract.py by `make wire`: do not edit.
    @name(".set_terms") action set_terms(bit<32> record,
                                         bit<32> sources,
                                         bit<32> data,
                                         bit<32> cap,
                                         bit<32> first,
                                         bit<32> mask,
                                         bit<32> window,
                                         bit<32> reach,
                                         bit<32> ahead,
                                         bit<32> vote_first,
                                         bit<32> vote_mask,
                                         bit<32> vote_window,
                                         bit<32> vote_reach,
                                         bit<32> vote_ahead) {
        hdr.terms.record = record;
        hdr.terms.sources = sources;
        hdr.terms.data = data;
        hdr.terms.cap = cap;
        hdr.terms.first = first;
        hdr.terms.mask = mask;
        hdr.terms.window = window;
        hdr.terms.reach = reach;
        hdr.terms.ahead = ahead;
        hdr.terms.vote_first = vote_first;
        hdr.terms.vote_mask = vote_mask;
        hdr.terms.vote_window = vote_window;
        hdr.terms.vote_reach = vote_reach;
        hdr.terms.vote_ahead = vote_ahead;
    }
