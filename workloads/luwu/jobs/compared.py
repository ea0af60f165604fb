"""Train the byte-level model of text.py by LuWu, or by a scheme to which the paper compares it, and time it.

`testbed run --sync luwu workloads/luwu/jobs/compared.py --scheme luwu --states DIR --out FILE`, or with
`--sync ring --scheme fsdp`: each worker writes FILE.RANK, which `testbed reproduce luwu` reads. A block's
computing time may be declared, as that of a GPU, which needs none of the machine's cores; the model's own
computing time is added to it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from workloads.luwu.errors import LuwuError
from workloads.luwu.intervals import Log, Passes, passes
from workloads.luwu.jobs import schemes
from workloads.luwu.jobs.text import ByteModel, batches, library_text

DEVICE = "eth0"


def link_bytes() -> tuple[int, int]:
    """Return the bytes that this host's link has carried so far, as whole frames: up, down. Return zeros
    outside a testbed.
    """
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == DEVICE:
            fields = numbers.split()
            return int(fields[8]), int(fields[0])
    return 0, 0


class Memory:
    """Measures the memory that training takes beyond what this process had when this object was made."""

    def __init__(self) -> None:
        self._had = _kilobytes("VmRSS")

    def begin(self) -> None:
        """Start measuring: free unused heap memory, and reset the peak."""
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak, VmHWM; proc(5)

    def peak_bytes(self) -> int:
        return 1024 * max(0, _kilobytes("VmHWM") - self._had)


def _kilobytes(field: str) -> int:
    line = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert line, field
    return int(line[1])


def declare(model: ByteModel, forward_s: float, backward_s: float) -> None:
    """Add declared times to each block's forward and backward pass, after the hooks that pull its
    parameters.
    """
    if not forward_s and not backward_s:
        return

    def before(*_: object) -> None:
        time.sleep(forward_s)

    def after(module: nn.Module, arguments: object, output: torch.Tensor) -> None:
        if output.requires_grad:
            output.register_hook(lambda _: time.sleep(backward_s))  # type: ignore[no-untyped-call]

    for block in model.blocks:
        block.register_forward_pre_hook(before)
        block.register_forward_hook(after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A worker's measurements: phases and losses by iteration, the bytes of its link per iteration, up and
    down, and its peak memory.
    """

    scheme: str
    rank: int
    workers: int
    elements: int
    iterations: Sequence[Passes]
    losses: Sequence[float]
    up_bytes: float
    down_bytes: float
    peak_bytes: int


def train(args: argparse.Namespace) -> Comparison:
    """Train, and return this worker's measurements."""
    rank, workers = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(1)
    dist.init_process_group(args.backend)
    meet: Callable[[], Any] = dist.barrier
    drawn = batches(library_text(), args.batch, args.length, args.seed, rank, 0, args.warm_up + args.steps)
    memory = Memory()
    torch.manual_seed(args.seed)
    model = ByteModel(args.layers, args.width, args.heads, args.length)
    elements = sum(each.numel() for each in model.parameters())
    log = Log()
    scheme = schemes.SCHEMES[args.scheme](model, args, log)
    declare(model, args.forward_ms / 1e3, args.backward_ms / 1e3)
    rows, losses = [], []
    before = link_bytes()
    for number, texts in enumerate(drawn):
        if number == args.warm_up:
            memory.begin()
            meet()
            before = link_bytes()
            log.taken()
        marks = [time.monotonic_ns()]
        scores = scheme.model(texts[:, :-1]).float()
        loss = functional.cross_entropy(scores.flatten(0, 1), texts[:, 1:].flatten())
        marks.append(time.monotonic_ns())
        scheme.backward(loss)
        marks.append(time.monotonic_ns())
        scheme.step()
        marks.append(time.monotonic_ns())
        losses.append(loss.item())
        if number >= args.warm_up:
            rows.append(passes(*log.taken(), marks))
    after = link_bytes()
    measured = Comparison(
        scheme=args.scheme,
        rank=rank,
        workers=workers,
        elements=elements,
        iterations=rows,
        losses=losses,
        up_bytes=(after[0] - before[0]) / max(1, args.steps),
        down_bytes=(after[1] - before[1]) / max(1, args.steps),
        peak_bytes=memory.peak_bytes(),
    )
    meet()
    scheme.close()
    dist.destroy_process_group()
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheme", required=True, choices=schemes.SCHEMES)
    parser.add_argument("--backend", default="gloo", choices=("gloo", "inc"), help="of the group (gloo)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="results: FILE.RANK, as JSON")
    parser.add_argument(
        "--states", action="append", default=[], metavar="DIR", help="a disk of states; again"
    )
    parser.add_argument("--disk-mb-s", type=float, metavar="R", help="declared, of each disk and way")
    parser.add_argument("--forward-ms", type=float, default=0.0, metavar="MS", help="declared, of a block")
    parser.add_argument("--backward-ms", type=float, default=0.0, metavar="MS", help="declared, of a block")
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="iterations that count (5)")
    parser.add_argument("--warm-up", type=int, default=2, metavar="N", help="iterations before them (2)")
    parser.add_argument("--layers", type=int, default=4, metavar="N")
    parser.add_argument("--width", type=int, default=64, metavar="N")
    parser.add_argument("--heads", type=int, default=4, metavar="N")
    parser.add_argument("--length", type=int, default=32, metavar="BYTES", help="of a text (32)")
    parser.add_argument("--batch", type=int, default=1, metavar="N", help="texts a worker (1)")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        measured = train(args)
    except LuwuError as problem:
        print(f"compared.py: {problem}", file=sys.stderr)
        return 1
    args.out.with_name(f"{args.out.name}.{measured.rank}").write_text(json.dumps(asdict(measured)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
