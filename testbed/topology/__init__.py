"""What a testbed is made of, as data. Pure: imports nothing but errors and the wire format."""
