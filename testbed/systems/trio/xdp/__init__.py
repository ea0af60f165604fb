"""Block records in the maps of XDP's programs: a place's part of Trio-ML's program there."""
