"""Records of commands' runs: their format, their folder, and their differences (docs/records.md). Starts
nothing, and asks no testbed.
"""

from testbed.records.record import Input, Record, Run, SetUp
from testbed.records.store import Store, list_records

__all__ = ["Input", "Record", "Run", "SetUp", "Store", "list_records"]
