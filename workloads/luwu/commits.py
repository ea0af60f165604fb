"""Commits: records that every disk has of which iteration is whole in which copy.

Owns the records' names, and what stands in them. Of the project it imports records, errors and the layout.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workloads.luwu import record
from workloads.luwu.errors import StoreError
from workloads.luwu.layout import Model

FORMAT: Final = 2
COPIES: Final = 3
"""Iteration n is in copy n mod 3: while n + 1 is written, n and n - 1 are whole."""


@dataclass(frozen=True, slots=True)
class Commit:
    """An iteration that was whole, the settings of then, and a checksum for what each disk has of each layer.
    `store` has the facts of `facts_of`, equal on all disks.
    """

    iteration: int
    store: dict[str, Any]
    sums: tuple[int, ...]
    settings: bytes

    def write(self, folder: Path, disk: int) -> None:
        """Raises OSError; see `record.write`."""
        facts = {**self.store, "disk": disk, "iteration": self.iteration, "sums": len(self.sums)}
        record.write(
            folder,
            _name(self.iteration),
            facts,
            struct.pack(f"<{len(self.sums)}I", *self.sums) + self.settings,
        )


@dataclass(frozen=True, slots=True)
class Records:
    """The commits of a store's disks, in the order of the disks, and a line for each that is damaged."""

    by_disk: tuple[dict[int, Commit], ...]  # by iteration
    problems: tuple[str, ...]

    def newest_first(self) -> list[Commit]:
        """Return each commit once."""
        all_of = [commit for own in self.by_disk for commit in own.values()]
        each = [commit for place, commit in enumerate(all_of) if commit not in all_of[:place]]
        return sorted(each, key=lambda commit: -commit.iteration)


def facts_of(model: Model, rule: str, identity: str, disks: int) -> dict[str, Any]:
    """Return what all commits of a store say of it."""
    return {
        "format": FORMAT,
        "store": identity,
        "disks": disks,
        "rule": rule,
        "dtype": model.dtype,
        "layers": model.description(),
    }


def exist(folder: Path) -> bool:
    """Return whether the folder has any, whole or damaged, also of a former format."""
    return any((folder / name).exists() for name in (*_names(), "model"))


def read(folders: Sequence[Path], model: Model, rule: str) -> Records:
    """Return the commits of these folders. Raises StoreError where one is of another store, model or rule, or
    is not the disk as which it is named.
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
            facts, blob = content
            _check(folder, facts, model, rule)
            if (facts["disk"], facts["disks"]) != (number, len(folders)):
                raise StoreError(
                    f"{folder}: is disk {facts['disk']} of {facts['disks']}, "
                    f"and is named as disk {number} of {len(folders)}"
                )
            if identity is None:
                identity, named = facts["store"], folder
            if facts["store"] != identity:
                raise StoreError(f"{folder}: is of another store than {named}")
            commit = _unpacked(facts, blob)
            own[commit.iteration] = commit
        by_disk.append(own)
        if not own and (folder / "model").exists():
            _refuse_format(folder, 1)
    return Records(tuple(by_disk), tuple(problems))


def forget(folder: Path) -> None:
    """Remove all commits, as far as they can be."""
    for name in _names():
        with contextlib.suppress(OSError):
            (folder / name).unlink()


def _names() -> list[str]:
    return [_name(copy) for copy in range(COPIES)]


def _name(iteration: int) -> str:
    return f"commit.{iteration % COPIES}"


def _unpacked(facts: dict[str, Any], blob: bytes) -> Commit:
    facts = dict(facts)
    iteration, count = int(facts.pop("iteration")), int(facts.pop("sums"))
    del facts["disk"]
    return Commit(iteration, facts, struct.unpack(f"<{count}I", blob[: 4 * count]), blob[4 * count :])


def _check(folder: Path, facts: dict[str, Any], model: Model, rule: str) -> None:
    if facts.get("format") != FORMAT:
        _refuse_format(folder, facts.get("format"))
    if facts["dtype"] != model.dtype:
        raise StoreError(f"{folder}: holds parameters in {facts['dtype']}, the model's are {model.dtype}")
    if facts["rule"] != rule:
        raise StoreError(f"{folder}: holds the states of {facts['rule']}, the optimizer is {rule}")
    if (difference := _difference(facts["layers"], model.description())) is not None:
        raise StoreError(f"{folder}: holds another model: {difference}")


def _refuse_format(folder: Path, number: object) -> None:
    raise StoreError(
        f"{folder}: is of format {number}, accepted is {FORMAT}: "
        "go on with the version that made it, or train again in an empty folder"
    )


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
