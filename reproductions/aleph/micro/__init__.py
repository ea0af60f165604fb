"""The paper's microbenchmarks (section 6.2) and table 2, on veth: XDP against sockets, in one run."""
