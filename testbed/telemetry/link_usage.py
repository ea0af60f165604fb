"""The bytes and rates of links over time, and the jobs that sent over them. Pure.

Times are of CLOCK_MONOTONIC, as in timelines.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from testbed.telemetry.demand import DOWN, UP, unit_of
from testbed.telemetry.evidence import ACTIVE_SHARE
from testbed.telemetry.samples import BYTES_AB, BYTES_BA, Recording

COLUMNS = {UP: BYTES_AB, DOWN: BYTES_BA}
NOBODY_KNOWN = -1  # stands for senders on hosts that no job holds
_MOMENTS = 8  # at which a changing rate is sampled while a collective is under way

Floats = npt.NDArray[np.float64]


class Carried:
    """The bytes and rates in a recording."""

    def __init__(self, recording: Recording) -> None:
        read = [(sample.links, sample.holders) for sample in recording.samples if sample.links is not None]
        readings = [links for links, _ in read]
        self._column = {name: at for at, name in enumerate(recording.names)}
        first = np.array([math.nan if rate is None else rate for rate in recording.rates_mbps])
        self._rates: Floats = np.array(
            [first if links.rates_mbps is None else links.rates_mbps for links in readings]
        )
        self.times_s: Floats = np.array([(links.began_s + links.ended_s) / 2 for links in readings])
        self._values = np.array([links.values for links in readings], np.float64)
        self._holders = [holders for _, holders in read]

    @property
    def links(self) -> list[str]:
        return list(self._column)

    def rate_mbps(self, link: str, began_s: float, ended_s: float) -> float | None:
        """Return the mean rate in this time: links of scheduled jobs change their rates, and a link that is
        down counts as 0. None for a link without a rate, or one that was never up.
        """
        column = self._column[link]
        rates = self._rates[:, column]
        if np.isnan(rates[0]):
            return None
        if (rates == rates[0]).all():
            return float(rates[0]) or None
        moments = np.linspace(began_s, ended_s, _MOMENTS)
        at = np.searchsorted(self.times_s, moments, side="right") - 1
        mean = float(rates[at.clip(0)].mean())
        return mean or float(rates.max()) or None  # it carried something, if between two readings

    def so_far(self, link: str, direction: str) -> Floats:
        """Return the cumulative bytes of a link at each reading."""
        return np.asarray(self._values[:, self._column[link], COLUMNS[direction]])

    def bytes(self, link: str, direction: str, began_s: Floats, ended_s: Floats) -> Floats:
        """Return the bytes between these times, interpolated between readings."""
        return self.between(self.so_far(link, direction), began_s, ended_s)

    def between(self, so_far: Floats, began_s: Floats, ended_s: Floats) -> Floats:
        """Return the growth of a quantity, known at readings, over these time spans."""
        grown: Floats = np.interp(ended_s, self.times_s, so_far) - np.interp(began_s, self.times_s, so_far)
        return grown

    def jobs_crossing(self, own_hosts: Collection[str]) -> dict[str, Floats]:
        """Count, for each unit and each interval between readings, the other jobs that sent or received
        something and have hosts both inside and outside the unit, so that their traffic crosses its optical
        links. Hosts that no job holds count as one job, which may cross any unit's.
        """
        names = [name for name in self._column if "h" in name]
        at = [self._column[name] for name in names]
        sent = np.diff(self._values[:, at][:, :, [BYTES_AB, BYTES_BA]], axis=0).max(axis=2)
        least = np.nan_to_num(self._rates[:-1, at]) * np.diff(self.times_s)[:, None] * 1.25e5 * ACTIVE_SHARE
        crossing = {unit_of(name): np.zeros(len(sent)) for name in names}
        for step, busy in enumerate(sent > least):
            holders = {**self._holders[step + 1], **self._holders[step]} if busy.any() else {}
            jobs = {
                holders.get(name, NOBODY_KNOWN)
                for name, sends in zip(names, busy, strict=True)
                if sends and name not in own_hosts
            }
            units = _units(holders)
            for unit, counts in crossing.items():
                counts[step] = sum(
                    job == NOBODY_KNOWN or (unit in units[job] and len(units[job]) > 1) for job in jobs
                )
        return crossing


def _units(holders: Mapping[str, int]) -> dict[int, set[str]]:
    """Return the units of each job's hosts."""
    units: dict[int, set[str]] = {}
    for host, job in holders.items():
        units.setdefault(job, set()).add(unit_of(host))
    return units
