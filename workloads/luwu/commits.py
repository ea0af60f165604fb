"""Write and read commits: records on every disk that say which iteration is complete in which copy.

Owns the records' names and contents. From the project it imports records, errors, the layout, and the JSON
decoder.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from testbed.wire.settings import decoded
from workloads.luwu import record
from workloads.luwu.errors import StoreError
from workloads.luwu.layout import Description, Model

FORMAT: Final = 2
COPIES: Final = 3
"""Iteration n is in copy n mod 3: while n + 1 is written, n and n - 1 are complete."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The facts that all commits of a store share: `store` identifies it, `disks` is the number of disks, and
    `layers` describes the model.
    """

    format: int
    store: str
    disks: int
    rule: str
    dtype: str
    layers: Description


@dataclass(frozen=True, slots=True)
class CommitFacts(StoreFacts):
    """The facts of one disk's commit: the disk's number, the iteration, and how many checksums follow."""

    disk: int
    iteration: int
    sums: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A complete iteration: the optimizer's settings then, and one checksum for each disk's part of each
    layer.

    `store` is equal on all disks.
    """

    iteration: int
    store: StoreFacts
    sums: tuple[int, ...]
    settings: bytes

    def write(self, folder: Path, disk: int) -> None:
        """Write the commit to a disk's folder. Raises OSError; `record.write` says what is left then."""
        facts = CommitFacts(**asdict(self.store), disk=disk, iteration=self.iteration, sums=len(self.sums))
        sums = struct.pack(f"<{len(self.sums)}I", *self.sums)
        record.write(folder, _name(self.iteration), json.dumps(asdict(facts)), sums + self.settings)


@dataclass(frozen=True, slots=True)
class Records:
    """The commits of a store's disks, in the order of the disks, and a line for each damaged commit."""

    by_disk: tuple[dict[int, Commit], ...]  # by iteration
    problems: tuple[str, ...]

    def newest_first(self) -> list[Commit]:
        """Return the distinct commits, newest first."""
        all_of = [commit for own in self.by_disk for commit in own.values()]
        each = [commit for place, commit in enumerate(all_of) if commit not in all_of[:place]]
        return sorted(each, key=lambda commit: -commit.iteration)


def facts_of(model: Model, rule: str, identity: str, disks: int) -> StoreFacts:
    """Return the facts that all commits of a store share."""
    return StoreFacts(FORMAT, identity, disks, rule, model.dtype, model.description())


def exist(folder: Path) -> bool:
    """Return whether the folder has any commit: intact, damaged, or of a former format."""
    return any((folder / name).exists() for name in (*_names(), "model"))


def read(folders: Sequence[Path], model: Model, rule: str) -> Records:
    """Read the commits of these folders. A damaged one becomes a line of `problems`.

    Raises StoreError where a commit is of another store, model, rule or format, or its folder is listed as
    another disk than it is.
    """
    by_disk: list[dict[int, Commit]] = []
    problems: list[str] = []
    identity, named = None, folders[0]
    for number, folder in enumerate(folders):
        own: dict[int, Commit] = {}
        for name in _names():
            try:
                content = record.read(folder, name)
            except StoreError as problem:
                problems.append(str(problem))
                continue
            if content is None:
                continue
            text, blob = content
            facts = _facts(folder, text)
            _check(folder, facts, model, rule)
            if (facts.disk, facts.disks) != (number, len(folders)):
                raise StoreError(
                    f"{folder}: is disk {facts.disk} of {facts.disks}, "
                    f"and is named as disk {number} of {len(folders)}"
                )
            if identity is None:
                identity, named = facts.store, folder
            if facts.store != identity:
                raise StoreError(f"{folder}: is of another store than {named}")
            commit = _unpacked(facts, blob)
            own[commit.iteration] = commit
        by_disk.append(own)
        if not own and (folder / "model").exists():
            _refuse_format(folder, 1)
    return Records(tuple(by_disk), tuple(problems))


def forget(folder: Path) -> None:
    """Remove all commits that can be removed."""
    for name in _names():
        with contextlib.suppress(OSError):
            (folder / name).unlink()


def _names() -> list[str]:
    return [_name(copy) for copy in range(COPIES)]


def _name(iteration: int) -> str:
    return f"commit.{iteration % COPIES}"


def _unpacked(facts: CommitFacts, blob: bytes) -> Commit:
    store = StoreFacts(**{each.name: getattr(facts, each.name) for each in fields(StoreFacts)})
    sums = struct.unpack(f"<{facts.sums}I", blob[: 4 * facts.sums])
    return Commit(facts.iteration, store, sums, blob[4 * facts.sums :])


def _facts(folder: Path, text: str) -> CommitFacts:
    """Parse the facts of a commit. Raises StoreError for a former format."""
    data = json.loads(text)
    if data.get("format") != FORMAT:
        _refuse_format(folder, data.get("format"))
    return decoded(CommitFacts, data)


def _check(folder: Path, facts: CommitFacts, model: Model, rule: str) -> None:
    if facts.dtype != model.dtype:
        raise StoreError(f"{folder}: holds parameters in {facts.dtype}, the model's are {model.dtype}")
    if facts.rule != rule:
        raise StoreError(f"{folder}: holds the states of {facts.rule}, the optimizer is {rule}")
    if (difference := _difference(facts.layers, model.description())) is not None:
        raise StoreError(f"{folder}: holds another model: {difference}")


def _refuse_format(folder: Path, number: object) -> None:
    raise StoreError(
        f"{folder}: is of format {number}, accepted is {FORMAT}: "
        "go on with the version that made it, or train again in an empty folder"
    )


def _difference(theirs: Description, ours: Description) -> str | None:
    """Describe the first layer or tensor that differs; None if none does."""
    if len(theirs) != len(ours):
        return f"of {len(theirs)} layers, this one has {len(ours)}"
    for (their_name, their_tensors), (name, tensors) in zip(theirs, ours, strict=True):
        if their_name != name:
            return f"its layer {their_name} is {name} here"
        for their, our in zip(their_tensors, tensors, strict=False):
            if their != our:
                shapes = list(their[1]), list(our[1])
                return f"its tensor {their[0]} of shape {shapes[0]} is {our[0]} of shape {shapes[1]} here"
        if len(their_tensors) != len(tensors):
            return f"its layer {name} has {len(their_tensors)} tensors, {len(tensors)} here"
    return None
