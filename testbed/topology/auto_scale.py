"""Choose the scale at which a machine's cores keep up with a topology's links (`scale: auto`). Pure: the time
that a frame takes on this machine is an argument, which testbed/host_checks/frame_costs.py measures.

The load is the worst that jobs can make: all hosts push at the rates of their links and receive as much, and
as much of it as fits crosses the links between switches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from testbed.errors import RequestError
from testbed.topology import addresses
from testbed.topology.model import Topology, UnitSpec
from testbed.topology.values import MAX_MBPS, MIN_MBPS
from testbed.wire.frame import ETHERNET_BYTES

# The share of all cores that frames may take by their measured cost, which is that of bursts. At the rates of
# links they come one by one and take longer; and the tolerance of a verdict (telemetry/verdict.py) leaves
# workers little time to wait for a core. docs/studies/verdict.md, "Scales that machines choose", derives it.
FRAMES_SHARE = 0.037
SWITCH_LINK_PARTS = 0.5  # of a frame's cost at a host: it passes a link and a switch, but no worker
LEAST, MOST = 1, 100_000


@dataclass(frozen=True, slots=True)
class AutoScale:
    """A chosen scale. `frames_per_s`: the frames that all hosts send at once at this scale. `held_by`: in
    words, why it is another one than that at which the cores keep up; None if it is that one.
    """

    scale: int
    frames_per_s: float
    held_by: str | None = None


def cores_needed(topology: Topology, frame_us: float) -> float:
    """Compute how many cores the frames of the declared rates would take if each host's frame and its result
    take `frame_us` on one core.
    """
    per_s = 1e6 / (8 * (topology.mtu + ETHERNET_BYTES))  # frames at a megabit a second
    return sum(_weighted_mbps(topology, unit) for unit in topology.units) * per_s * frame_us / 1e6


def auto_scale(topology: Topology, frame_us: float, cores: float) -> AutoScale:
    """Choose the scale for a machine with that many cores, rounded up to two digits. RequestError if no scale
    brings all rates into the range that can be emulated.
    """
    rates = list(_rates(topology))
    low = max(LEAST, math.ceil(max(rates, default=0.0) / MAX_MBPS))
    high = min(MOST, math.floor(min(rates, default=math.inf) / MIN_MBPS) if rates else MOST)
    if low > high:
        raise RequestError(
            f"scale: auto; links of {min(rates):g} and {max(rates):g} Mb/s are declared, and at no scale all "
            f"have {MIN_MBPS:g} to {MAX_MBPS:g} Mb/s"
        )
    wanted = two_digits_up(cores_needed(topology, frame_us) / (FRAMES_SHARE * cores))
    scale = min(max(wanted, low), high)
    why = None
    if scale < wanted:
        slowest = (
            f"the slowest link has {min(rates) / scale:.3g} Mb/s" if high < MOST else "it is the largest"
        )
        why = f"these cores keep up at {wanted}, but {slowest}"
    return AutoScale(scale, _frames_per_s(topology, scale), why)


def with_scale(topology: Topology, frame_us: float, cores: float) -> tuple[Topology, AutoScale]:
    """Return the topology with the chosen scale, and the choice."""
    choice = auto_scale(topology, frame_us, cores)
    return replace(topology, scale=choice.scale), choice


def in_words(choice: AutoScale, cores: float, measured: str) -> str:
    """Format a choice in one line. `measured`: when and how the cost of a frame was."""
    if choice.held_by:
        return f"scale {choice.scale}: {choice.held_by} ({measured})"
    if not choice.frames_per_s:
        return f"scale {choice.scale}: no host's link has a rate"
    count = f"{cores:g} core{'s' if cores != 1 else ''}"
    return (
        f"scale {choice.scale}: {count} keep up with {choice.frames_per_s:,.0f} frames a second, all hosts "
        f"together ({measured})"
    )


def two_digits_up(value: float) -> int:
    """Round up to a whole number with two significant digits, at least 1."""
    if value <= 1:
        return 1
    step: int = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return math.ceil(value / step - 1e-9) * step


def _weighted_mbps(topology: Topology, unit: UnitSpec) -> float:
    """Sum the declared rates of a unit's links, each as often as its frames cost what a host's do in XDP."""
    hosts = _hosts_mbps(topology, unit)
    sent = sum(hosts)
    crossing = sum(min(sum(links), sent) for links in (_pod_mbps(topology, unit), _ways_mbps(topology, unit)))
    return unit.data_plane.frame_times * (sent + SWITCH_LINK_PARTS * crossing)


def _hosts_mbps(topology: Topology, unit: UnitSpec) -> list[float]:
    return _shaped(topology.host(*host).rate_mbps for host in unit.members)


def _pod_mbps(topology: Topology, unit: UnitSpec) -> list[float]:
    racks = unit.rack_numbers if unit.racks else ()
    return _shaped(topology.pod_mbps(addresses.rack_name(unit.index, rack)) for rack in racks)


def _ways_mbps(topology: Topology, unit: UnitSpec) -> list[float]:
    """Return the rates of the links by which a unit's frames leave it."""
    core = [topology.core_mbps(addresses.core_link_name(unit.index))] if unit.has_core else []
    return _shaped([*map(topology.optical_mbps, unit.ports), *core])


def _shaped(rates: Iterable[float | None]) -> list[float]:
    """Return the rates of links that have one: at unshaped links the scale changes nothing."""
    return [rate for rate in rates if rate is not None]


def _rates(topology: Topology) -> Iterator[float]:
    """Yield the declared rate of each link that has one."""
    for unit in topology.units:
        for rates in (_hosts_mbps, _pod_mbps, _ways_mbps):
            yield from rates(topology, unit)


def _frames_per_s(topology: Topology, scale: int) -> float:
    sent = sum(sum(_hosts_mbps(topology, unit)) for unit in topology.units)
    return sent / scale * 1e6 / (8 * (topology.mtu + ETHERNET_BYTES))
