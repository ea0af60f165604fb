"""The limits on what tests wait for. pytest has one for each test (pyproject.toml); these are on each process
and thread that a test waits for, so that it fails with its own words, and what holds it is let go.
"""

from __future__ import annotations

CALL_S = 120.0  # for what takes moments on a quiet machine
