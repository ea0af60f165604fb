"""Block records in the registers of a P4 switch: Trio-ML's program's part of such a place."""
