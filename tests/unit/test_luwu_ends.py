"""The compiled ends of an owned tree, over a switch that follows the model: all is exact to the bit."""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.systems.luwu import owned
from tests.limits import CALL_S
from tests.unit import owned_wire
from tests.unit.owned_wire import LANES, TREE, Chaos, ends
from workloads.luwu.contract import REQUESTS, Format, State
from workloads.luwu.errors import LuwuError
from workloads.luwu.nic import Nic, Request, bound, scale_of

LIMIT_S = 60.0
NOT_FINITE = 255  # an exponent of no number
CLEAN, ROUGH = Chaos(), Chaos(lost=0.05, twice=0.05, late_s=0.002)
Floats = npt.NDArray[np.float32]


def until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.002)


def numbers(worker: int, request: int, count: int) -> Floats:
    """Values over many powers of two, zeros and denormals among them."""
    generator = np.random.default_rng((worker, request, count))
    values = generator.standard_normal(count) * 2.0 ** generator.integers(-40, 12, count)
    values[::7] = 0
    values[3::11] = 1e-40
    return values.astype(np.float32)


def push(
    owner: Nic, nics: Sequence[Nic], arrays: Sequence[np.ndarray], at: int, format: Format, numel: int
) -> tuple[list[Request], int]:
    """Each worker's request, and the scale that they agree on."""
    requests = []
    for nic, array in zip(nics, arrays, strict=True):
        content = array.tobytes()
        nic.memory[at : at + len(content)] = content
        requests.append(nic.give_numbers("push", at, numel, format))
    scale = scale_of(max(each.measured() for each in requests), len(nics))
    for each in requests:
        each.scale(scale)
    return requests, scale


def summed(arrays: Sequence[Floats], scale: int) -> Floats:
    """Return what the owner gets, by the rule."""
    integers = sum(np.rint(array.astype(np.float64) * 2.0**scale).astype(np.int64) for array in arrays)
    return (np.asarray(integers) * 2.0**-scale).astype(np.float32)


@pytest.mark.parametrize(
    ("workers", "pods", "chaos"),
    [(1, (), CLEAN), (3, (), ROUGH), (5, ((0, 3), (1, 2, 4)), ROUGH)],
    ids=["one", "place", "tree"],
)
def test_sums_and_parameters_are_exact(workers: int, pods: Sequence[Sequence[int]], chaos: Chaos) -> None:
    counts = (1, 64, 65, 2011, 4001)
    starts = [4 * sum(counts[:index]) for index in range(len(counts))]
    half = 4 * sum(counts)
    content = np.random.default_rng(3).integers(0, 256, half, np.uint8)
    content[:8] = np.frombuffer(struct.pack("<HHHH", 0x7FC1, 0xFF81, 0x7F80, 0x7FFF), np.uint8)  # NaNs
    with ends(workers, 2 * half, pods, chaos) as (switch, owner, nics):
        owner.memory[half:] = content.tobytes()
        sums, arrays, scales, waited = [], [], [], []
        for number, (count, at) in enumerate(zip(counts, starts, strict=True)):
            each = [numbers(worker, number, count) for worker in range(workers)]
            requests, scale = push(owner, nics, each, at, Format.BINARY32, count)
            sums.append(owner.get_numbers("sum", at, count, 2.0**-scale))
            arrays.append(each)
            scales.append(scale)
            waited += requests
            # bytes of any number
            waited.append(owner.give("parameters", half + at, 4 * count - number % 4))
            waited += [nic.get("pull", half + at, 4 * count - number % 4) for nic in nics]
        for request in (*sums, *waited):
            request.wait(CALL_S)
        for count, at, each, scale in zip(counts, starts, arrays, scales, strict=True):
            got = np.frombuffer(owner.memory, np.float32, count, at)
            np.testing.assert_array_equal(got.view(np.uint32), summed(each, scale).view(np.uint32))
            exact = np.sum([array.astype(np.float64) for array in each], axis=0)
            assert np.abs(got - exact).max() <= bound(scale, workers) + np.abs(exact).max() * 2.0**-24
        for nic in nics:
            for number, (count, at) in enumerate(zip(counts, starts, strict=True)):
                size = 4 * count - number % 4
                assert nic.memory[half + at : half + at + size] == content[at : at + size].tobytes()
        for end in (owner, *nics):
            assert end.facts.gotten["overflowed"] == end.facts.given["overflowed"] == 0
            assert end.facts.dropped == end.facts.refused == 0
        assert not chaos.lost or switch.lost > 0


