"""Store the states of a model on disks in three copies: the last two iterations, and the one that is being
written.

Owns the folders' files and their locks. Imports disks, commits, checksums and the layout; nothing of torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from workloads.luwu import commits, record
from workloads.luwu.checksum import checksum
from workloads.luwu.commits import COPIES, Commit, Records, StoreFacts
from workloads.luwu.disk import Disk, Purpose, reason
from workloads.luwu.errors import DamageError, DiskError, StoreError
from workloads.luwu.layout import GRADIENT_BYTES, PAGE, PARAMETER_BYTES, STATE_BYTES, Layer, Model
from workloads.luwu.pool import Pool
from workloads.luwu.rates import Queue, Rates
from workloads.luwu.spans import Spans
from workloads.luwu.standing import DiskNow

PARAMETERS, STATES, GRADIENTS = "parameters", "states", "gradients"
_ELEMENT_BYTES = {PARAMETERS: PARAMETER_BYTES, STATES: STATE_BYTES, GRADIENTS: GRADIENT_BYTES}
_KINDS = (PARAMETERS, STATES)  # kinds with COPIES copies
_FILES = tuple(f"{kind}.{copy}" for kind in _KINDS for copy in range(COPIES))
Fill = Callable[[Layer, memoryview, memoryview], None]
"""A function that writes a new layer's parameters and states into two buffers of zeros."""


