"""Workers and an optimizer node over a switch that follows the model: the result is what `Local` makes of the
same sums, to the bit.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.unit import test_luwu_training as training
from tests.unit.luwu_world import adamw, flip, grouped, small
from tests.unit.owned_wire import LANES, TREE, Chaos, Switch, udp
from tests.unit.test_luwu_states import equal
from workloads.luwu import gantt
from workloads.luwu.contract import Role
from workloads.luwu.errors import LuwuError
from workloads.luwu.nic import bound, scale_of
from workloads.luwu.owner import Owner
from workloads.luwu.rule import Rule, first_states, placeholders, views
from workloads.luwu.scaler import GradScaler
from workloads.luwu.store import Store
from workloads.luwu.training import initialize
from workloads.luwu.transport import AT_STEP, IN_BACKWARD, Local, Transport
from workloads.luwu.worker import Distant, Opening

T = TypeVar("T")
LIMIT_S = 60.0
MODEL = small()
CLEAN = Chaos()


class Job:
    """An optimizer node that serves, and where its workers connect."""

    def __init__(
        self,
        folder: Path,
        workers: int,
        stack: contextlib.ExitStack,
        chaos: Chaos = CLEAN,
        host: bool = True,
        update: str = AT_STEP,
    ) -> None:
        self.switch = Switch(workers, chaos=chaos)
        stack.callback(self.switch.close)
        self.tree = replace(TREE, workers=workers, port=self.switch.port)
        self.sockets = [udp() for _ in range(workers + 1)]
        self.switch.to_owner = self.sockets[-1].getsockname()
        self.switch.to_worker = [each.getsockname() for each in self.sockets[:-1]]
        self.switch.start()
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        names = [f"h{number}" for number in range(workers)]
        owner = Owner(replace(self.tree, role=Role.OWNER), self.sockets[-1], listener, names, host=host)
        self.folders = (str(folder),)
        self.workers, self.host, self.update = workers, host, update
        self.served: Future[None] = Future()
        self.thread = threading.Thread(target=self._serve, args=(owner,), daemon=True)
        self.thread.start()

    def connect(self, worker: int, opening: Opening) -> Distant:
        control = socket.create_connection(self.address)
        tree = replace(self.tree, worker=worker)
        return Distant(opening, tree, self.sockets[worker], control, "the optimizer node h9", self.host)

    def opening(self, resume: bool = False) -> Opening:
        named = placeholders(MODEL)
        rule = Rule(adamw(grouped(MODEL, named)), MODEL, named)
        return Opening(MODEL, rule, first_value, resume, self.folders, update=self.update)

    def all(self, resume: bool = False) -> list[Distant]:
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(lambda each: self.connect(each, self.opening(resume)), range(self.workers)))

    def _serve(self, owner: Owner) -> None:
        try:
            owner.serve()
            self.served.set_result(None)
        except BaseException as problem:
            self.served.set_exception(problem)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def first_value(name: str) -> torch.Tensor:
    shape = next(each.shape for layer in MODEL.layers for each in layer.tensors if each.name == name)
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(name) + ord(name[-1]))).bfloat16()


def gradients(worker: int, layer: int, iteration: int) -> npt.NDArray[np.float32]:
    generator = np.random.default_rng((worker, layer, iteration))
    count = MODEL.layers[layer].used
    values = generator.standard_normal(count) * 2.0 ** generator.integers(-20, 3, count)
    return values.astype(np.float32)


def view(array: npt.NDArray[np.float32]) -> memoryview:
    return memoryview(array).cast("B")  # type: ignore[arg-type]


def pulled(transport: Transport) -> list[bytes]:
    buffers = [bytearray(2 * layer.used) for layer in MODEL.layers]
    futures = [transport.pull(number, memoryview(buffer)) for number, buffer in enumerate(buffers)]
    for future in futures:
        future.result(LIMIT_S)
    return [
        b"".join(each.reshape(-1).view(torch.uint8).numpy().tobytes() for each in tensors)
        for tensors in (
            views(layer, memoryview(buffer), torch.bfloat16)
            for layer, buffer in zip(MODEL.layers, buffers, strict=True)
        )
    ]


def on_all(workers: Sequence[Distant], function: Callable[[int, Distant], T]) -> list[T]:
    with ThreadPoolExecutor(len(workers)) as pool:
        futures = [pool.submit(function, number, worker) for number, worker in enumerate(workers)]
        return [future.result(LIMIT_S) for future in futures]


def reference(
    folder: Path, workers: int, iterations: range, clip: float | None
) -> tuple[list[bytes], list[float]]:
    """The same by a store in this process, from sums as the switch makes them."""
    named = placeholders(MODEL)
    rule = Rule(adamw(grouped(MODEL, named)), MODEL, named)
    folder.mkdir()
    store = Store.create([folder], MODEL, "AdamW", first_states(first_value, torch.bfloat16))
    local = Local(store, rule)
    norms = []
    for iteration in iterations:
        local.clear()
        for layer in reversed(range(len(MODEL.layers))):
            arrays = [gradients(worker, layer, iteration) for worker in range(workers)]
            exponent = max(int((array.view(np.uint32) & 0x7FFFFFFF).max() >> 23) for array in arrays)
            scale = scale_of(exponent, workers)
            sums = np.sum([np.rint(each.astype(np.float64) * 2.0**scale) for each in arrays], axis=0)
            mean = (sums * (2.0**-scale / workers)).astype(np.float32)
            exact = np.mean([each.astype(np.float64) for each in arrays], axis=0)
            assert (
                np.abs(mean - exact).max() <= bound(scale, workers) / workers + np.abs(exact).max() * 2.0**-24
            )
            local.push(layer, view(mean)).result(LIMIT_S)
        norms.append(float(local.norm().result(LIMIT_S)))
        local.step(clip).result(LIMIT_S)
    states = pulled(local)
    local.close()
    return states, norms


def iterate(
    number: int, worker: Distant, iterations: range, clip: float | None, shared: bool, update: str = AT_STEP
) -> list[float]:
    """Make the calls of a training loop: pull all, push all, the norm where it is to be had, step."""
    norms = []
    for iteration in iterations:
        worker.clear().result(LIMIT_S)
        pulled(worker)
        futures = []
        for layer in reversed(range(len(MODEL.layers))):
            values = gradients(number, layer, iteration)
            if shared:
                flat = worker.gradients(values.size)
                flat.copy_(torch.from_numpy(values))
                futures.append(worker.push(layer, view(flat.numpy())))
            else:
                futures.append(worker.push(layer, view(values)))
        for future in futures:
            future.result(LIMIT_S)
        if update == AT_STEP:
            norms.append(float(worker.norm().result(LIMIT_S)))
        assert worker.step(clip).result(LIMIT_S) == worker.iteration == iteration + 1
    return norms


@pytest.mark.parametrize(
    ("workers", "chaos", "host", "clip", "shared", "update"),
    [
        (1, Chaos(), True, None, True, AT_STEP),
        (3, Chaos(lost=0.02, twice=0.02, late_s=0.001), True, 0.5, False, AT_STEP),
        (3, Chaos(lost=0.02, twice=0.02, late_s=0.001), True, None, True, IN_BACKWARD),
        (2, Chaos(), False, None, True, AT_STEP),
    ],
    ids=["one", "three", "within", "processes"],
)
def test_workers_get_what_a_local_store_makes_of_their_sums(
    tmp_path: Path,
    stack: contextlib.ExitStack,
    workers: int,
    chaos: Chaos,
    host: bool,
    clip: float | None,
    shared: bool,
    update: str,
) -> None:
    iterations = range(3)
    (tmp_path / "node").mkdir()
    job = Job(tmp_path / "node", workers, stack, chaos, host, update)
    distants = job.all()
    norms = on_all(distants, lambda number, each: iterate(number, each, iterations, clip, shared, update))
    states = on_all(distants, lambda number, each: pulled(each))
    record, places = tmp_path / "record.json", ("push", "accept gradients", "update", "commit")
    counts = on_all(distants, lambda number, each: each.record(record).result(LIMIT_S))
    on_all(distants, lambda number, each: each.close())
    job.served.result(LIMIT_S)
    spans = gantt.read(record)
    assert set(counts) == {len(spans)}
    of_last = [span for span in spans if span.iteration == iterations[-1] + 1]
    for place in places:
        layers = sorted(span.layer for span in of_last if span.place == place)
        assert layers == ([-1] if place == "commit" else list(range(len(MODEL.layers)))), place
    assert all(span.end_ns >= span.start_ns > 0 for span in spans)
    expected, expected_norms = reference(tmp_path / "reference", workers, iterations, clip)
    assert all(each == expected for each in states)
    assert all(each == (expected_norms if update == AT_STEP else []) for each in norms)

    again = Job(tmp_path / "node", workers, stack, chaos, host, update)  # another life of the job
    distants = again.all(resume=True)
    assert all(each.iteration == 3 for each in distants)
    on_all(distants, lambda number, each: iterate(number, each, range(3, 5), clip, shared, update))
    states = on_all(distants, lambda number, each: pulled(each))
    on_all(distants, lambda number, each: each.close())
    again.served.result(LIMIT_S)
    expected, _ = reference(tmp_path / "again", workers, range(5), clip)
    assert all(each == expected for each in states)


def test_workers_go_on_where_a_node_with_a_flipped_bit_does(
    tmp_path: Path, stack: contextlib.ExitStack, capfd: pytest.CaptureFixture[str]
) -> None:
    """The node says why, and the first worker."""
    (tmp_path / "node").mkdir()
    for resume, start, last in ((False, 0, 3), (True, 2, 4)):
        job = Job(tmp_path / "node", 2, stack)
        distants = job.all(resume)
        assert [each.iteration for each in distants] == [start] * 2
        on_all(distants, lambda n, each, own=range(start, last): iterate(n, each, own, None, True))  # type: ignore[misc]
        states = on_all(distants, lambda number, each: pulled(each))
        on_all(distants, lambda number, each: each.close())
        job.served.result(LIMIT_S)
        if not resume:
            assert capfd.readouterr().err == ""
            flip(tmp_path / "node" / "parameters.0", 1234, 0)  # of iteration 3
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0] == lines[1]
    assert "opened at iteration 2, which is whole: iteration 3 is not whole: read " in lines[0]
    expected, _ = reference(tmp_path / "reference", 2, range(4), None)
    assert all(each == expected for each in states)


def test_a_node_does_not_wait_for_the_acknowledgement_of_who_has_closed(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """A NIC may end before its beat for the last layer, or that be lost."""
    job = Job(tmp_path, 2, stack)
    workers = job.all()
    on_all(workers, lambda number, each: pulled(each))
    size = 2 * MODEL.layers[0].used
    job.switch.most_acked = job.switch.sent + -(-size // (4 * LANES)) - 1  # all but the last fragment
    buffers = [memoryview(bytearray(size)) for _ in workers]
    on_all(workers, lambda number, each: each.pull(0, buffers[number]).result(LIMIT_S))
    on_all(workers, lambda number, each: each.close())
    job.served.result(LIMIT_S)


def test_workers_that_make_other_calls_hear_who_and_which(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    job = Job(tmp_path, 2, stack)
    first, second = job.all()
    other = second.pull(2, memoryview(bytearray(2 * MODEL.layers[2].used)))
    pull = first.pull(1, memoryview(bytearray(2 * MODEL.layers[1].used)))
    line = (
        "worker 1 (h1) asks for pull of layer block2, worker 0 (h0) for pull of layer block1: all workers "
        "make the same calls in the same order"
    )
    for future in (pull, other, job.served):
        with pytest.raises(LuwuError) as caught:
            future.result(LIMIT_S)
        assert str(caught.value) == line
    first.close()
    second.close()


@pytest.mark.parametrize("update", [AT_STEP, IN_BACKWARD])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_gradients_that_are_not_finite(
    tmp_path: Path, stack: contextlib.ExitStack, value: float, update: str
) -> None:
    """An iteration that one worker spoils is committed nowhere, and done again after `clear`."""
    (tmp_path / "node").mkdir()
    job = Job(tmp_path / "node", 2, stack, Chaos(lost=0.01), update=update)
    workers = job.all()
    on_all(workers, lambda number, each: iterate(number, each, range(1), None, True, update))
    before = on_all(workers, lambda number, each: pulled(each))
    line = (
        "iteration 2 is not committed: worker 1 (h1): gradients of layer block2 have NaN or infinity; "
        "zero_grad() begins it again"
    )

    def spoil(number: int, worker: Distant) -> None:
        worker.clear().result(LIMIT_S)
        for layer in reversed(range(len(MODEL.layers))):
            values = gradients(number, layer, 7)
            if (number, layer) == (1, 2):
                values[5] = value
            worker.push(layer, view(values)).result(LIMIT_S)
        if update == AT_STEP:
            assert "worker 1 (h1): gradients of layer block2" in (worker.not_finite().result(LIMIT_S) or "")
            assert np.isnan(float(worker.norm().result(LIMIT_S)))
        with pytest.raises(LuwuError) as caught:
            worker.step(None).result(LIMIT_S)
        assert str(caught.value) == line
        assert worker.iteration == 1

    on_all(workers, spoil)
    assert on_all(workers, lambda number, each: pulled(each)) == before
    on_all(workers, lambda number, each: iterate(number, each, range(1, 3), None, True, update))
    states = on_all(workers, lambda number, each: pulled(each))
    expected, _ = reference(tmp_path / "reference", 2, range(3), None)
    assert all(each == expected for each in states)
    on_all(workers, spoil_and_end)
    with pytest.raises(LuwuError, match=r"^iteration 4 is not committed: worker 0 \(h0\), worker 1 \(h1\): "):
        job.served.result(LIMIT_S)
    for worker in workers:
        worker.close()


def spoil_and_end(number: int, worker: Distant) -> None:
    """End as a script does that lets the error through: the node says that error, and not that it is gone."""
    for layer in reversed(range(len(MODEL.layers))):
        if layer == len(MODEL.layers) - 1:
            worker.clear().result(LIMIT_S)
        worker.push(layer, view(np.full(MODEL.layers[layer].used, np.nan, np.float32))).result(LIMIT_S)
    with pytest.raises(LuwuError, match="is not committed"):
        worker.step(None).result(LIMIT_S)
    worker._control.shut()


def test_states_go_to_a_job_and_come_back(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    """The first worker has them, to the bit; training goes on at their step, and resumes there."""
    own = training.built(training.Case())
    alone, handle = initialize(own, torch.optim.AdamW(training.groups(own), lr=0.01), [tmp_path])
    for _ in range(3):
        handle.zero_grad()
        alone(torch.zeros(2, 16, dtype=torch.long)).backward()
        handle.step()
    handle.param_groups[0]["lr"] = 0.002
    dicts = handle.export()
    handle.close()
    (tmp_path / "node").mkdir()

    def run(job: Job, number: int, **options: Any) -> list[Any]:
        torch.set_num_threads(1)
        model = training.built(training.Case())
        inner = torch.optim.AdamW(training.groups(model), lr=0.5)
        connect = partial(job.connect, number)
        _, optimizer = initialize(model, inner, job.folders, connect=connect, **options)
        said = [optimizer.iteration, optimizer.param_groups[0]["lr"], optimizer.export()]
        optimizer.zero_grad()
        model(torch.zeros(2, 16, dtype=torch.long)).backward()
        optimizer.step()
        said += [optimizer.iteration, optimizer.export()]
        optimizer.close()
        return said

    ends = []
    for options in ({"states": dicts}, {"resume": True}):
        job = Job(tmp_path / "node", 2, stack)
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda number, job=job, own=options: run(job, number, **own), range(2))
        job.served.result(LIMIT_S)
        assert second[2] == second[4] == ({}, {})
        ends.append(first)
    assert ends[0][:2] == [3, 0.002]
    assert equal(ends[0][2], dicts)
    assert (ends[0][3], ends[1][0], ends[1][3]) == (4, 4, 5)
    assert equal(ends[1][2], ends[0][4])
    assert not equal(ends[0][4], dicts)


def scaled(own: torch.nn.Module, worker: int, spoiled: Sequence[int], **options: Any) -> list[object]:
    """Train with a GradScaler; in some iterations the second worker's gradients overflow. Return its
    scales and iterations, and the parameters after it.
    """
    torch.set_num_threads(1)
    model, handle = initialize(own, torch.optim.AdamW(training.groups(own), lr=0.01), **options)
    scaler = GradScaler(init_scale=2.0**10, growth_interval=2)
    said: list[object] = []
    for iteration in range(6):
        handle.zero_grad()
        words = torch.randint(training.WORDS, (2, 16), generator=torch.Generator().manual_seed(iteration))
        loss = scaler.scale(model(words))
        (loss * (1e30 if worker == 1 and iteration in spoiled else 1.0)).backward()
        scaler.unscale_(handle)
        handle.clip_grad_norm_(0.5)
        scaler.step(handle)
        scaler.update()
        said.append((scaler.get_scale(), handle.iteration))
    with handle.gathered():
        said += [value.float().tolist() for value in model.state_dict().values()]
    handle.close()
    return said


def test_all_workers_skip_an_iteration_that_overflows_on_one(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    job = Job(tmp_path, 2, stack)
    models = [training.built(training.Case(kind=torch.float16)) for _ in range(2)]

    def run(number: int) -> list[object]:
        connect = partial(job.connect, number)
        return scaled(models[number], number, (0, 3), folders=job.folders, connect=connect)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(run, range(2))
    job.served.result(LIMIT_S)
    assert first == second
    scales = [2.0**9, 2.0**9, 2.0**10, 2.0**9, 2.0**9, 2.0**10]
    assert first[:6] == list(zip(scales, (0, 1, 2, 2, 3, 4), strict=True))


def test_an_error_of_the_node_is_that_calls_alone(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    job = Job(tmp_path, 2, stack)
    workers = job.all()
    futures = [worker.step(None) for worker in workers]
    for future in futures:
        with pytest.raises(
            LuwuError, match=r"^layer embed has no gradients: freeze it, or use it in the loss$"
        ):
            future.result(LIMIT_S)
    assert len(set(map(tuple, on_all(workers, lambda number, each: pulled(each))))) == 1
    on_all(workers, lambda number, each: each.close())
    job.served.result(LIMIT_S)


def test_a_worker_that_is_gone_ends_all_in_one_line(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    job = Job(tmp_path, 2, stack)
    first, second = job.all()
    pull = first.pull(0, memoryview(bytearray(2 * MODEL.layers[0].used)))
    second._control.shut()  # as the kernel does when the process is killed
    for future in (pull, job.served):
        with pytest.raises(LuwuError, match=r"^worker 1 \(h1\) is gone$"):
            future.result(LIMIT_S)
    with pytest.raises(LuwuError, match=r"^worker 1 \(h1\) is gone$"):
        first.clear().result(LIMIT_S)
    first.close()
    second.close()


def test_a_nic_that_is_killed_ends_its_worker_in_one_line(
    tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    job = Job(tmp_path, 1, stack, host=False)
    (worker,) = job.all()
    assert worker.nic.pid is not None
    os.kill(worker.nic.pid, signal.SIGKILL)
    pull = worker.pull(0, memoryview(bytearray(2 * MODEL.layers[0].used)))
    with pytest.raises(LuwuError, match=r"^the process of the NIC ended with -9"):
        pull.result(LIMIT_S)
    worker.close()
    with pytest.raises(LuwuError, match=r"^worker 0 \(h0\) is gone$"):
        job.served.result(LIMIT_S)


def test_a_node_that_is_gone_ends_its_workers_in_one_line(stack: contextlib.ExitStack) -> None:
    """A node that answers the greeting, and no more."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    ends: list[socket.socket] = []

    def answer() -> None:
        end, _ = listener.accept()
        with end.makefile("rb") as file:
            file.readline()
        opened = {"kind": "Opened", "iteration": 0, "groups": "[{}, {}, {}]", "notice": ""}
        end.sendall(json.dumps(opened).encode() + b"\n")
        ends.append(end)

    thread = threading.Thread(target=answer)
    thread.start()
    named = placeholders(MODEL)
    opening = Opening(MODEL, Rule(adamw(grouped(MODEL, named)), MODEL, named), first_value, False)
    control = socket.create_connection(listener.getsockname())
    worker = Distant(opening, replace(TREE, port=9), udp(), control, "the optimizer node h9", host=True)
    thread.join()
    pull = worker.pull(0, memoryview(bytearray(2 * MODEL.layers[0].used)))
    ends[0].close()
    with pytest.raises(LuwuError, match=r"^the optimizer node h9 is gone$"):
        pull.result(LIMIT_S)
    with pytest.raises(LuwuError, match=r"^the optimizer node h9 is gone$"):
        worker.clear()
    worker.close()


