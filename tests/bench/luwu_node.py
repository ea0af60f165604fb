"""LuWu's optimizer node compared with the same work in sequence: `python -m tests.bench.luwu_node FOLDER`.

Both do the same reads, pushes, pulls, updates, writes and commits over the same store and disks, by turns in
one run; the sequence does one after the other. Prints JSON; writes spans for `python -m workloads.luwu.gantt`
if asked.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
import threading
import time
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path

import torch

from testbed.systems.luwu import pipeline
from workloads.luwu.disk import Purpose
from workloads.luwu.layout import Layer, Model, Tensor
from workloads.luwu.node import BACKWARD, FORWARD, Node
from workloads.luwu.pool import Pool
from workloads.luwu.rates import Rates
from workloads.luwu.rule import Rule, first_states, placeholders, views
from workloads.luwu.store import GRADIENTS, PARAMETERS, STATES, Store

MIB = 1 << 20


class Link:
    """A full-duplex link of a declared rate: a request is done when its bytes, and those of earlier requests,
    would have crossed. Gradients, all of a thousandth, arrive once their parameters have left.
    """

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = {"push": 0.0, "pull": 0.0}

    def push(self, iteration: int, phase: str, layer: int, parameters: memoryview) -> Future[None]:
        return self._cross("push", len(parameters))

    def pull(self, iteration: int, layer: int, gradients: memoryview) -> Future[None]:
        torch.frombuffer(gradients, dtype=torch.float32).fill_(1e-3)
        self._free_s["pull"] = max(self._free_s["pull"], self._free_s["push"])
        return self._cross("pull", len(gradients) // 2)  # a gradient has two bytes on the wire

    def _cross(self, way: str, size: int) -> Future[None]:
        done: Future[None] = Future()
        if self._bytes_per_s is None:
            done.set_result(None)
            return done
        now = time.monotonic()
        self._free_s[way] = max(self._free_s[way], now) + size / self._bytes_per_s
        timer = threading.Timer(self._free_s[way] - now, done.set_result, [None])
        timer.daemon = True
        timer.start()
        return done


def in_sequence(store: Store, rule: Rule, link: Link, buffers: dict[str, memoryview]) -> None:
    """Do an iteration, one step after another."""
    iteration, layers = store.iteration + 1, store.model.layers

    def wait(futures: list[Future[None]]) -> None:
        for future in futures:
            future.result()

    def cut(kind: str, number: int) -> memoryview:
        layer = layers[number]
        sizes = {
            PARAMETERS: layer.parameters_bytes,
            STATES: layer.states_bytes,
            GRADIENTS: layer.gradients_bytes,
        }
        return buffers[kind][: sizes[kind]]

    order = [(FORWARD, n) for n in range(len(layers))] + [(BACKWARD, n) for n in reversed(range(len(layers)))]
    for phase, number in order:
        purpose, layer = Purpose(iteration, phase, number), layers[number]
        wait(store.read(PARAMETERS, number, cut(PARAMETERS, number), purpose))
        wait([link.push(iteration, phase, number, cut(PARAMETERS, number))])
        if phase == FORWARD:
            continue
        wait([link.pull(iteration, number, cut(GRADIENTS, number))])
        wait(store.read(STATES, number, cut(STATES, number), purpose))
        states = [views(layer, cut(STATES, number), torch.float32, part) for part in range(3)]
        gradients = views(layer, cut(GRADIENTS, number), torch.float32)
        parameters = views(layer, cut(PARAMETERS, number), torch.bfloat16)
        rule.update(layer, iteration, parameters, states[0], states[1], states[2], gradients)
        wait(store.write(STATES, number, cut(STATES, number), purpose))
        wait(store.write(PARAMETERS, number, cut(PARAMETERS, number), purpose))
    store.commit(b"")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=2048, help="a layer is a square of it")
    parser.add_argument("--disks", type=int, default=1)
    parser.add_argument("--reads-mbps", type=float, help="MB/s of a disk, both reading queues")
    parser.add_argument("--writes-mbps", type=float, help="MB/s of a disk")
    parser.add_argument("--link-mbps", type=float, help="MB/s of the link, each way")
    parser.add_argument("--clip", type=float)
    parser.add_argument("--pool-layers", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--spans", type=Path)
    options = parser.parse_args()

    width = options.width
    model = Model([Layer(f"{n}", (Tensor(f"{n}.weight", (width, width)),)) for n in range(options.layers)])
    parameters = placeholders(model)
    rule = Rule(torch.optim.AdamW(list(parameters.values()), lr=0.001), model, parameters)
    rates = Rates(
        reads=options.reads_mbps and options.reads_mbps * 1e6,
        write_states=options.writes_mbps and options.writes_mbps * 1e6,
    )
    link = Link(options.link_mbps and options.link_mbps * 1e6)
    top = Path(tempfile.mkdtemp(prefix="luwu-", dir=options.folder))
    folders = [top / f"disk{number}" for number in range(options.disks)]
    for folder in folders:
        folder.mkdir()
    layer = model.layers[0]
    needed = layer.parameters_bytes + layer.states_bytes + layer.gradients_bytes
    fill = first_states(lambda _: torch.zeros(width, width), torch.bfloat16)
    taken: dict[str, list[float]] = {"node": [], "sequence": []}
    try:
        with Store.create(folders, model, "AdamW", fill, rates) as store:
            pool = Pool(needed)
            made = pool.take([layer.parameters_bytes, layer.states_bytes, layer.gradients_bytes])
            assert made is not None
            buffers = dict(
                zip((PARAMETERS, STATES, GRADIENTS), [memoryview(each) for each in made], strict=True)
            )
            with Node(store, rule, link, needed * options.pool_layers, options.clip) as node:
                for _ in range(options.repeats + 1):  # the first is a warm-up
                    before = store.moved_bytes
                    start = time.monotonic()
                    node.iterate()
                    taken["node"].append(time.monotonic() - start)
                    moved = [after - start for after, start in zip(store.moved_bytes, before, strict=True)]
                    start = time.monotonic()
                    in_sequence(store, rule, link, buffers)
                    taken["sequence"].append(time.monotonic() - start)
            last = store.iteration - 1
            spans = [asdict(span) for span in store.spans.all() if span.iteration == last]
            direct = store.direct
    finally:
        shutil.rmtree(top)
    predicted_s = None
    if options.reads_mbps and options.reads_mbps == options.writes_mbps and options.link_mbps:
        # gradients have two bytes each on the link; updates are not counted
        load = pipeline.Layer(
            layer.parameters_bytes, layer.gradients_bytes / 2, layer.states_bytes, 0.0, 0.0, 0.0
        )
        declared = pipeline.OptimizerNode(
            link_bytes_s=options.link_mbps * 1e6,
            disks_bytes_s=options.disks * options.reads_mbps * 1e6,
            pool_bytes=needed * options.pool_layers,
            ahead=options.layers,
        )
        predicted_s = round(pipeline.run([load] * options.layers, declared).iteration_s, 3)
    if options.spans:
        options.spans.write_text(json.dumps(spans))
    medians = {name: statistics.median(values[1:]) for name, values in taken.items()}
    updates = [span for span in spans if span["place"] == "update"]
    said = {
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "parameters": model.numel,
        "disks": options.disks,
        "direct": all(direct),
        "seconds": {name: [round(value, 3) for value in values] for name, values in taken.items()},
        "predicted_s": predicted_s,
        "node_s": round(medians["node"], 3),
        "sequence_s": round(medians["sequence"], 3),
        "times_faster": round(medians["sequence"] / medians["node"], 2),
        "update_s": round(sum(span["end_ns"] - span["start_ns"] for span in updates) / 1e9, 3),
        "read_bytes_per_parameter": round(moved[0] / model.numel, 3),
        "written_bytes_per_parameter": round(moved[1] / model.numel, 3),
        "disk_gb_per_s": round(sum(moved) / medians["node"] / 1e9, 3),
    }
    print(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
