"""LuWu's disks: the order of their queues, their rates, direct I/O, and the bound of the buffers."""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.limits import CALL_S
from tests.unit.luwu_world import Reference, World, adamw, same, small
from workloads.luwu import disk as disk_module
from workloads.luwu.disk import Disk, Purpose
from workloads.luwu.errors import DiskError, LuwuError
from workloads.luwu.layout import GRADIENT_BYTES, PAGE, PARAMETER_BYTES, STATE_BYTES, Layer, Model, Tensor
from workloads.luwu.pool import Pool
from workloads.luwu.rates import BURST_S, Meter, Pace, Queue, Rates
from workloads.luwu.spans import Spans

PURPOSE = Purpose(1, "test", 0)
MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lock").write_bytes(bytes(PAGE))
    (tmp_path / "file").write_bytes(bytes(8 * MIB))
    return tmp_path


def buffer(size: int = 2 * MIB, value: int = 0) -> memoryview:
    made = mmap.mmap(-1, size)
    made[:] = bytes([value]) * size
    return memoryview(made)


# ---------------------------------------------------------------- queues


def test_the_most_urgent_queue_is_served_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_module, "THREADS", 1)
    spans = Spans()
    disk = Disk(0, folder, Rates(), spans)
    try:
        fd = disk.open_file("file")
        gate = threading.Event()
        disk.call(lambda: (gate.wait(60), None)[1])
        order = [Queue.WRITE_STATES, Queue.READ_STATES, Queue.READ_PARAMETERS] * 2
        done = [disk.submit(queue, fd, "file", 0, buffer(), PURPOSE) for queue in order]
        gate.set()
        for each in done:
            each.result(60)
        os.close(fd)
    finally:
        disk.close()
    served = [span.place for span in spans.all()]
    assert served == [
        f"disk 0 {name}" for name in ("read parameters", "read states", "write states") for _ in range(2)
    ]


def test_an_urgent_request_overtakes_the_pieces_of_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "THREADS", 1)
    begun, go_on = threading.Event(), threading.Event()
    real = os.pwritev

    def slow(fd: int, views: list[memoryview], offset: int) -> int:
        begun.set()
        go_on.wait(60)
        return real(fd, views, offset)

    spans = Spans()
    disk = Disk(0, folder, Rates(), spans)
    monkeypatch.setattr(os, "pwritev", slow)
    try:
        fd = disk.open_file("file")
        written = disk.submit(Queue.WRITE_STATES, fd, "file", 0, buffer(8 * MIB), PURPOSE)
        begun.wait(60)
        read = disk.submit(Queue.READ_PARAMETERS, fd, "file", 0, buffer(), PURPOSE)
        go_on.set()
        read.result(60)
        written.result(60)
        os.close(fd)
    finally:
        disk.close()
    assert [span.place for span in spans.all()] == ["disk 0 read parameters", "disk 0 write states"]


def test_what_is_written_is_read(folder: Path) -> None:
    disk = Disk(0, folder, Rates(), Spans())
    try:
        fd = disk.open_file("file")
        for number in range(3):
            view = buffer(MIB + PAGE, number + 1)
            disk.submit(Queue.WRITE_STATES, fd, "file", number * (2 * MIB), view, PURPOSE).result(60)
        for number in range(3):
            view = buffer(MIB + PAGE)
            disk.submit(Queue.READ_STATES, fd, "file", number * (2 * MIB), view, PURPOSE).result(60)
            assert bytes(view) == bytes([number + 1]) * (MIB + PAGE)
        # a page, which is one piece: of two, either may be the first to find the end
        past = disk.submit(Queue.READ_STATES, fd, "file", 8 * MIB, buffer(PAGE), PURPOSE)
        with pytest.raises(DiskError, match="file: the file ends at 8388608 bytes"):
            past.result(60)
        os.close(fd)
        # no number of a file that was just closed: another thread of this process may have opened it
        closed = disk.submit(Queue.READ_STATES, -1, "file", 0, buffer(), PURPOSE)
        with pytest.raises(DiskError, match=r"read .*file: Bad file descriptor"):
            closed.result(60)
    finally:
        disk.close()
    with pytest.raises(DiskError, match="closed"):
        disk.submit(Queue.READ_STATES, fd, "file", 0, buffer(), PURPOSE).result(60)


def test_what_waits_when_a_disk_is_closed_fails(folder: Path) -> None:
    disk = Disk(0, folder, Rates(read_states=1e5), Spans())
    fd = disk.open_file("file")
    waiting = [disk.submit(Queue.READ_STATES, fd, "file", 0, buffer(), PURPOSE) for _ in range(2)]
    disk.close()
    for each in waiting:
        with pytest.raises(DiskError, match="closed"):
            each.result(60)
    os.close(fd)


# ---------------------------------------------------------------- rates


@given(st.lists(st.tuples(st.integers(1, 10**7), st.floats(0, 0.5)), min_size=1, max_size=60))
def test_a_pace_holds_over_every_interval(pieces: list[tuple[int, float]]) -> None:
    """No more goes between two pieces than the rate gives in that time, and the burst, and one piece."""
    pace, now, went = Pace(1e6), 0.0, []
    for size, idle_s in pieces:
        now = max(now + idle_s, pace.free_s)
        pace.spend(size, now)
        went.append((now, size))
    for begin in range(len(went)):
        total = 0
        for moment, size in went[begin:]:
            assert total <= 1e6 * (moment - went[begin][0] + BURST_S) * (1 + 1e-9) + 1
            total += size


