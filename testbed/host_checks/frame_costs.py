"""Measure once for a machine how long one of its cores takes for a frame (testbed/emulation/frame_cost.py),
and keep the result in the cache folder. Count the cores that this process may use.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.client import environment
from testbed.client.atomic_write import write_whole
from testbed.errors import HostError, TestbedError
from testbed.host_checks.features import ProbeFailure
from testbed.host_checks.headers import cache_folder
from testbed.host_checks.host import UNSHARE, ProbeFault, said_by_ours
from testbed.host_checks.required_kernel import sources
from testbed.interpreters import isolated

NAME = "frame-cost-{mtu}"  # a file of the cache folder
CPUINFO, OWN_CGROUP, CGROUPS = Path("/proc/cpuinfo"), Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
BUSY_TIMES = 2.0  # how much longer than the best trial the middle one takes if the machine is busy
_WITHIN_S = 120.0
_LEAST_US, _MOST_US = 0.05, 1e5  # anything else in a file was not measured


@dataclass(frozen=True, slots=True)
class FrameCost:
    """The microseconds of one core for a frame and its result: of the best trial, and of the middle one.
    `measured_s`: when, in seconds since 1970.
    """

    best_us: float
    middle_us: float
    measured_s: float

    @property
    def was_busy(self) -> bool:
        """Return whether other programs used the core in many of the trials."""
        return self.middle_us > BUSY_TIMES * self.best_us


def frame_cost(
    mtu: int, measure: Callable[[int], Sequence[float]] | None = None, folder: Path | None = None
) -> tuple[FrameCost, bool]:
    """Return the cost of a frame of that MTU here, and whether it was measured now rather than earlier, of
    the same code on the same machine. `measure` makes the trials, in microseconds. HostError if it fails.
    """
    file = (folder or cache_folder()) / NAME.format(mtu=mtu)
    facts = _facts(mtu)
    if (kept := _kept(file, facts)) is not None:
        return kept, False
    trials = (measure or _measured)(mtu)
    cost = FrameCost(min(trials), statistics.median(trials), time.time())
    with contextlib.suppress(OSError):  # without a writable cache it is measured each time
        file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        write_whole(file, json.dumps({"facts": facts, **asdict(cost)}).encode())
    return cost, True


def cores_allowed() -> float:
    """Return how many cores this process may use, by its affinity and by the limits of its cgroups."""
    cores = float(len(os.sched_getaffinity(0)))
    with contextlib.suppress(OSError):
        match = re.search(r"^0::/(.*)$", OWN_CGROUP.read_text(), re.MULTILINE)
        folder = CGROUPS / match[1] if match else CGROUPS
        for each in (folder, *folder.parents):
            cores = min(cores, _limit(each / "cpu.max"))
            if each == CGROUPS:
                break
    return cores


def _limit(file: Path) -> float:
    """Return the cores that a cgroup's file allows; infinity without a limit."""
    try:
        quota, period = file.read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such file at the root, and the word max
        return math.inf


def _kept(file: Path, facts: str) -> FrameCost | None:
    """Read what was kept; None if there is nothing, or nothing of this code and machine."""
    try:
        data: Any = json.loads(file.read_text())
        cost = FrameCost(*(float(data[name]) for name in ("best_us", "middle_us", "measured_s")))
        is_same = data["facts"] == facts
    except (OSError, ValueError, TypeError, KeyError):
        return None
    is_sane = _LEAST_US <= cost.best_us <= cost.middle_us <= _MOST_US
    return cost if is_same and is_sane and 0 <= cost.measured_s <= time.time() else None


def _measured(mtu: int) -> list[float]:
    """Make the trials, in namespaces that end with them."""
    argv = [
        *UNSHARE,
        *isolated("-m", "testbed.emulation.frame_cost", str(mtu), path=environment.interpreter()),
    ]
    try:
        return [float(line) for line in said_by_ours(argv, _WITHIN_S).splitlines()]
    except ProbeFailure as failure:
        raise HostError(f"scale: auto: a frame's cost could not be measured: {failure}") from failure
    except (ProbeFault, ValueError) as fault:
        raise TestbedError(f"a fault of the testbed's own in what measures frames: {fault}") from fault


def _facts(mtu: int) -> str:
    """Return a digest of what the cost depends on: kernel, processor, cores, and the measured code."""
    model = re.findall(r"^model name\s*: (.*)$", CPUINFO.read_text(), re.MULTILINE)[:1]
    made = hashlib.sha256(f"{os.uname().release} {model} {cores_allowed()} {mtu}".encode())
    emulation = Path(__file__).parents[1] / "emulation"
    for path in [*sources(), *(emulation / name for name in ("frame_cost.py", "links.py", "netlink.py"))]:
        made.update(path.read_bytes())
    return made.hexdigest()
