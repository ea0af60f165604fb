"""The states of a model on disks, in two copies: what was whole last, and what is being written.

Owns the folders' files and their lock. Imports disks, records, checksums and the layout; nothing
of torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from workloads.luwu import record
from workloads.luwu.checksum import checksum
from workloads.luwu.disk import Disk, Purpose, reason
from workloads.luwu.errors import DiskError, StoreError
from workloads.luwu.layout import GRADIENT_BYTES, PAGE, PARAMETER_BYTES, STATE_BYTES, Layer, Model
from workloads.luwu.pool import Pool
from workloads.luwu.rates import Queue, Rates
from workloads.luwu.spans import Spans
from workloads.luwu.standing import DiskNow

FORMAT = 1
PARAMETERS, STATES, GRADIENTS = "parameters", "states", "gradients"
_ELEMENT_BYTES = {PARAMETERS: PARAMETER_BYTES, STATES: STATE_BYTES, GRADIENTS: GRADIENT_BYTES}
_COPIES = tuple(f"{kind}.{copy}" for kind in (PARAMETERS, STATES) for copy in (0, 1))
Fill = Callable[[Layer, memoryview, memoryview], None]
"""Writes a new layer's parameters and states into the two buffers, which hold zeros."""


class Store:
    """A context manager; made by `create` or `resume`."""

    def __init__(self, disks: Sequence[Disk], model: Model, spans: Spans, resources: ExitStack) -> None:
        self.model = model
        self.spans = spans
        self.iteration = 0  # the last that is whole
        self.settings = b""  # that were committed with it
        self._identity = ""
        self._disks = tuple(disks)
        self._resources = resources
        self._files: dict[tuple[str, int], int] = {}
        self._sums: dict[
            tuple[str, int, int], int
        ] = {}  # by kind, layer and disk, of the last whole iteration
        self._next_sums: dict[tuple[str, int, int], int] = {}  # of what is being written, and of gradients
        self._is_known = True  # which iteration is whole; not after a commit that failed

    @classmethod
    def create(
        cls, folders: Sequence[Path], model: Model, rule: str, fill: Fill, rates: Rates | None = None
    ) -> Store:
        """A new store of iteration 0, in folders that have none. Raises StoreError; DiskError leaves the
        folders as they were.
        """
        with ExitStack() as undo:
            store = cls._lock(folders, model, rates, undo)
            _check_empty(folders)
            made = undo.enter_context(ExitStack())
            try:
                store._make(rule, fill, made)
            except OSError as problem:
                folder = Path(problem.filename or store._disks[0].folder)
                raise DiskError(f"create {folder}: {reason(problem, store._disks[0].folder)}") from problem
            made.pop_all()
            store._resources = undo.pop_all()
            return store

    @classmethod
    def resume(cls, folders: Sequence[Path], model: Model, rule: str, rates: Rates | None = None) -> Store:
        """The store in these folders, at its last whole iteration. Raises StoreError where it is another's,
        or another than it was.
        """
        with ExitStack() as undo:
            store = cls._lock(folders, model, rates, undo)
            identities = [_check(disk, len(folders), model, rule) for disk in store._disks]
            for disk, identity in zip(store._disks, identities, strict=True):
                if identity != identities[0]:
                    raise StoreError(f"{disk.folder}: is of another store than {store._disks[0].folder}")
            committed = record.read(store._disks[0].folder, "commit")
            if committed is None or committed[0].get("store") != identities[0]:
                raise StoreError(f"{store._disks[0].folder}: was never whole; create the store again")
            store.iteration = int(committed[0]["iteration"])
            store._sums, store.settings = store._unpack(committed[1])
            store._identity = identities[0]
            store._open_files(_COPIES)
            store._resources = undo.pop_all()
            return store

    @property
    def direct(self) -> list[bool]:
        """Return which disks are read and written past the page cache."""
        return [disk.direct for disk in self._disks]

    @property
    def moved_bytes(self) -> tuple[int, int]:
        """Bytes read and written so far."""
        return sum(disk.read_bytes for disk in self._disks), sum(disk.written_bytes for disk in self._disks)

    def disks_now(self) -> tuple[DiskNow, ...]:
        """Return what each disk is at."""
        return tuple(
            DiskNow(str(disk.folder), disk.waiting(), disk.read_bytes, disk.written_bytes)
            for disk in self._disks
        )

    def reserve_gradients(self) -> None:
        """Take the room that gradients need which wait for their norm. Raises DiskError."""
        for disk in self._disks:
            try:
                self._reserve(disk, GRADIENTS)
            except OSError as problem:
                with contextlib.suppress(OSError):
                    (disk.folder / GRADIENTS).unlink()
                raise DiskError(
                    f"create {disk.folder / GRADIENTS}: {reason(problem, disk.folder)}"
                ) from problem
        self._open_files((GRADIENTS,))

    def read(self, kind: str, layer: int, buffer: memoryview, purpose: Purpose) -> list[Future[None]]:
        """A layer as the last whole iteration left it; gradients as they were written."""
        queue = Queue.READ_PARAMETERS if kind == PARAMETERS else Queue.READ_STATES
        return self._submit(queue, kind, self.iteration % 2, layer, buffer, purpose)

    def write(self, kind: str, layer: int, buffer: memoryview, purpose: Purpose) -> list[Future[None]]:
        """A layer of the next iteration. Raises StoreError after a commit that failed: it may be whole."""
        if kind != GRADIENTS and not self._is_known:
            raise StoreError(f"{self._disks[0].folder}: a commit has failed; resume the store")
        return self._submit(Queue.WRITE_STATES, kind, (self.iteration + 1) % 2, layer, buffer, purpose)

    def commit(self, settings: bytes) -> None:
        """The next iteration, all of which was written, is the last whole one from now on. Raises DiskError;
        then the one before is, unless only the flush after the rename failed.
        """
        flushed = [
            disk.call(partial(os.fdatasync, self._files[f"{kind}.{(self.iteration + 1) % 2}", disk.number]))
            for disk in self._disks
            for kind in (PARAMETERS, STATES)
        ]
        self._is_known = False
        try:
            for each in flushed:
                each.result()
            self._write_commit(self.iteration + 1, settings)
        except OSError as problem:
            folder = self._disks[0].folder
            raise DiskError(
                f"commit iteration {self.iteration + 1} in {folder}: {reason(problem, folder)}"
            ) from problem
        self.iteration += 1
        self.settings, self._is_known = settings, True
        written = self._next_sums
        self._next_sums = {place: each for place, each in written.items() if place[0] == GRADIENTS}
        self._sums = written

    def close(self) -> None:
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @classmethod
    def _lock(cls, folders: Sequence[Path], model: Model, rates: Rates | None, undo: ExitStack) -> Store:
        """Return a store of these folders, which no other process has, without files."""
        if not folders:
            raise StoreError("a store needs at least one folder")
        spans = Spans()
        disks: list[Disk] = []
        for number, folder in enumerate(folders):
            _check_folder(folder, folders[:number])
            try:
                undo.callback(os.close, _locked(folder))
                disks.append(Disk(number, folder, rates or Rates(), spans))
            except OSError as problem:
                raise StoreError(f"{folder}: {reason(problem, folder)}") from problem
            undo.callback(disks[-1].close)
        return cls(disks, model, spans, undo)

    def _make(self, rule: str, fill: Fill, made: ExitStack) -> None:
        """Files, their first content, and iteration 0. `made` takes back what was made."""
        self._identity = uuid.uuid4().hex
        for disk in self._disks:
            for name in ("model", "commit", *_COPIES):
                made.callback(_forget, disk.folder / name)
            for name in _COPIES:
                self._reserve(disk, name)
        self._open_files(_COPIES)
        self._fill(fill)
        for disk in self._disks:
            for copy in ("parameters.0", "states.0"):
                os.fdatasync(self._files[copy, disk.number])
            facts = _facts(self.model, rule, self._identity, disk.number, len(self._disks))
            record.write(disk.folder, "model", facts)
        self._write_commit(0, b"")
        self._sums, self._next_sums = self._next_sums, {}

    def _fill(self, fill: Fill) -> None:
        """Write the first copy, a layer at a time."""
        largest = max(layer.parameters_bytes + layer.states_bytes for layer in self.model.layers)
        pool = Pool(largest)
        self.iteration = -1  # copy 0 is written
        try:
            for number, layer in enumerate(self.model.layers):
                buffers = pool.take([layer.parameters_bytes, layer.states_bytes])
                assert buffers is not None
                for buffer in buffers:
                    buffer[:] = bytes(len(buffer))
                fill(layer, *(memoryview(buffer) for buffer in buffers))
                purpose = Purpose(0, "create", number)
                futures = [
                    future
                    for kind, buffer in zip((PARAMETERS, STATES), buffers, strict=True)
                    for future in self.write(kind, number, memoryview(buffer), purpose)
                ]
                for future in futures:
                    future.result()
                pool.give(buffers)
        finally:
            self.iteration = 0

    def _reserve(self, disk: Disk, name: str) -> None:
        """Make a file with all the room that it will need."""
        length = self.model.file_bytes(_ELEMENT_BYTES[name.partition(".")[0]], len(self._disks))
        fd = os.open(disk.folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, length)
            os.ftruncate(fd, length)
            os.fsync(fd)
        finally:
            os.close(fd)
        record.flush_folder(disk.folder)

    def _open_files(self, names: Sequence[str]) -> None:
        for disk in self._disks:
            for name in names:
                length = self.model.file_bytes(_ELEMENT_BYTES[name.partition(".")[0]], len(self._disks))
                try:
                    fd = disk.open_file(name)
                    self._files[name, disk.number] = fd
                    self._resources.callback(os.close, fd)
                    size = os.fstat(fd).st_size
                except OSError as problem:
                    raise StoreError(f"{disk.folder / name}: {reason(problem, disk.folder)}") from problem
                if size != length:
                    raise StoreError(f"{disk.folder / name}: has {size} bytes, a whole one has {length}")

    def _submit(
        self, queue: Queue, kind: str, copy: int, layer: int, buffer: memoryview, purpose: Purpose
    ) -> list[Future[None]]:
        name = kind if kind == GRADIENTS else f"{kind}.{copy}"
        sums = self._next_sums if kind == GRADIENTS else self._sums
        asked = []
        for stripe in self.model.stripes(layer, _ELEMENT_BYTES[kind], len(self._disks)):
            view, place = buffer[stripe.start : stripe.end], (kind, layer, stripe.disk)
            if queue is Queue.WRITE_STATES:
                self._next_sums[place] = checksum(view)
            expected = None if queue is Queue.WRITE_STATES else sums[place]
            file = self._files[name, stripe.disk]
            asked.append(
                self._disks[stripe.disk].submit(queue, file, name, stripe.offset, view, purpose, expected)
            )
        return asked

    def _write_commit(self, iteration: int, settings: bytes) -> None:
        facts = {"iteration": iteration, "store": self._identity}
        sums = struct.pack(self._sums_format(), *(self._next_sums[place] for place in self._places()))
        record.write(self._disks[0].folder, "commit", facts, sums + settings)

    def _places(self) -> list[tuple[str, int, int]]:
        """Return what has a checksum in the commit, in the order in which they lie there."""
        return [
            (kind, layer, stripe.disk)
            for kind in (PARAMETERS, STATES)
            for layer in range(len(self.model.layers))
            for stripe in self.model.stripes(layer, _ELEMENT_BYTES[kind], len(self._disks))
        ]

    def _sums_format(self) -> str:
        return f"<{len(self._places())}I"

    def _unpack(self, blob: bytes) -> tuple[dict[tuple[str, int, int], int], bytes]:
        """Return a commit's checksums and settings."""
        length = struct.calcsize(self._sums_format())
        sums = struct.unpack(self._sums_format(), blob[:length])
        return dict(zip(self._places(), sums, strict=True)), blob[length:]