def test_rates_of_a_direction_are_shared() -> None:
    meter = Meter(Rates(reads=1000.0, write_states=500.0))
    meter.spend(Queue.READ_STATES, 1000, 10.0)
    assert meter.free_s(Queue.READ_PARAMETERS) == pytest.approx(11.0 - BURST_S)
    assert meter.free_s(Queue.WRITE_STATES) == float("-inf")
    assert Rates(reads=100.0, write_states=50.0).scaled(10) == Rates(reads=10.0, write_states=5.0)


def test_a_declared_rate_is_held(folder: Path) -> None:
    disk = Disk(0, folder, Rates(read_states=40e6), Spans())
    try:
        fd = disk.open_file("file")
        start = time.monotonic()
        disk.submit(Queue.READ_STATES, fd, "file", 0, buffer(8 * MIB), PURPOSE).result(60)
        took_s = time.monotonic() - start
        os.close(fd)
    finally:
        disk.close()
    assert took_s > 0.8 * 8 * MIB / 40e6


# ---------------------------------------------------------------- direct I/O


def test_a_file_system_without_direct_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    reference = Reference(small(), adamw, None, None)
    with World([tmp_path]) as world:
        assert world.store.direct == [False]
        for _ in range(3):
            world.node.iterate()
            reference.iterate()
        assert same(world.states(), reference.states())


# ---------------------------------------------------------------- buffers


def test_buffers_stay_within_their_bound() -> None:
    pool = Pool(5 * MIB)
    first = pool.take([MIB, 2 * MIB])
    assert first is not None
    taken: list[object] = []
    other = threading.Thread(target=lambda: taken.append(pool.take([3 * MIB])))
    other.start()
    other.join(0.05)
    assert taken == []
    pool.give(first)
    other.join(60)
    assert taken[0] is not None
    assert pool.most_bytes == 3 * MIB
    with pytest.raises(LuwuError, match="needs 6291456 bytes of buffers, the pool's bound is 5242880"):
        pool.take([6 * MIB])


@given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(1, 4), min_size=1, max_size=3)), max_size=60))
def test_kept_buffers_are_within_the_bound(steps: list[tuple[bool, list[int]]]) -> None:
    pool = Pool(12 * PAGE)
    held: list[list[mmap.mmap]] = []
    for gives, sizes in steps:
        if gives and held:
            pool.give(held.pop(0))
        elif sum(len(each) for group in held for each in group) + PAGE * sum(sizes) <= 12 * PAGE:
            buffers = pool.take([PAGE * size for size in sizes])
            assert buffers is not None
            assert [len(each) for each in buffers] == [PAGE * size for size in sizes]
            held.append(buffers)
        used = sum(len(each) for group in held for each in group)
        assert used + pool.kept_bytes <= 12 * PAGE
    every = [id(each) for group in held for each in group]
    assert len(set(every)) == len(every)


def test_a_stopped_pool_lets_go() -> None:
    pool = Pool(MIB)
    assert pool.take([MIB]) is not None
    taken: list[object] = [0]
    other = threading.Thread(target=lambda: taken.append(pool.take([MIB])))
    other.start()
    pool.stop()
    other.join(60)
    assert taken == [0, None]


# ---------------------------------------------------------------- layout


@given(
    st.lists(st.lists(st.integers(1, 9000), min_size=1, max_size=4), min_size=1, max_size=6),
    st.integers(1, 7),
    st.sampled_from([PARAMETER_BYTES, GRADIENT_BYTES, STATE_BYTES]),
)
def test_stripes_hold_every_byte_once(sizes: list[list[int]], disks: int, element: int) -> None:
    model = Model(
        [
            Layer(str(n), tuple(Tensor(f"{n}.{i}", (size,)) for i, size in enumerate(layer)))
            for n, layer in enumerate(sizes)
        ]
    )
    length = model.file_bytes(element, disks)
    files: dict[int, list[tuple[int, int]]] = {}
    for number, layer in enumerate(model.layers):
        stripes = model.stripes(number, element, disks)
        assert [stripe.start for stripe in stripes[1:]] == [stripe.end for stripe in stripes[:-1]]
        assert (stripes[0].start, stripes[-1].end) == (0, layer.elements * element)
        for stripe in stripes:
            assert stripe.start % PAGE == stripe.end % PAGE == stripe.offset % PAGE == 0
            files.setdefault(stripe.disk, []).append(
                (stripe.offset, stripe.offset + stripe.end - stripe.start)
            )
        ends = [start + tensor.numel for start, tensor in zip(layer.starts, layer.tensors, strict=True)]
        assert all(end <= start for end, start in zip(ends, layer.starts[1:], strict=False))
        assert ends[-1] <= layer.used <= layer.elements
    for ranges in files.values():
        ranges.sort()
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
        assert ranges[-1][1] <= length


# ---------------------------------------------------------------- memory


def test_memory_is_bounded_well_below_the_model(tmp_path: Path) -> None:
    """The kernel refuses the process more than 64 MiB of data above what it had before it met the model."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.luwu_bounded", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=CALL_S,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = dict(part.split("=") for part in done.stdout.split())
    assert int(said["model"]) > 2.5 * int(said["limit"])
    assert int(said["refused"]) == 1  # the limit holds: as much as the model has is not to be had
