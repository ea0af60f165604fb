"""Block records in the maps of XDP programs: Trio-ML's program's part of such a place."""
