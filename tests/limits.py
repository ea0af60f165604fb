"""Time limits of what tests wait for. pytest has a limit for each test (pyproject.toml); these are for each
process and thread that a test waits for, so that the test fails with its own message and releases what it
holds.
"""

from __future__ import annotations

import os

SLOWER_VARIABLE = "TESTBED_SLOWER"
SLOWER = float(os.environ.get(SLOWER_VARIABLE, "1"))
"""How many times slower than a real machine this one is (an emulated one, for example); limits are multiplied
by it.
"""
CALL_S = 120.0 * SLOWER  # for calls that take moments on a quiet machine
