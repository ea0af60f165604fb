"""Describe the links that changed their rate or were down while a recording was made. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from testbed.telemetry.samples import Recording


def changed(recording: Recording, links: Collection[str]) -> list[str]:
    """Return phrases about those of these links that did not keep one rate throughout, in the recording's
    order.
    """
    read = [sample.links for sample in recording.samples if sample.links is not None]
    times_s = [(reading.began_s + reading.ended_s) / 2 for reading in read]
    first = np.array([math.nan if rate is None else rate for rate in recording.rates_mbps])
    rates = np.array([first if reading.rates_mbps is None else reading.rates_mbps for reading in read])
    lengths_s = np.diff(times_s)
    phrases = []
    for column, name in enumerate(recording.names):
        if name in links and not (rates[:, column] == rates[0, column]).all():
            phrases += [f"{name} {phrase}" for phrase in _of_a_link(rates[:, column], lengths_s)]
    return phrases


WAS_DOWN = "was down"


def with_down(changes: list[str], down_s: Mapping[str, float]) -> list[str]:
    """Add phrases about links that were down for so long, unless there are some: only links that a user set
    have them in a recording.
    """
    known = {phrase.partition(f" {WAS_DOWN} ")[0] for phrase in changes if f" {WAS_DOWN} " in phrase}
    return changes + [
        f"{link} {WAS_DOWN} for {lasted_s:.1f} s" for link, lasted_s in down_s.items() if link not in known
    ]


Floats = npt.NDArray[np.float64]


def _of_a_link(rates: Floats, lengths_s: Floats) -> Iterator[str]:
    """Yield how long the link was down, and its sequence of rates."""
    if down_s := float(lengths_s[rates[:-1] == 0].sum()):
        yield f"{WAS_DOWN} for {down_s:.1f} s"
    lit = [rate for rate in rates.tolist() if rate > 0]
    had = [rate for at, rate in enumerate(lit) if at == 0 or rate != lit[at - 1]]
    if len(had) > 1:
        yield f"had {', then '.join(f'{rate:g}' for rate in had)} Mb/s"
