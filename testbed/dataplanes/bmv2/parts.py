"""The interface of a program's own part of a P4 switch: the state that it has in its own tables and
registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from testbed.aggregation.entries import Entry
from testbed.dataplanes.bmv2.switch_client import SwitchClient
from testbed.errors import TestbedError
from testbed.topology.addresses import Dpid


class SwitchEndedError(TestbedError):
    """The switch has no process to query."""


@dataclass(frozen=True, slots=True)
class SwitchAccess:
    """A part's access to its switch. Use `client` within `asking`, a context manager that raises
    SwitchEndedError. `send` passes a frame to the switch; `lacks_ticks` ends a switch whose ticks cannot be
    sent, with a reason. `empties`: whether records allocated to a tree must be cleared.
    """

    dpid: Dpid
    client: SwitchClient
    asking: Callable[[], AbstractContextManager[None]]
    send: Callable[[bytes], None]
    lacks_ticks: Callable[[str], object]
    empties: bool


class SwitchPart(Protocol):
    """A program's part of one switch. It is made with a SwitchAccess when the first of the program's trees
    arrives, and stays when the switch is restarted. The switch calls it within `asking`.
    """

    has_slots: bool  # whether its trees have segments of the switch's slots

    def admit(self, number: int, entry: Entry) -> Mapping[str, int]:
        """Set the state of a tree of job `number`, before its entry; state of the same generation stays.
        Return the parameters of `set_entry` that refer to it.
        """

    def release(self, number: int, tree: int) -> None:
        """Remove the state of a tree, after its entry; do nothing if there is none."""

    def forget(self, number: int, tree: int) -> None:
        """Drop a tree that was lost with the switch."""

    def restart(self) -> None:
        """Drop all trees: the switch was started without them."""

    def close(self) -> None:
        """End what runs beside the switch."""
