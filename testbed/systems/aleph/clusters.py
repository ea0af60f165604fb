"""The report of `testbed cluster`: each method's clusters, and the time that the links allow."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.aggregation.site import declared_site
from testbed.errors import RequestError, TestbedError
from testbed.telemetry.demand import frame_bytes, tcp_framing
from testbed.topology import addresses
from testbed.topology.model import Topology
from testbed.topology.places import Host
from testbed.wire import spec
from testbed.wire.spec import lanes_for
from testbed.wire.votes import Ballot

if TYPE_CHECKING:
    from testbed.systems.aleph.clusterings import Way
    from testbed.systems.aleph.model import Clustering, Instance

MEGABYTES = 97.0
"""Gradients per iteration, in MB: ResNet50's, as in the paper."""


class Clusters:
    """A comparison of ALEPH's clustering methods."""

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--megabytes",
            type=float,
            default=MEGABYTES,
            metavar="N",
            help=f"of gradients in an iteration ({MEGABYTES:g}, ResNet50's)",
        )
        parser.add_argument(
            "--seed", type=int, default=1, metavar="N", help="of the first of 20 runs of ways that draw (1)"
        )
        parser.add_argument("--optimum", action="store_true", help="ask HiGHS for the optima, too")

    def report(
        self,
        topology: Topology,
        workers: Sequence[Host],
        servers: Sequence[Host],
        options: argparse.Namespace,
    ) -> dict[str, Any]:
        from testbed.systems.aleph import baselines, clusterings
        from testbed.systems.aleph.site import instance_at

        _check(options)
        site = declared_site(topology)
        chosen = list(servers) or [site.server(workers)]
        instance = instance_at(site, workers, chosen)
        ways = clusterings.WAYS | (clusterings.OPTIMA if options.optimum else {})
        framing = _framing(topology, len(workers), options.megabytes)
        megabits = 8 * options.megabytes * framing
        rows = [
            _tried(name, ways[name], instance, seeds)
            for name in ways
            for seeds in [range(options.seed, options.seed + (20 if name.startswith("mwcha") else 1))]
        ]
        ring = {"name": clusterings.RING, "title": "a ring, no server", "time": baselines.ring_time(instance)}
        return {
            "configuration": topology.name,
            "workers": [_host(topology, host, instance.capacities[at]) for at, host in enumerate(workers)],
            "servers": [_host(topology, host) for host in chosen],
            "megabytes": options.megabytes,
            "framing": round(framing, 6),
            "methods": [
                *(_timed(row, megabits) for row in rows),
                _timed(ring, 8 * options.megabytes * tcp_framing(topology.mtu)),
            ],
        }

    def lines(self, report: Mapping[str, Any]) -> Sequence[str]:
        workers = [worker["name"] for worker in report["workers"]]
        said = [
            f"{len(workers)} workers: {', '.join(map(_said, report['workers']))}",
            f"parameter server: {', '.join(map(_said, report['servers']))}",
            f"{report['megabytes']:g} MB of gradients an iteration, {report['framing'] - 1:.1%} more with "
            "headers and votes, as links and circuits of the declared rates allow:",
            "",
            f"{'':<15}{'':<36}{'ms':>9}  {'server, ms':>10}  {'contributors':>12}",
        ]
        for method in report["methods"]:
            if "failed" in method:
                said.append(f"{method['name']:<15}{method['title']:<36}{'-':>9}  {method['failed']}")
                continue
            line = f"{method['name']:<15}{method['title']:<36}{method['ms']:>9.1f}"
            if "head" in method:
                line += f"  {method['server_ms']:>10.1f}  {method['contributors']:>12g}{_note(method)}"
            said.append(line)
        for method in report["methods"]:
            if "head" in method:
                said += ["", f"{method['name']}:", *_clusters(method["head"], workers)]
        return said


