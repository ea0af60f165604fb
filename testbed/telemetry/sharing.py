"""Compute the share of a link that other jobs left to a job. Pure; docs/verdict.md has the argument.

The bytes of other jobs that crossed a link during a sum prove nothing by themselves: the longer the machine
delays a sum, the more they are. Their rate counts, and a job is always allowed its fair share, however much
the others send while it is delayed.
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
    """Return for each collective the share of the joint rate of these links that was available to this job:
    what other jobs left while the collective was under way, from `asked_s` to `ready_s`; at least 1 / k among
    k jobs.

    `own_so_far` are the job's bytes at each reading, retransmissions included; `rates_mbps` the joint rates;
    `others` the number of other jobs that crossed the links in each interval between readings.
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
    """Integrate a count over time up to each reading; it is constant between readings."""
    total: Floats = np.concatenate([[0.0], np.cumsum(counts * np.diff(times_s))])
    return total


def _growing(values: Floats) -> Floats:
    """Make values monotonic: take the mean of the running maximum and of the minimum of all later values. Of
    a collective's bytes only the number is known, not when each was sent.
    """
    most_before = np.maximum.accumulate(values)
    least_after = np.minimum.accumulate(values[::-1])[::-1]
    middle: Floats = (most_before + least_after) / 2
    return middle


def grown(times_s: Floats, amounts: Floats, began_s: Floats, ended_s: Floats) -> Floats:
    """Return how much of these amounts is complete at these times; each grows linearly from its begin to its
    end.
    """
    slopes = amounts / np.maximum(ended_s - began_s, 1e-9)
    moments = np.concatenate([began_s, np.maximum(ended_s, began_s + 1e-9)])
    order = np.argsort(moments, kind="stable")
    moments, slope = moments[order], np.cumsum(np.concatenate([slopes, -slopes])[order])
    heights = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(moments))])
    amounts_by_now: Floats = np.interp(times_s, moments, heights)
    return amounts_by_now
