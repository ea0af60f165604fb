"""The description of a testbed, as data. Pure: imports only errors and the contract."""