class Store:
    """A model's states on disks. A context manager; `create` and `resume` make it."""

    def __init__(self, disks: Sequence[Disk], model: Model, spans: Spans, resources: ExitStack) -> None:
        self.model = model
        self.spans = spans
        self.iteration = 0  # the last complete one
        self.settings = b""  # the optimizer's, committed with that iteration
        self.notice = ""  # if the disks were damaged, a line that says how, and which iteration was opened
        self._facts: StoreFacts | None = None  # shared by all commits; set when the store is made or opened
        self._disks = tuple(disks)
        self._resources = resources
        self._files: dict[tuple[str, int], int] = {}
        self._sums: dict[
            tuple[str, int, int], int
        ] = {}  # by kind, layer and disk, of the last whole iteration
        self._next_sums: dict[tuple[str, int, int], int] = {}  # of the next iteration and of gradients
        self._is_known = True  # whether it is known which iteration is complete: not after a failed commit

    @classmethod
    def create(
        cls,
        folders: Sequence[Path],
        model: Model,
        rule: str,
        fill: Fill,
        rates: Rates | None = None,
        iteration: int = 0,
    ) -> Store:
        """Create a store in folders that hold none. `fill` writes the contents, which become iteration
        `iteration`.

        Raises StoreError, or DiskError after restoring the folders.
        """
        with ExitStack() as undo:
            store = cls._lock(folders, model, rates, undo)
            for folder in folders:
                if commits.exist(folder):
                    raise StoreError(f"{folder}: holds a model already: resume it, or name an empty folder")
            made = undo.enter_context(ExitStack())
            try:
                store._make(rule, fill, iteration, made)
            except OSError as problem:
                folder = Path(problem.filename or store._disks[0].folder)
                raise DiskError(f"create {folder}: {reason(problem, store._disks[0].folder)}") from problem
            made.pop_all()
            store._resources = undo.pop_all()
            return store

    @classmethod
    def resume(cls, folders: Sequence[Path], model: Model, rule: str, rates: Rates | None = None) -> Store:
        """Open the store in these folders at its newest complete iteration, and repair disks; `notice`
        describes the damage.

        Raises StoreError where the folders hold another store, or no iteration is complete.
        """
        with ExitStack() as undo:
            store = cls._lock(folders, model, rates, undo)
            records = commits.read(folders, model, rule)
            for folder, own in zip(folders, records.by_disk, strict=True):
                if not own and not any((folder / name).exists() for name in _FILES):
                    raise StoreError(f"{folder}: holds no model; create the store first")
            store._choose(records)
            store._resources = undo.pop_all()
            return store

    @property
    def direct(self) -> list[bool]:
        """Return, for each disk, whether it is accessed without the page cache."""
        return [disk.direct for disk in self._disks]

    @property
    def moved_bytes(self) -> tuple[int, int]:
        """Return the bytes read and the bytes written so far."""
        return sum(disk.read_bytes for disk in self._disks), sum(disk.written_bytes for disk in self._disks)

    def disks_now(self) -> tuple[DiskNow, ...]:
        """Return each disk's present state."""
        return tuple(
            DiskNow(str(disk.folder), disk.waiting(), disk.read_bytes, disk.written_bytes)
            for disk in self._disks
        )

    def reserve_gradients(self) -> None:
        """Reserve space for gradients that wait until all have arrived. Raises DiskError."""
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
        """Start reading a layer as of the last complete iteration; gradients as last written."""
        queue = Queue.READ_PARAMETERS if kind == PARAMETERS else Queue.READ_STATES
        return self._submit(queue, kind, self.iteration % COPIES, layer, buffer, purpose)

    def write(self, kind: str, layer: int, buffer: memoryview, purpose: Purpose) -> list[Future[None]]:
        """Start writing a layer of the next iteration. Raises StoreError after a failed commit, since the
        copy may be a complete iteration.
        """
        if kind != GRADIENTS and not self._is_known:
            raise StoreError(f"{self._disks[0].folder}: a commit has failed; resume the store")
        copy = (self.iteration + 1) % COPIES
        return self._submit(Queue.WRITE_STATES, kind, copy, layer, buffer, purpose)

    def commit(self, settings: bytes) -> None:
        """Make the next iteration, which must be written entirely, the last complete one.

        Raises DiskError. The previous iteration is the last complete one then, unless only the flush after
        the rename failed.
        """
        iteration = self.iteration + 1
        self._is_known = False
        self._on_disks(
            iteration,
            [
                [
                    partial(os.fdatasync, self._files[f"{kind}.{iteration % COPIES}", disk.number])
                    for kind in _KINDS
                ]
                for disk in self._disks
            ],
        )
        self._write_commit(iteration, settings)
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
        """Lock the folders against other processes, and return a store of them without files."""
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

    def _make(self, rule: str, fill: Fill, iteration: int, made: ExitStack) -> None:
        """Create the files, write their first content, and commit it. `made` gets the functions that undo
        this.
        """
        self._facts = commits.facts_of(self.model, rule, uuid.uuid4().hex, len(self._disks))
        for disk in self._disks:
            made.callback(commits.forget, disk.folder)
            for name in _FILES:
                made.callback(_forget, disk.folder / name)
            for name in _FILES:
                self._reserve(disk, name)
        self._open_files(_FILES)
        self._fill(fill, iteration)
        for disk in self._disks:
            for kind in _KINDS:
                os.fdatasync(self._files[f"{kind}.{iteration % COPIES}", disk.number])
        self._write_commit(iteration, b"")
        self._sums, self._next_sums = self._next_sums, {}

    def _choose(self, records: Records) -> None:
        """Open the newest iteration whose data match its commit's checksums, and restore missing files and
        commits of it and of the one before on all disks. Raises StoreError.
        """
        first = self._disks[0].folder
        absent: dict[tuple[str, int], str] = {}  # files that cannot be used, and why
        for disk in self._disks:
            for name in _FILES:
                try:
                    self._open_file(disk, name)
                except StoreError as problem:
                    absent[name, disk.number] = str(problem)
        broken: dict[int, str] = {}
        chosen = None
        for commit in records.newest_first():
            if (wrong := self._problem(commit, absent)) is None:
                chosen = commit
                break
            broken[commit.iteration] = f"iteration {commit.iteration} is not whole: {wrong}"
        if chosen is not None:
            broken.pop(chosen.iteration, None)  # another commit of it, whose data were overwritten
        words = "; ".join((*records.problems, *absent.values(), *broken.values()))
        if chosen is None:
            raise StoreError(f"{first}: no iteration is whole: {words}")
        if words:
            self.notice = f"{first}: opened at iteration {chosen.iteration}, which is whole: {words}"
        self.settings, self._facts = chosen.settings, chosen.store
        try:
            for name, number in absent:
                self._reserve(self._disks[number], name)
                self._open_file(self._disks[number], name)
            self._complete(records, chosen)
        except OSError as problem:
            raise StoreError(f"restore {problem.filename or first}: {reason(problem, first)}") from problem

    def _problem(self, commit: Commit, absent: Mapping[tuple[str, int], str]) -> str | None:
        """Make an iteration the store's own, check all its data, and return the first problem, if any."""
        for (name, _), problem in absent.items():
            if name in [f"{kind}.{commit.iteration % COPIES}" for kind in _KINDS]:
                return problem
        self.iteration = commit.iteration
        self._sums = dict(zip(self._places(), commit.sums, strict=True))
        pool = Pool(max(layer.parameters_bytes + layer.states_bytes for layer in self.model.layers))
        for number, layer in enumerate(self.model.layers):
            buffers = pool.take([layer.parameters_bytes, layer.states_bytes])
            assert buffers is not None
            asked = [
                future
                for kind, buffer in zip(_KINDS, buffers, strict=True)
                for future in self.read(
                    kind, number, memoryview(buffer), Purpose(self.iteration, "open", number)
                )
            ]
            ended = [future.exception() for future in asked]  # waits for all
            for each in ended:
                if isinstance(each, DiskError):
                    return each.what if isinstance(each, DamageError) else str(each)
                if each is not None:
                    raise each
            pool.give(buffers)
        return None

    def _complete(self, records: Records, chosen: Commit) -> None:
        """Write the commits of this iteration and the one before to disks that lack them. Raises OSError."""
        before = [each for each in records.newest_first() if each.iteration == chosen.iteration - 1]
        for commit in (*before[:1], chosen):
            for disk, own in zip(self._disks, records.by_disk, strict=True):
                if own.get(commit.iteration) != commit:
                    commit.write(disk.folder, disk.number)

    def _fill(self, fill: Fill, iteration: int) -> None:
        """Write the first iteration, one layer at a time."""
        largest = max(layer.parameters_bytes + layer.states_bytes for layer in self.model.layers)
        pool = Pool(largest)
        self.iteration = iteration - 1  # `write` writes the next one
        try:
            for number, layer in enumerate(self.model.layers):
                buffers = pool.take([layer.parameters_bytes, layer.states_bytes])
                assert buffers is not None
                for buffer in buffers:
                    buffer[:] = bytes(len(buffer))
                fill(layer, *(memoryview(buffer) for buffer in buffers))
                purpose = Purpose(iteration, "create", number)
                futures = [
                    future
                    for kind, buffer in zip(_KINDS, buffers, strict=True)
                    for future in self.write(kind, number, memoryview(buffer), purpose)
                ]
                for future in futures:
                    future.result()
                pool.give(buffers)
        finally:
            self.iteration = iteration

    def _reserve(self, disk: Disk, name: str) -> None:
        """Make a file of its full length, with its space allocated."""
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
                self._open_file(disk, name)

    def _open_file(self, disk: Disk, name: str) -> None:
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
        """Write the commit of a written iteration to every disk. Raises DiskError."""
        sums = tuple(self._next_sums[place] for place in self._places())
        assert self._facts is not None
        commit = Commit(iteration, self._facts, sums, settings)
        self._on_disks(iteration, [[partial(commit.write, disk.folder, disk.number)] for disk in self._disks])

    def _on_disks(self, iteration: int, work: Sequence[Sequence[Callable[[], None]]]) -> None:
        """Run each disk's work on all disks at the same time, and wait for all. Raises DiskError of the first
        failure.
        """
        asked = [[disk.call(each) for each in own] for disk, own in zip(self._disks, work, strict=True)]
        failed = [
            (disk.folder, problem)
            for disk, own in zip(self._disks, asked, strict=True)
            for each in own
            if (problem := each.exception()) is not None
        ]
        for folder, problem in failed:
            if not isinstance(problem, OSError):
                raise problem
            raise DiskError(
                f"commit iteration {iteration} in {folder}: {reason(problem, folder)}"
            ) from problem

    def _places(self) -> list[tuple[str, int, int]]:
        """Return what has a checksum in a commit (kind, layer, disk), in the order of the checksums."""
        return [
            (kind, layer, stripe.disk)
            for kind in _KINDS
            for layer in range(len(self.model.layers))
            for stripe in self.model.stripes(layer, _ELEMENT_BYTES[kind], len(self._disks))
        ]


def _check_folder(folder: Path, before: Sequence[Path]) -> None:
    if not folder.exists():
        raise StoreError(f"{folder}: no such folder")
    if not folder.is_dir():
        raise StoreError(f"{folder}: is not a folder")
    if any(folder.samefile(other) for other in before):
        raise StoreError(f"{folder}: is named twice; each disk is a folder of its own")


def _locked(folder: Path) -> int:
    """Lock the folder and return the lock file's descriptor. The file is a page long, to test direct I/O on
    it. Raises StoreError where another process holds the lock.
    """
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


def _forget(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