@pytest.mark.hypothesis
@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**32), workers=st.integers(1, 4), late_ms=st.lists(st.integers(0, 20), min_size=4)
)
def test_a_sum_of_any_magnitudes_is_of_all_however_late_they_are(
    seed: int, workers: int, late_ms: list[int]
) -> None:
    """Blocks of magnitudes that are log-uniform, and zeros; packets are lost, repeated and late. Each sum is
    within the stated bound of the workers' exact one, and one that has an infinity is none.
    """
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 3000))
    exponents = random.uniform(-60, 60, (workers, -(-count // 64))).repeat(64, 1)[:, :count]
    is_there = random.random(exponents.shape) < 0.8
    pushed = (random.uniform(-1, 1, exponents.shape) * 2.0**exponents * is_there).astype(np.float32)
    is_finite = random.random() < 0.8
    if not is_finite:
        pushed[random.integers(workers), random.integers(count)] = np.inf
    with ends(workers, 4 * count, (), ROUGH) as (_, owner, nics):
        requests = []
        for nic, array, each_ms in zip(nics, pushed, late_ms, strict=False):
            time.sleep(each_ms / 1e3)
            nic.memory[:] = array.tobytes()
            requests.append(nic.give_numbers("push", 0, count))
        largest = max(each.measured() for each in requests)
        assert (largest == NOT_FINITE) is not is_finite
        if not is_finite:
            return
        scale = scale_of(largest, workers)
        for each, each_ms in zip(requests, reversed(late_ms), strict=False):
            time.sleep(each_ms / 1e3)
            each.scale(scale)
        owner.get_numbers("sum", 0, count, 2.0**-scale).wait(CALL_S)
        for each in requests:
            each.wait(CALL_S)
        got = np.frombuffer(owner.memory, np.float32, count)
        np.testing.assert_array_equal(got, summed(list(pushed), scale))
        exact = pushed.astype(np.float64).sum(0)
        assert (np.abs(got - exact) <= bound(scale, workers) + np.abs(exact) * 2.0**-24).all()


@pytest.mark.parametrize("format", [Format.BFLOAT16, Format.BINARY16])
def test_narrow_formats_are_widened_exactly(format: Format) -> None:
    """Every number of the format, finite."""
    kind = torch.bfloat16 if format is Format.BFLOAT16 else torch.float16
    values = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(kind)
    values = values[values.float().abs() < (2.0**20 if format is Format.BFLOAT16 else float("inf"))]
    wide = values.float().numpy()
    with ends(2, 8 << 16) as (_, owner, nics):
        arrays = [values.view(torch.int16).numpy(), values.flip(0).view(torch.int16).numpy()]
        requests, scale = push(owner, nics, arrays, 0, format, values.numel())
        request = owner.get_numbers("sum", 0, values.numel(), 2.0**-scale)
        request.wait(CALL_S)
        got = np.frombuffer(owner.memory, np.float32, values.numel())
        np.testing.assert_array_equal(got, summed([wide, wide[::-1]], scale))
        for each in requests:
            each.wait(CALL_S)


def test_values_that_are_not_finite_are_seen_when_they_are_measured() -> None:
    with ends(1, 4096) as (_, _, (nic,)):
        values = np.zeros(1000, np.float32)
        for strange in (np.inf, -np.inf, np.nan):
            values[997] = strange
            nic.memory[:4000] = values.tobytes()
            assert nic.give_numbers("push", 0, 1000).measured() == NOT_FINITE


def test_receivers_that_are_slow_hold_their_sender() -> None:
    """One worker of two takes nothing, then all; so does the owner."""
    fragments = 40
    size, count = 4 * LANES * fragments, LANES * fragments
    tree = replace(TREE, detect_us=20_000_000)  # what comes again came too often
    with ends(2, 2 * size, tree=tree) as (switch, owner, nics):
        owner.memory[:size] = os.urandom(size)
        given = owner.give("parameters", 0, size)
        nics[0].get("pull", 0, size)
        requests, scale = push(
            owner, nics, [numbers(w, 0, count) for w in range(2)], size, Format.BINARY32, count
        )
        until(lambda: owner.facts.given["ack"] == TREE.depth, "the room of the slow worker is full")
        until(lambda: nics[0].facts.given["ack"] == TREE.depth, "the room of the owner is full")
        time.sleep(0.1)  # who sends what it must not does it now
        assert owner.facts.given["next"] == owner.facts.given["credit"] == TREE.depth
        assert nics[1].facts.given["next"] == nics[1].facts.given["credit"] == TREE.depth
        assert not given.is_done
        late = nics[1].get("pull", 0, size)
        late.wait(CALL_S)
        given.wait(CALL_S)
        assert nics[1].memory[:size] == owner.memory[:size] == nics[0].memory[:size]
        sum_ = owner.get_numbers("sum", size, count, 2.0**-scale)
        sum_.wait(CALL_S)
        for each in requests:
            each.wait(CALL_S)
        for end in (owner, *nics):
            assert end.facts.gotten["overflowed"] == end.facts.dropped == 0
        assert owner.facts.given["gone_back"] == 0
        assert switch.counts[owned_wire.PARAMETERS] == fragments


def test_a_network_that_is_dark_for_a_while_costs_time_alone() -> None:
    size = 4 * LANES * 64
    with ends(2, size) as (switch, owner, nics):
        owner.memory[:] = os.urandom(len(owner.memory))
        switch.dark = True
        given = owner.give("parameters", 0, size)
        pulls = [nic.get("pull", 0, size) for nic in nics]
        time.sleep(0.2)
        assert not given.is_done
        switch.dark = False
        for each in (given, *pulls):
            each.wait(CALL_S)
        assert all(nic.memory[:size] == owner.memory[:size] for nic in nics)


def test_a_place_that_forgets_everything_loses_nothing() -> None:
    count = LANES * 200
    with ends(3, 4 * count, chaos=Chaos(lost=0.02)) as (switch, owner, nics):
        arrays = [numbers(worker, 0, count) for worker in range(3)]
        requests, scale = push(owner, nics, arrays, 0, Format.BINARY32, count)
        request = owner.get_numbers("sum", 0, count, 2.0**-scale)
        for fragment in (50, 90, 150):
            until(lambda most=fragment: owner.facts.gotten["ack"] > most, "sums come")  # type: ignore[misc]
            switch.top = owned.OwnedPlace(range(3), owned_wire.SLOTS)
        request.wait(CALL_S)
        for each in requests:
            each.wait(CALL_S)
        got = np.frombuffer(owner.memory, np.float32, count)
        np.testing.assert_array_equal(got, summed(arrays, scale))


@pytest.mark.parametrize(("asked", "line"), [(1000, "1000 lanes were asked for, more"), (1200, "1100 came")])
def test_requests_of_other_lengths_fail_in_one_line(asked: int, line: str) -> None:
    with ends(1, 8192) as (_, owner, (nic,)):
        owner.give("parameters", 0, 4400)
        pull, after = nic.get("pull of layer 3", 0, 4 * asked), nic.get("pull of layer 4", 0, 4)
        with pytest.raises(LuwuError, match=f"^pull of layer 3: .*{line}"):
            pull.wait(CALL_S)
        with pytest.raises(
            LuwuError, match=r"^pull of layer 4: an earlier request of its stream has failed$"
        ):
            after.wait(CALL_S)


def test_as_many_requests_as_there_are_places_and_no_more() -> None:
    with ends(1, 4096) as (_, owner, (nic,)):
        pulls = [nic.get(f"pull {number}", 4 * number, 4) for number in range(REQUESTS)]
        with pytest.raises(LuwuError, match=rf"^one more: {REQUESTS} requests are under way: wait for one$"):
            nic.get("one more", 0, 4)
        for number in range(REQUESTS):
            owner.memory[4 * number : 4 * number + 4] = struct.pack("<I", number)
            owner.give(f"push {number}", 4 * number, 4)
        pulls[-1].wait(CALL_S)
        assert all(pull.is_done for pull in pulls)
        assert nic.memory[: 4 * REQUESTS] == owner.memory[: 4 * REQUESTS]
        nic.get("one more", 0, 4)


def test_buffers_outside_of_the_memory_are_refused() -> None:
    with ends(1, 4096) as (_, _, (nic,)):
        for offset, size in ((4096, 4), (0, 4097), (-4, 4), (2, 4)):
            with pytest.raises(
                LuwuError, match=f"^pull: {size} bytes at {offset}: accepted is a multiple of 4"
            ):
                nic.get("pull", offset, size)


def test_a_nic_in_a_process_of_its_own_does_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies in the folder of the script, or in the working one."""
    (tmp_path / "re.py").write_text("raise SystemExit('of the user')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    count = LANES * 30 + 1
    with ends(2, 8 * count, chaos=ROUGH, host=False) as (_, owner, nics):
        assert len({os.getpid(), *(end.pid for end in (owner, *nics))}) == 4
        arrays = [numbers(worker, 0, count) for worker in range(2)]
        requests, scale = push(owner, nics, arrays, 0, Format.BINARY32, count)
        owner.memory[4 * count :] = os.urandom(len(owner.memory) - 4 * count)
        pulls = [nic.get("pull", 4 * count, 4 * count) for nic in nics]
        for each in (owner.get_numbers("sum", 0, count, 2.0**-scale), *requests):
            each.wait(CALL_S)
        owner.give("parameters", 4 * count, 4 * count)
        for each in pulls:
            each.wait(CALL_S)
        got = np.frombuffer(owner.memory, np.float32, count)
        np.testing.assert_array_equal(got, summed(arrays, scale))
        assert all(nic.memory[4 * count : 8 * count] == owner.memory[4 * count : 8 * count] for nic in nics)
        pull = nics[0].get("pull of layer 1", 0, 4)
        assert nics[0].pid is not None
        os.kill(nics[0].pid, signal.SIGKILL)
        line = r"^the process of the NIC ended with -9: nothing more is sent or received$"
        with pytest.raises(LuwuError, match=line):
            pull.wait(CALL_S)


def test_who_waits_hears_why_nothing_comes() -> None:
    reason: list[str] = []
    udp = owned_wire.udp()
    with Nic(replace(TREE, port=9), udp, 4096, host=True, why=lambda: reason[0] if reason else None) as nic:
        pull = nic.get("pull", 0, 4)
        assert nic.peek(pull) == State.READY
        reason.append("the optimizer node h9 is gone")
        with pytest.raises(LuwuError, match=r"^the optimizer node h9 is gone$"):
            pull.wait(CALL_S)


@pytest.mark.parametrize(
    ("setting", "value", "accepted"),
    [("depth", 0, "1 or more"), ("detect_us", 500, "more than beat_us 500"), ("burst", 0, "1 or more")],
)
def test_settings_that_cannot_be_are_refused(setting: str, value: int, accepted: str) -> None:
    with pytest.raises(LuwuError, match=f"^{setting} {value}: accepted is {accepted}$"):
        replace(TREE, **{setting: value})  # type: ignore[arg-type]
