"""Block records in the registers of a P4 switch: its part of Trio-ML's program."""
