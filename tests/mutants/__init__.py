"""Bugs that tests.bench.mutations plants in the data planes and the endpoint, one at a time."""
