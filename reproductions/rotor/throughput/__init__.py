"""RotorNet's throughput: which share of a demand direct circuits carry, and which by detours."""
