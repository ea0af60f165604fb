"""Random valid topologies, each brought up, pinged, and summed over: every legal setting works.

Draws are hypothesis's, from a seed that is part of the message of a failure.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from testbed.topology import addresses
from testbed.topology.load import parse
from testbed.topology.model import Topology
from testbed.topology.units import Unit
from tests.privileged.commands import ROOT, command, running

EXACT = ROOT / "tests" / "privileged" / "jobs" / "whole.py"
PING_S = 5

RATES = st.one_of(st.just("unshaped"), st.integers(2_000, 40_000))
DELAYS = st.one_of(
    st.integers(0, 30),
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda ends: {"uniform": sorted(ends)}),
    st.tuples(st.integers(0, 20), st.integers(0, 5)).map(lambda values: {"normal": list(values)}),
)
MTUS_OF_BMV2 = (1500, 3476)  # for which its program is kept compiled


@st.composite
def configurations(draw: st.DrawFn, most_units: int = 5, bmv2: bool = False) -> dict[str, Any]:
    """Draw a configuration, as the content of a file."""
    engines = ("xdp", "xdp", "none", *(("bmv2",) if bmv2 else ()))
    host = st.fixed_dictionaries({}, optional={"rate_mbps": RATES, "cpus": st.sampled_from((0.5, 1.0, 1.5))})
    units = []
    for _ in range(draw(st.integers(1, most_units))):
        unit: dict[str, Any] = {
            "kind": draw(st.sampled_from(("gpu", "cpu", "optimizer"))),
            "hosts": draw(st.one_of(st.integers(1, 4), st.lists(host, min_size=1, max_size=3))),
            "optical_ports": draw(st.integers(1, 4)),
            "engine": draw(st.sampled_from(engines)),
        }
        if unit["engine"] != "bmv2" and draw(st.integers(0, 3)) == 0:
            unit["racks"] = draw(st.integers(1, 3))
        units.append(unit)
    has_bmv2 = any(unit["engine"] == "bmv2" for unit in units)
    mtus = st.sampled_from(MTUS_OF_BMV2) if has_bmv2 else st.sampled_from((1280, 1400, 1500, 3000, 3476))
    return {
        "units": units,
        "host_rate_mbps": draw(RATES),
        "optical_rate_mbps": draw(RATES),
        "buffer_packets": draw(st.sampled_from((64, 256, 1000))),
        "mtu": draw(mtus),
        "scale": draw(st.sampled_from((100, 200, 400))),
        "shared": draw(st.booleans()),
        "inc": {"jobs": draw(st.integers(1, 8))},
        "ocs": {"switch_ms": draw(DELAYS), "lock_ms": draw(DELAYS), "seed": draw(st.integers(0, 99))},
    }


def joined(topology: Topology) -> set[tuple[Unit, Unit]]:
    """Return the pairs of units that the initial circuits join."""
    ends = [[addresses.parse_optical_port(end)[0] for end in circuit] for circuit in topology.ocs.circuits]
    return {(a, b) for a, b in ends}


def work_of(topology: Topology) -> tuple[str, str]:
    """Return the placement of a job of two workers, and the system that sums for it: across units where
    circuits join them, and at switches where these can sum.
    """
    across = sorted(joined(topology))
    units = [topology.unit(unit) for unit in across[0]] if across else [topology.units[0]]
    workers = ",".join(f"{unit.name}:1" for unit in units)
    if not across:
        workers = f"{units[0].name}:{min(2, len(units[0].members))}"
    return workers, "switches" if all(unit.data_plane.sums for unit in units) else "ring"


def check(configuration: dict[str, Any], folder: Path, say: Callable[[str], None]) -> None:
    """Bring a configuration up, ping between every two units that a circuit joins, and check a job's sums."""
    began = time.monotonic()
    topology = parse(configuration, "drawn")
    file = folder / "drawn.yaml"
    file.write_text(yaml.safe_dump(configuration))
    with running(str(file)) as testbed:
        pinged(testbed.name, topology)
        workers, system = work_of(topology)
        words = ["--name", testbed.name, "--place", workers, "--sync", system, str(EXACT)]
        ran = command("testbed.run", *words)
        assert ran.returncode == 0, f"{' '.join(words)}: {ran.stdout[-500:]} {ran.stderr[-2000:]}"
    kinds = ",".join(unit.engine + (f"*{unit.racks}" if unit.racks else "") for unit in topology.units)
    say(
        f"{len(topology.units)} units ({kinds}), {len(topology.host_names)} hosts, mtu {topology.mtu}: "
        f"{workers} by {system}, {time.monotonic() - began:.1f} s"
    )


def pinged(name: str, topology: Topology) -> None:
    """Ping from the first host of each unit to the last host of each unit that a circuit joins with it, and
    to the last of its own.
    """
    answer = json.loads(command("testbed.status", "--name", name, "--json").stdout)
    ips = {host["name"]: host["ip"] for host in answer["hosts"]}
    assert len(answer["circuits"]) == len(topology.ocs.circuits)
    hosts = {unit.index: [addresses.host_name(*host) for host in unit.members] for unit in topology.units}
    for a, b in sorted(joined(topology)) + [(unit, unit) for unit in hosts if len(hosts[unit]) > 1]:
        source, target = hosts[a][0], hosts[b][-1]
        ping = ["ping", "-c", "1", "-W", str(PING_S), ips[target]]
        done = command("testbed.exec", "--name", name, source, "--", *ping)
        assert done.returncode == 0, f"ping from {source} to {target}: {done.stdout} {done.stderr}"


def has_bmv2() -> bool:
    return shutil.which("simple_switch") is not None


def tried(count: int, number: int, folder: Path, most_units: int, say: Callable[[str], None] = print) -> None:
    """Check `count` drawn configurations. AssertionError names the seed and the configuration that failed."""

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(configurations(most_units, has_bmv2()))
    def drawn(configuration: dict[str, Any]) -> None:
        try:
            check(configuration, folder, say)
        except BaseException as error:
            raise AssertionError(f"seed {number}: {json.dumps(configuration)}: {error}") from error

    drawn()
