"""The error of sums of real gradients: by the quantiser, by a ring in binary32, and with one scale for a
whole vector.

`python -m tests.bench.precision [--workers 2,8] [--steps 0,20,100] [--json FILE]`. Models are trained in this
process: each worker has data of its own, and all gradients are known. A vector is what DDP passes to the
backend: all parameters from the last to the first, divided by the number of workers. Its error is the L2 norm
of the sum's difference from binary64's. The ring adds in binary32, each of W pieces of the vector starting at
another worker, as gloo's does. No network, no root.

Prints the ratio of the quantiser's error to the ring's, the same for one scale, the share of non-zero values
that became zero, and the share of fragments whose largest magnitude lies where buckets are finest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from testbed.wire import spec
from testbed.wire.votes import FINE_ABOVE, FINE_TO
from tests.bench.goodput import numbers
from tests.bench.host import ROOT, facts
from workloads import quantiser
from workloads.jobs.digits import DigitsNet, digits

Loss = Callable[[int, int], Tensor]  # (worker, step) -> loss
Vectors = Sequence[npt.NDArray[np.float32]]

CONTEXT, WIDTH, HEADS, DEPTH, BATCH = 64, 128, 4, 3, 16


class CharacterTransformer(nn.Module):
    """A transformer of 630,000 parameters that predicts the next byte of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.of_byte, self.of_place = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, DEPTH)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, text: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
        states = self.of_byte(text) + self.of_place(torch.arange(CONTEXT))
        states = self.layers(states, mask=mask, is_causal=True)
        out: Tensor = self.head(states)
        return out


def of_digits() -> tuple[nn.Module, Loss]:
    """Return the model of the repository's digits job, and its loss."""
    model, (images, labels) = DigitsNet(), digits()[0].tensors

    def loss(worker: int, step: int) -> Tensor:
        chosen = torch.randint(
            len(labels), (BATCH,), generator=torch.Generator().manual_seed(1000 * step + worker)
        )
        return nn.functional.cross_entropy(model(images[chosen]), labels[chosen])

    return model, loss


def of_text() -> tuple[nn.Module, Loss]:
    """Return a transformer that is trained on the documents, and its loss."""
    text = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))).encode()
    model, data = CharacterTransformer(), torch.tensor(list(text))

    def loss(worker: int, step: int) -> Tensor:
        chance = torch.Generator().manual_seed(1000 * step + worker)
        starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=chance)
        texts = torch.stack([data[start : start + CONTEXT + 1] for start in starts])
        return nn.functional.cross_entropy(model(texts[:, :-1]).flatten(0, 1), texts[:, 1:].flatten())

    return model, loss


MODELS = {"digits": of_digits, "transformer": of_text}


def gradients(
    model: nn.Module, loss: Loss, workers: int, steps: Sequence[int]
) -> Iterator[tuple[int, Vectors]]:
    """Train the model, and yield the gradients of all workers at these steps, divided by the number of
    workers.
    """
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    for step in range(max(steps) + 1):
        rows = []
        for worker in range(workers):
            optimiser.zero_grad()
            loss(worker, step).backward()  # type: ignore[no-untyped-call]
            grads = [parameter.grad for parameter in reversed(list(model.parameters()))]
            rows.append(torch.cat([grad.flatten() for grad in grads if grad is not None]) / workers)
        if step in steps:
            yield step, [row.numpy() for row in rows]
        at, mean = 0, torch.stack(rows).sum(0)
        for parameter in reversed(list(model.parameters())):
            parameter.grad = mean[at : at + parameter.numel()].view_as(parameter)
            at += parameter.numel()
        optimiser.step()


def by_ring(vectors: Vectors) -> npt.NDArray[np.float32]:
    """Return the sum in binary32; each piece is added from another worker on."""
    pieces = [np.array_split(vector, len(vectors)) for vector in vectors]
    sums = []
    for piece in range(len(vectors)):
        total = pieces[piece][piece].copy()
        for other in range(1, len(vectors)):
            total += pieces[(piece + other) % len(vectors)][piece]
        sums.append(total)
    return np.concatenate(sums)


def by_one_scale(vectors: Vectors) -> npt.NDArray[np.float32]:
    """Return the sum with one scale, that of the largest value of all vectors."""
    workers, total = len(vectors), np.zeros(vectors[0].size, np.uint32)
    scale = quantiser.scale_of(max(quantiser.largest_exponent(vector) for vector in vectors), workers)
    lanes, out = np.empty(total.size, ">u4"), np.empty(total.size, np.float32)
    for vector in vectors:
        quantiser.encode(vector, scale, workers, lanes)
        total += lanes.astype(np.uint32)
    quantiser.decode(total, scale, workers, workers, out)
    return out


def errors(vectors: Vectors) -> dict[str, float]:
    """Return the errors of the ways, relative to the ring's, and statistics of the quantiser."""
    exact = np.sum([vector.astype(np.float64) for vector in vectors], axis=0)
    summed, scales, zeroed = quantiser.summed(list(vectors))
    off = [float(np.linalg.norm(way - exact)) for way in (by_ring(vectors), summed, by_one_scale(vectors))]
    least, most = (quantiser.scale_of(exponent, len(vectors)) for exponent in (FINE_ABOVE, FINE_TO))
    return {
        "over_ring": off[1] / off[0],
        "one_scale_over_ring": off[2] / off[0],
        "zeroed": sum(zeroed) / sum(np.count_nonzero(vector) for vector in vectors),
        "fine": sum(most <= scale < least for scale in scales) / len(scales),
    }


def main(argv: list[str]) -> int:
    """Parse the command line and run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.precision", description=__doc__)
    parser.add_argument("--workers", type=numbers, default=(2, 8), help="numbers of workers (2,8)")
    parser.add_argument("--steps", type=numbers, default=(0, 20, 100), help="steps to look at (0,20,100)")
    parser.add_argument("--models", default=",".join(MODELS), help="which models (%(default)s)")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args(argv)
    torch.manual_seed(1)
    rows: list[dict[str, Any]] = []
    print(
        f"{'model':>11} {'workers':>7} {'step':>5} {'error / ring':>12} {'one scale':>9} {'zeroed':>8} "
        f"{'fine':>5}"
    )
    for name in arguments.models.split(","):
        for workers in arguments.workers:
            for step, vectors in gradients(*MODELS[name](), workers, arguments.steps):
                row = {"model": name, "workers": workers, "step": step, **errors(vectors)}
                rows.append(row)
                print(
                    f"{name:>11} {workers:>7} {step:>5} {row['over_ring']:>12.3f} "
                    f"{row['one_scale_over_ring']:>9.2f} {row['zeroed']:>8.1e} {row['fine']:>5.0%}",
                    flush=True,
                )
    if arguments.json:
        arguments.json.write_text(json.dumps({"host": facts(), "lanes": spec.LANES, "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
