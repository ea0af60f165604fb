"""The share of a link that other jobs leave to a job. Pure; docs/verdict.md has the argument.

The bytes of other jobs that crossed a link while a sum was under way say nothing by themselves: the longer
the machine holds a sum up, the more they are. Their rate does, and no job has to put up with less than its
fair share, however much the others send while it is held up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.telemetry.link_usage import Carried, Floats


def share_left(
    carried: Carried,
    links: Sequence[str],
    direction: str,
    own_so_far: Floats,
    asked_s: Floats,
    ready_s: Floats,
    rates_mbps: Floats,
    others: Floats,
) -> Floats:
    """Return for each collective the share of the rate of these links together that was this job's to have:
    what other jobs did not take of it while the collective was under way, from `asked_s` to `ready_s`; at
    least 1 / k among k jobs.

    `own_so_far` are the job's bytes at each reading, with what it sent again; `rates_mbps` those of the links
    together; `others` how many other jobs crossed them from each reading to the next.
    """
    took_s = np.maximum(ready_s - asked_s, 1e-9)
    so_far = np.sum([carried.so_far(link, direction) for link in links], axis=0)
    strangers = _growing(so_far - own_so_far)
    taken = carried.between(strangers, asked_s, ready_s) / (rates_mbps * 1.25e5 * took_s)
    counted = total_by(others, carried.times_s)
    jobs = 1 + carried.between(counted, asked_s, ready_s) / took_s
    share: Floats = np.maximum(1 - taken, 1 / jobs)
    return share.clip(max=1.0)


def total_by(counts: Floats, times_s: Floats) -> Floats:
    """Return the sum of a count over time by each reading; it holds from one to the next."""
    total: Floats = np.concatenate([[0.0], np.cumsum(counts * np.diff(times_s))])
    return total


def _growing(values: Floats) -> Floats:
    """Return these values without their falls: the middle of the least that they were never below again and
    the most that they were before. Of a collective's bytes it is known how many went, not when.
    """
    most_before = np.maximum.accumulate(values)
    least_after = np.minimum.accumulate(values[::-1])[::-1]
    middle: Floats = (most_before + least_after) / 2
    return middle


def grown(times_s: Floats, amounts: Floats, began_s: Floats, ended_s: Floats) -> Floats:
    """Return how much of these amounts there is at these times; each grows evenly from begin to end."""
    slopes = amounts / np.maximum(ended_s - began_s, 1e-9)
    moments = np.concatenate([began_s, np.maximum(ended_s, began_s + 1e-9)])
    order = np.argsort(moments, kind="stable")
    moments, slope = moments[order], np.cumsum(np.concatenate([slopes, -slopes])[order])
    heights = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(moments))])
    amounts_by_now: Floats = np.interp(times_s, moments, heights)
    return amounts_by_now