def _facts(model: Model, rule: str, identity: str, disk: int, disks: int) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "store": identity,
        "disk": disk,
        "disks": disks,
        "rule": rule,
        "dtype": model.dtype,
        "layers": model.description(),
    }


def _check_folder(folder: Path, before: Sequence[Path]) -> None:
    if not folder.exists():
        raise StoreError(f"{folder}: no such folder")
    if not folder.is_dir():
        raise StoreError(f"{folder}: is not a folder")
    if any(folder.samefile(other) for other in before):
        raise StoreError(f"{folder}: is named twice; each disk is a folder of its own")


def _locked(folder: Path) -> int:
    """Return the descriptor that holds the folder's lock; the file is a page that direct I/O is tried on."""
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_size != PAGE:
            os.pwrite(fd, bytes(PAGE), 0)
            os.ftruncate(fd, PAGE)
            os.fsync(fd)
    except BlockingIOError as problem:
        os.close(fd)
        raise StoreError(f"{folder}: in use by another process") from problem
    except OSError:
        os.close(fd)
        raise
    return fd


def _check_empty(folders: Sequence[Path]) -> None:
    """Raise StoreError if a folder has a disk of a store. One whose making was broken off does not count."""
    records = {folder: record.read(folder, "model") for folder in folders}
    firsts = {facts[0]["store"] for facts in records.values() if facts is not None and facts[0]["disk"] == 0}
    for folder, facts in records.items():
        broken_off = facts is None or facts[0]["store"] in firsts  # the first disk has the commit
        if (folder / "commit").exists() or not broken_off:
            raise StoreError(f"{folder}: holds a model already: resume it, or name an empty folder")


