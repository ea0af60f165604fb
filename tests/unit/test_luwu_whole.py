"""LuWu's store after crashes and flipped bits: what is opened is plain torch's states of that iteration."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.luwu_world import SHAPES, Reference, World, adamw, flip, same, small
from workloads.luwu.errors import DiskError, StoreError

MODEL = small(shapes=SHAPES[:2])
START = 2
STATES: list[dict[str, list[torch.Tensor]]] = []  # of each iteration, in plain torch


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two disks of a store of iteration START."""
    folder = tmp_path_factory.mktemp("trained")
    disks = disks_of(folder)
    for disk in disks:
        disk.mkdir()
    reference = Reference(MODEL, adamw, None, None)
    STATES.clear()
    with World(disks, model=MODEL) as world:
        STATES.append(world.states())
        for _ in range(START + 2):
            reference.iterate()
            STATES.append({name: [each.clone() for each in own] for name, own in reference.states().items()})
        for _ in range(START):
            world.node.iterate()
    return folder


def disks_of(folder: Path) -> list[Path]:
    return [folder / "a", folder / "b"]


@contextlib.contextmanager
def no_more_after(operations: int) -> Iterator[None]:
    """Have all that changes a file fail after some operations, as a crash has it never done."""
    left, lock = operations, threading.Lock()

    def failing(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            nonlocal left
            with lock:
                left -= 1
                if left < 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            return function(*arguments)

        return call

    with contextlib.ExitStack() as stack:
        for name in ("pwritev", "write", "fsync", "fdatasync", "rename"):
            stack.enter_context(mock.patch.object(os, name, failing(getattr(os, name))))
        yield


@settings(max_examples=60)
@given(st.data())
def test_what_is_opened_is_torchs_of_that_iteration(trained: Path, data: st.DataObject) -> None:
    """An iteration breaks off at any operation, and no, one or two bits are flipped in any of the files. With
    one flip, the iteration before the last is the oldest that may be opened.
    """
    with tempfile.TemporaryDirectory(dir=trained.parent) as name:
        folder = Path(name) / "copy"
        shutil.copytree(trained, folder)
        disks = disks_of(folder)
        crash = data.draw(st.none() | st.integers(0, 40), label="crash")
        if crash is not None:
            with (
                World(disks, model=MODEL, resume=True) as world,
                no_more_after(crash),
                contextlib.suppress(DiskError),
            ):
                world.node.iterate()
        files = sorted(each for disk in disks for each in disk.iterdir() if each.stat().st_size)
        flips, oldest = data.draw(st.integers(0, 2), label="flips"), START
        for _ in range(flips):
            file = data.draw(st.sampled_from(files), label="file")
            oldest -= flips == 2 or not file.name.startswith("commit")  # which the other disk has
            flip(file, data.draw(st.integers(0, file.stat().st_size - 1)), data.draw(st.integers(0, 7)))
        refusal = None
        try:
            with World(disks, model=MODEL, resume=True) as world:
                iteration = world.node.iteration
                assert same(world.states(), STATES[iteration])
                assert "\n" not in world.store.notice
                assert iteration >= START or f"opened at iteration {iteration}" in world.store.notice
                assert iteration >= oldest
                assert flips > 0 or world.store.notice == ""
                assert world.node.iterate() == iteration + 1
                assert same(world.states(), STATES[iteration + 1])
        except StoreError as problem:
            refusal = str(problem)
        if refusal is not None:
            assert flips == 2
            assert "no iteration is whole: " in refusal
            assert "\n" not in refusal
            return
        with World(disks, model=MODEL, resume=True) as world:
            assert world.node.iteration == iteration + 1
            assert same(world.states(), STATES[iteration + 1])
