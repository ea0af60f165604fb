"""A worker of the speed benchmarks: time all-reduces through the aggregator, gloo and a parameter server in
turn. Prints one JSON line.

tests/bench/rack.py defines its settings. Times are of CLOCK_MONOTONIC, so that they compare between workers.
A worker's CPU time is its own process's. The machine's is everything that ran meanwhile, including the
kernel's packet processing. The switches' is that of their processes, if there are any.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from testbed.wire.settings import EndpointSettings, read
from tests.privileged.summing_worker import Alone

Vector = npt.NDArray[np.float32]
Reducing = tuple[Callable[[Vector], None], Callable[[], dict[str, float]]]
"""A function that reduces a vector, and one that returns its counters."""
_NICE, _TICKS = (
    os.sysconf("SC_CLK_TCK"),
    (0, 1, 2, 5, 6),
)  # of /proc/stat's line: user, nice, system, irq, softirq


def inc(own: EndpointSettings, settings: dict[str, Any]) -> Reducing:
    """Open the aggregator's endpoint, and return its all-reduce and counters. `library` may name another
    compiled endpoint.
    """
    from workloads import endpoint

    if settings["library"]:
        endpoint._LIBRARY = Path(settings["library"])
    board = Alone(settings.get("is_parallel", False))
    opened = endpoint.Endpoint(own, board, 60.0)  # type: ignore[arg-type]

    def counters() -> dict[str, float]:
        fields = opened.counters
        return {name: getattr(fields, name) for name, *_ in fields._fields_}

    return opened.allreduce, counters


def gloo(own: EndpointSettings, settings: dict[str, Any]) -> Reducing:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    address = f"tcp://{settings['master']}:29500"
    dist.init_process_group("gloo", init_method=address, rank=own.worker, world_size=own.workers)

    def reduce(array: Vector) -> None:
        dist.all_reduce(torch.from_numpy(array))

    return reduce, dict


def ps(own: EndpointSettings, settings: dict[str, Any]) -> Reducing:
    from workloads.ps_client import PsClient

    address, port = settings["server"]
    client = PsClient((address, port), own.worker, own.workers, 60.0, settings["server_job"])
    return client.allreduce_, dict


def cpu_s() -> float:
    """Return this process's CPU time so far, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def machine_busy_s() -> float:
    """Return the busy time of all cores since boot, in seconds. The kernel counts it by timer ticks, some
    hundred a second.
    """
    ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    return sum(int(ticks[at]) for at in _TICKS) / _NICE


def processes_s(pids: list[int]) -> float:
    """Return the CPU time of other processes so far, all their threads included."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(of[11]) + int(of[12]) for of in fields) / _NICE  # utime, stime


def main() -> None:
    own, settings = read(EndpointSettings, sys.argv[1]), json.loads(sys.argv[2])
    kinds = {kind: {"inc": inc, "gloo": gloo, "ps": ps}[kind](own, settings) for kind in settings["kinds"]}
    array = np.ones(settings["bytes"] // 4, np.float32)
    barrier = np.ones(1, np.float32)
    figures: dict[str, dict[str, Any]] = {
        kind: {"starts": [], "ends": [], "cpu_s": 0.0, "machine_s": 0.0, "switches_s": 0.0} for kind in kinds
    }

    def turn(kind: str, counts: bool) -> None:
        reduce, of = kinds[kind][0], figures[kind]
        array[:] = 1.0
        barrier[:] = 1.0
        reduce(barrier)
        machine, used, switches = machine_busy_s(), cpu_s(), processes_s(settings["switches"])
        start = time.monotonic()
        reduce(array)
        end = time.monotonic()
        used, machine = cpu_s() - used, machine_busy_s() - machine
        switches = processes_s(settings["switches"]) - switches
        barrier[:] = 1.0
        reduce(barrier)  # the next kind must not run beside workers that are not done
        assert (array == own.workers).all(), f"{kind}: a wrong sum"
        if counts:
            of["starts"].append(start)
            of["ends"].append(end)
            of["cpu_s"] += used
            of["machine_s"] += machine
            of["switches_s"] += switches

    for kind in kinds:
        turn(kind, False)
    for _ in range(settings["rounds"]):
        for kind in kinds:
            for _ in range(settings["turns"]):
                turn(kind, True)
    for kind, (_, counters) in kinds.items():
        figures[kind]["counters"] = counters()
    print(json.dumps(figures), flush=True)
    os._exit(0)  # a normal exit aborts if gloo's threads still run (torch 2.13)


if __name__ == "__main__":
    main()