def _check(disk: Disk, disks: int, model: Model, rule: str) -> str:
    """Return the identity of the store that this folder is disk `disk.number` of. StoreError if it is not."""
    read = record.read(disk.folder, "model")
    if read is None:
        raise StoreError(f"{disk.folder}: holds no model; create the store first")
    facts, folder = read[0], disk.folder
    if facts.get("format") != FORMAT:
        raise StoreError(f"{folder}: is of format {facts.get('format')}, accepted is {FORMAT}")
    if facts["dtype"] != model.dtype:
        raise StoreError(f"{folder}: holds parameters in {facts['dtype']}, the model's are {model.dtype}")
    if facts["rule"] != rule:
        raise StoreError(f"{folder}: holds the states of {facts['rule']}, the optimizer is {rule}")
    if (difference := _difference(facts["layers"], model.description())) is not None:
        raise StoreError(f"{folder}: holds another model: {difference}")
    if (facts["disk"], facts["disks"]) != (disk.number, disks):
        raise StoreError(
            f"{folder}: is disk {facts['disk']} of {facts['disks']}, "
            f"and is named as disk {disk.number} of {disks}"
        )
    return str(facts["store"])


def _difference(theirs: list[Any], ours: list[Any]) -> str | None:
    """Return the first layer or tensor that differs."""
    if len(theirs) != len(ours):
        return f"of {len(theirs)} layers, this one has {len(ours)}"
    for (their_name, their_tensors), (name, tensors) in zip(theirs, ours, strict=True):
        if their_name != name:
            return f"its layer {their_name} is {name} here"
        for their, our in zip(their_tensors, tensors, strict=False):
            if their != our:
                return f"its tensor {their[0]} of shape {their[1]} is {our[0]} of shape {our[1]} here"
        if len(their_tensors) != len(tensors):
            return f"its layer {name} has {len(their_tensors)} tensors, {len(tensors)} here"
    return None


def _forget(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
