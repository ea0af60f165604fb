"""The limits on what tests wait for. pytest has one for each test (pyproject.toml); these are on each process
and thread that a test waits for, so that it fails with its own words, and what holds it is let go.
"""

from __future__ import annotations

import os

SLOWER_VARIABLE = "TESTBED_SLOWER"
SLOWER = float(os.environ.get(SLOWER_VARIABLE, "1"))
"""How many times slower the machine is than a real one, such as an emulated one: limits are longer by it."""
CALL_S = 120.0 * SLOWER  # for what takes moments on a quiet machine
