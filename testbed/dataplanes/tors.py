"""The switches of a running testbed's units, ToRs and pod switches, of all engines: as places, and as
processes that may end.
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
    """The switches of the units with one folder's engines, by datapath id: ToRs and pod switches."""

    @property
    def by_dpid(self) -> Mapping[Dpid, SummingPlace]: ...

    @property
    def restarts(self) -> Counter[int]:
        """The number of restarts of each switch."""

    def standing(self, cells: Cells) -> AbstractContextManager[object]:
        """Make the switches, over existing devices and the maps of the fast path; leaving removes them."""

    def verdicts(self) -> Mapping[str, int]:
        """Count their packets by verdict, where the fast path does not count them."""

    def require_alive(self) -> None:
        """Raise TestbedError if a switch has ended."""

    def any_ended(self) -> bool:
        """Return whether a switch has ended and was not restarted yet."""

    def has_ended(self, dpid: Dpid) -> bool:
        """Return whether this switch has ended and was not restarted yet."""

    def watch(self) -> Sequence[EndedSwitch]:
        """Return the ended switches that `restart` can restart. TestbedError if one is not to be
        restarted.
        """

    def restart(self, dpid: Dpid) -> None:
        """Restart a switch; it then has no job's state."""

    def resettle(self, controller: Path) -> None:
        """Have the controller set the routes of switches that lack them."""


class AllTors:
    """The switches of a whole topology, folder by folder."""

    def __init__(self, topology: Topology, log: Path, progress: Progress) -> None:
        """Make the `Tors` of each engine. `log` is a folder. Raises what an engine lacks on this host."""
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