def test_workers_of_other_models_are_refused(tmp_path: Path, stack: contextlib.ExitStack) -> None:
    job = Job(tmp_path, 2, stack)
    own, other = job.opening(), job.opening()
    other.rule.optimizer.param_groups[1]["lr"] = 0.5
    line = r"^worker 1 \(h1\) has another groups than worker 0 \(h0\): .*'lr': 0\.5.* and .*'lr': 0\.01"
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(job.connect, number, each) for number, each in enumerate((own, other))]
        for future in futures:
            with pytest.raises(LuwuError, match=line):
                future.result(LIMIT_S)
        with pytest.raises(LuwuError, match=line):
            job.served.result(LIMIT_S)


def trained(
    own: torch.nn.Module, halves: Sequence[int], **options: Any
) -> tuple[list[float], list[torch.Tensor]]:
    """An unchanged loop over these halves of the words. Return its losses, and the parameters after it."""
    torch.set_num_threads(1)
    # where Adam divides by next to nothing, the rounding of a gradient is its direction
    optimizer = torch.optim.AdamW(training.groups(own), lr=0.01, eps=0.01)
    model, handle = initialize(own, optimizer, **options)
    scheduler = training.schedule(handle)
    losses = []
    for iteration in range(6):
        handle.zero_grad()
        words = torch.randint(training.WORDS, (4, 16), generator=torch.Generator().manual_seed(iteration % 4))
        for half in halves:
            loss = model(words.chunk(2)[half])
            (loss / len(halves)).backward()
            losses.append(float(loss.detach()))
        handle.clip_grad_norm_(0.5)
        handle.step()
        scheduler.step()
    with handle.gathered():
        values = [value.float() for value in model.state_dict().values()]
    handle.close()
    return losses, values


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_an_unchanged_loop_trains_as_with_a_store_of_its_own(
    tmp_path: Path, stack: contextlib.ExitStack, kind: torch.dtype
) -> None:
    """Two workers, each with its half of the words, whose parameters lie in memory that the NIC shares."""
    case = training.Case(saves=True, kind=kind)
    losses, values = trained(training.built(case), (0, 1), folders=[tmp_path])
    (tmp_path / "node").mkdir()
    job = Job(tmp_path / "node", 2, stack, Chaos(lost=0.01))
    models = [training.built(case) for _ in range(2)]

    def run(number: int) -> tuple[list[float], list[torch.Tensor]]:
        return trained(models[number], (number,), folders=job.folders, connect=partial(job.connect, number))

    with ThreadPoolExecutor(2) as pool:
        (first, ours), (second, theirs) = pool.map(run, range(2))
    job.served.result(LIMIT_S)
    np.testing.assert_allclose([first, second], [losses[::2], losses[1::2]], rtol=0.003)
    for own, other, expected in zip(ours, theirs, values, strict=True):
        assert torch.equal(own, other)
        assert (own - expected).abs().max() < 0.02 * expected.abs().max()
