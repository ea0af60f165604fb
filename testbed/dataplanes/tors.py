"""The switches of a running testbed's units, ToRs and those of pods, whatever their engines are: the places
that they are, and what becomes of those that are processes and end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from testbed.aggregation.place_interfaces import SummingPlace
from testbed.dataplanes.folders import part, used_by
from testbed.dataplanes.xdp.cells import Cells
from testbed.machine.interface import EndedSwitch
from testbed.topology.addresses import Dpid
from testbed.topology.model import Topology

Progress = Callable[[str, int, int], None]


class Tors(Protocol):
    """The switches of the units of one folder's engines, by their numbers: ToRs, and those of pods."""

    @property
    def by_dpid(self) -> Mapping[Dpid, SummingPlace]: ...

    @property
    def restarts(self) -> Counter[int]:
        """Count how often each was started again."""

    def standing(self, cells: Cells) -> AbstractContextManager[object]:
        """Make them, over devices that are there and the maps of the fast path; leaving takes them down."""

    def verdicts(self) -> Mapping[str, int]:
        """Count what they did with packets, where the fast path does not count it."""

    def require_alive(self) -> None:
        """Raise TestbedError if one has ended."""

    def any_ended(self) -> bool:
        """Return whether one has, and was not started again yet."""

    def has_ended(self, dpid: Dpid) -> bool:
        """Return whether this one has, and was not started again yet."""

    def watch(self) -> Sequence[EndedSwitch]:
        """Return those that ended, each to be started again by `restart`. TestbedError if one ended for
        good.
        """

    def restart(self, dpid: Dpid) -> None:
        """Start one again; it knows no job then."""

    def resettle(self, controller: Path) -> None:
        """Have the controller set the routes of those that lack them."""


class AllTors:
    """Those of a whole topology, folder by folder."""

    def __init__(self, topology: Topology, log: Path, progress: Progress) -> None:
        """`log` is a folder. Raises what an engine lacks on this host."""
        self._parts: list[Tors] = [
            part(folder, "tors").Tors(topology, log, progress) for folder in used_by(topology)
        ]

    @property
    def by_dpid(self) -> dict[Dpid, SummingPlace]:
        return {dpid: tor for tors in self._parts for dpid, tor in tors.by_dpid.items()}

    @property
    def restarts(self) -> Counter[int]:
        return sum((tors.restarts for tors in self._parts), Counter())

    @contextmanager
    def standing(self, cells: Cells) -> Iterator[None]:
        with ExitStack() as stack:
            for tors in self._parts:
                stack.enter_context(tors.standing(cells))
            yield

    def verdicts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for tors in self._parts:
            counts.update(tors.verdicts())
        return counts

    def require_alive(self) -> None:
        for tors in self._parts:
            tors.require_alive()

    def any_ended(self) -> bool:
        return any(tors.any_ended() for tors in self._parts)

    def has_ended(self, dpid: Dpid) -> bool:
        return self._part(dpid).has_ended(dpid)

    def watch(self) -> list[EndedSwitch]:
        return [ended for tors in self._parts for ended in tors.watch()]

    def restart(self, dpid: Dpid) -> None:
        self._part(dpid).restart(dpid)

    def _part(self, dpid: Dpid) -> Tors:
        return next(tors for tors in self._parts if dpid in tors.by_dpid)

    def resettle(self, controller: Path) -> None:
        for tors in self._parts:
            tors.resettle(controller)
