"""The process that is a testbed, and the one that watches it."""
