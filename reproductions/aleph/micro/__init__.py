"""The paper's microbenchmarks (section 6.2) and table 2: XDP against sockets on veth, measured in one run."""
