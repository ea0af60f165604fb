"""Train a byte-level transformer on the sources of Python's own library, with parameters and states on the
disks of an optimizer node.

On the testbed: `.venv/bin/testbed run --sync luwu workloads/luwu/jobs/text.py --states DIR`. Elsewhere it
trains with a node in its own process. An iteration is one batch on each worker; gradients are averaged.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import sysconfig
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from workloads.luwu import gantt
from workloads.luwu.errors import LuwuError
from workloads.luwu.job import NICS
from workloads.luwu.rates import Rates
from workloads.luwu.training import NodeOptimizer, initialize
from workloads.luwu.transport import AT_STEP, IN_BACKWARD, UPDATES

BYTES = 256


class Block(nn.Module):
    """Causal self-attention and two dense layers, each after a norm and with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.before_attention, self.before_dense = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, length, width) to the same shape."""
        batch, length, width = x.shape
        parts = self.attention(self.before_attention(x)).chunk(3, dim=-1)
        query, key, value = (
            part.view(batch, length, self._heads, width // self._heads).transpose(1, 2) for part in parts
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        changed: Tensor = x + self.dense(self.before_dense(x))
        return changed


class ByteModel(nn.Module):
    """A transformer that predicts each next byte of a text."""

    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(BYTES, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, BYTES)

    def forward(self, text: Tensor) -> Tensor:
        """Map (batch, length) bytes to (batch, length, 256) scores."""
        x = self.embedding(text) + self.positions(torch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores


def library_text() -> Tensor:
    """Return the sources of Python's own library as a 1-D tensor of bytes."""
    folder = Path(sysconfig.get_path("stdlib"))
    content = b"\n".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def batches(text: Tensor, batch: int, length: int, seed: int, worker: int, first: int, steps: int) -> Tensor:
    """Draw a worker's batches from iteration `first` on: (steps, batch, length + 1) bytes. A given
    iteration's batch is always the same.
    """
    drawn = torch.empty(steps, batch, length + 1, dtype=torch.int64)
    for step in range(steps):
        chance = torch.Generator().manual_seed(hash((seed, worker, first + step)) % 2**63)
        starts = torch.randint(len(text) - length, (batch,), generator=chance)
        for row, start in enumerate(starts.tolist()):
            drawn[step, row] = text[start : start + length + 1]
    return drawn


def train(args: argparse.Namespace, worker: int, workers: int) -> None:
    torch.manual_seed(args.seed)
    model: nn.Module = ByteModel(args.layers, args.width, args.heads, args.length).bfloat16()
    elements = sum(each.numel() for each in model.parameters())
    adamw = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    rates = args.rates and Rates.parsed(args.rates).scaled(args.scale)
    model, optimizer = initialize(
        model,
        adamw,
        args.states,
        resume=args.resume,
        rates=rates,
        nic=args.nic,
        detect_ms=args.detect,
        update=args.update or (IN_BACKWARD if args.clip is None else AT_STEP),
    )
    first = optimizer.iteration
    print(f"{elements} parameters, from iteration {first}", flush=True)
    drawn = batches(library_text(), args.batch, args.length, args.seed, worker, first, args.steps)
    began, waited_s = time.perf_counter(), optimizer.waited_s
    for step, texts in enumerate(drawn):
        optimizer.zero_grad()
        scores = model(texts[:, :-1]).float()
        loss = functional.cross_entropy(scores.flatten(0, 1), texts[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        if args.clip is not None:
            optimizer.clip_grad_norm_(args.clip)
        optimizer.step()
        tokens = (step + 1) * workers * args.batch * args.length
        passed_s = time.perf_counter() - began
        said = f"{tokens / passed_s:.0f} tokens/s, {(optimizer.waited_s - waited_s) / passed_s:.0%} waiting"
        print(f"iteration {optimizer.iteration}: loss {loss.item():.6f}, {said}", flush=True)
    if args.gantt is not None:
        keep_picture(optimizer, args.gantt, worker)
    print(f"parameters {digest(model, optimizer)}", flush=True)
    optimizer.close()


def keep_picture(optimizer: NodeOptimizer, picture: Path, worker: int) -> None:
    """Write the node's spans as JSON next to the picture, and draw the last two iterations."""
    record = picture.with_suffix(".json")
    optimizer.record(record)
    if worker == 0:
        spans = gantt.read(record)
        gantt.draw([span for span in spans if span.iteration > optimizer.iteration - 2], picture)
        print(f"{len(spans)} steps and requests in {record}, drawn in {picture}", flush=True)


def digest(model: nn.Module, optimizer: NodeOptimizer) -> str:
    """Return 16 hex digits that are equal for models whose parameters are equal to the bit."""
    summed = hashlib.sha256()
    with optimizer.gathered():
        for value in model.state_dict().values():
            summed.update(value.clone().view(torch.uint8).numpy().tobytes())  # numpy pins its storage
    return summed.hexdigest()[:16]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    states = "an empty folder for the states, or with --resume theirs; one for each disk"
    parser.add_argument("--states", required=True, action="extend", nargs="+", metavar="DIR", help=states)
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="iterations (20)")
    parser.add_argument("--layers", type=int, default=4, metavar="N")
    parser.add_argument("--width", type=int, default=64, metavar="N")
    parser.add_argument("--heads", type=int, default=4, metavar="N")
    parser.add_argument("--length", type=int, default=64, metavar="BYTES", help="of a text (64)")
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="texts a worker (8)")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, metavar="NORM", help="clip gradients to this global norm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on where the states are")
    parser.add_argument("--nic", choices=NICS, default="process", help="where the transport runs (process)")
    parser.add_argument("--detect", type=float, metavar="MS", help="without an acknowledgement, then again")
    update = "when the node updates a layer: as its gradients come (without --clip), or in the step (with it)"
    parser.add_argument("--update", choices=UPDATES, help=update)
    rates = "declared of each disk: reads=, read_parameters=, read_states=, write_states=BYTES/S, by commas"
    parser.add_argument("--rates", metavar="RATES", help=rates)
    parser.add_argument("--scale", type=float, default=1.0, help="divides the rates (1)")
    picture = "draw the last two iterations as the node measured them; all of them beside it, as JSON"
    parser.add_argument("--gantt", type=Path, metavar="PICTURE.png", help=picture)
    try:
        train(parser.parse_args(), int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))
    except LuwuError as problem:
        print(f"text.py: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
