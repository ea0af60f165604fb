"""Ask for circuits as a list of steps says, and print what came of each, a JSON object a line.

A step is {"circuits": [...]}, with the arguments of `during`; `begins`: ask when this file exists; `until`:
hold them until this file exists; `dies`: the rank that is killed within the block; `sum`: sum within it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import testbed.circuits


def main() -> None:
    dist.init_process_group("inc")
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in json.loads(sys.argv[1]):
        only = step.pop("rank", rank)
        until, dies, sums = step.pop("until", None), step.pop("dies", None), step.pop("sum", False)
        if rank != only:
            continue
        begins = step.pop("begins", None)
        while begins and not Path(begins).exists():
            time.sleep(0.02)
        report: dict[str, Any] = {"rank": rank}
        try:
            with testbed.circuits.during(*step.pop("circuits"), **step) as light:
                report |= {"circuits": light.circuits, "changed": light.is_changed, "dark_ms": light.dark_ms}
                for _ in range(10 if sums else 0):
                    value = torch.full((20_011,), 1.0 + rank)
                    dist.all_reduce(value)
                    assert (value == world * (world + 1) / 2).all()
                if until:
                    print(json.dumps({"holds": report["circuits"], "rank": rank}), flush=True)
                while until and not Path(until).exists():
                    time.sleep(0.02)
                if dies == rank:
                    os.kill(os.getpid(), signal.SIGKILL)
        except testbed.circuits.CircuitsRefusedError as error:
            report["refused"] = str(error)
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
