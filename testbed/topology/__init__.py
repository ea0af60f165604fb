"""The parts of a testbed, as data. Pure: imports nothing but errors and the contract."""
