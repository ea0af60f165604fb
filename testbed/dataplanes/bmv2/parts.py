"""The interface of a program's own part of a P4 switch: what it has in tables and registers of its own."""

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
    """There is no process to ask."""


@dataclass(frozen=True, slots=True)
class SwitchAccess:
    """The ways by which a part acts on its switch. `client` is used while `asking`, a context manager that
    raises SwitchEndedError; `send` has the switch work on a frame, and `lacks_ticks` ends one that cannot
    have its ticks, for this reason. `empties` says whether records that a tree is given are emptied.
    """

    dpid: Dpid
    client: SwitchClient
    asking: Callable[[], AbstractContextManager[None]]
    send: Callable[[bytes], None]
    lacks_ticks: Callable[[str], object]
    empties: bool


class SwitchPart(Protocol):
    """A program's part of one switch. It is made with a SwitchAccess, when the first of the program's trees
    comes, and stays when the switch is started again. The switch calls it while asking.
    """

    has_slots: bool  # whether its trees have segments of the switch's slots

    def admit(self, number: int, entry: Entry) -> Mapping[str, int]:
        """Put what a tree of job `number` has, before its entry; what is there of its generation stays.
        Return the parameters of `set_entry` that name it.
        """

    def release(self, number: int, tree: int) -> None:
        """Take it away, once the tree's entry is gone; nothing if there is none."""

    def forget(self, number: int, tree: int) -> None:
        """Forget a tree that is gone with the switch."""

    def restart(self) -> None:
        """Forget all trees: the switch is started, and has none of them."""

    def close(self) -> None:
        """End what runs beside the switch."""