def _framing(topology: Topology, workers: int, megabytes: float) -> float:
    """Compute the bytes on a link per byte of gradients, with headers and votes on scales."""
    lanes = lanes_for(topology.mtu)
    length = max(1, round(megabytes * 1e6 / topology.scale / 4))
    voters = min(workers, spec.MAX_WORKERS)
    frames = Ballot.of(voters, lanes).pages(length) - (-length // lanes)
    return frames * frame_bytes(lanes) / (4 * length)


def _check(options: argparse.Namespace) -> None:
    if not 0 < options.megabytes < math.inf:
        raise RequestError(f"--megabytes {options.megabytes:g}: a number above 0 is accepted")


def _tried(name: str, way: Way, instance: Instance, seeds: Sequence[int]) -> dict[str, Any]:
    """Run a method with these seeds and return its row; a method that fails has a row with its error."""
    try:
        runs = [way.cluster(instance, seed) for seed in seeds]
    except TestbedError as error:
        return {"name": name, "title": way.title, "failed": str(error)}
    row = _row(name, way.title, instance, runs)
    if row["contributors"] > instance.contributors:
        row["above_server"] = instance.contributors
    return row


def _row(name: str, title: str, instance: Instance, runs: Sequence[Clustering]) -> dict[str, Any]:
    """Make a method's row: the mean values of its runs, and the clusters of the first run."""
    first = runs[0]
    times = [run.time(instance) for run in runs]
    over = [h for h, members in first.clusters.items() if len(members) > instance.capacities[h]]
    return {
        "name": name,
        "title": title,
        "time": statistics.fmean(times),
        "times": times if len(times) > 1 else None,
        "server_time": statistics.fmean(run.server_time(instance) for run in runs),
        "contributors": statistics.fmean(len(run.contributors) for run in runs),
        "head": list(first.head),
        "above_capacity": over,
    }


def _timed(row: dict[str, Any], megabits: float) -> dict[str, Any]:
    """Convert a row's times from those of a unit vector to milliseconds."""
    if "failed" in row:
        return row
    said = {key: value for key, value in row.items() if key not in ("time", "times", "server_time")}
    said["ms"] = round(row["time"] * megabits * 1e3, 3)
    if "server_time" in row:
        said["server_ms"] = round(row["server_time"] * megabits * 1e3, 3)
    if row.get("times"):
        said["runs_ms"] = [round(time * megabits * 1e3, 3) for time in row["times"]]
    return said


def _host(topology: Topology, host: Host, capacity: int | None = None) -> dict[str, Any]:
    said: dict[str, Any] = {
        "name": addresses.host_name(*host),
        "rate_mbps": topology.host(*host).rate_mbps,
    }
    return said if capacity is None else {**said, "capacity": capacity}


def _said(host: Mapping[str, Any]) -> str:
    rate = host["rate_mbps"]
    return f"{host['name']} {'unshaped' if rate is None else f'{rate / 1e3:g} Gb/s'}"


def _note(method: Mapping[str, Any]) -> str:
    runs = method.get("runs_ms")
    notes = [f"{len(runs)} runs, {min(runs):.1f} to {max(runs):.1f}"] if runs else []
    if method.get("above_capacity"):
        notes.append("heads above the paper's capacities")
    if method.get("above_server"):
        notes.append(f"the parameter server takes {method['above_server']}: no job can have it")
    return f"  ({'; '.join(notes)})" if notes else ""


def _clusters(head: Sequence[int], workers: Sequence[str]) -> list[str]:
    said = []
    for leader in sorted(set(head)):
        members = [workers[at] for at, its in enumerate(head) if its == leader and at != leader]
        if members:
            said.append(f"  {workers[leader]} heads {' '.join(members)}")
    heads = {leader for at, leader in enumerate(head) if at != leader}
    alone = [workers[at] for at, its in enumerate(head) if its == at and at not in heads]
    return [*said, *([f"  by themselves: {' '.join(alone)}"] if alone else [])]
