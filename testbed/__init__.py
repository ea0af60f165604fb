"""An emulated testbed for in-network aggregation over an optical circuit switch."""
