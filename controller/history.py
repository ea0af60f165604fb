"""The files of all reconfigurations and of links that went down, which outlive the controller process."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from controller.records import ChangeRecord

LOG = logging.getLogger("controller")


class History:
    """Reads the records of earlier controllers, and appends new ones."""

    def __init__(self, path: Path) -> None:
        self._path, self._unwritten = path, bytearray()

    def read(self) -> list[ChangeRecord]:
        """Return all records, oldest first. An unfinished last line is terminated, so that the next record
        gets a line of its own.
        """
        if not self._path.exists():
            return []
        records = []
        text = self._path.read_text()
        for line in text.splitlines():
            try:
                records.append(ChangeRecord.read(json.loads(line)))
            except (ValueError, TypeError):  # written by a process that was killed meanwhile
                LOG.warning("%s: a line that is no JSON of a change is left out", self._path.name)
        if text and not text.endswith("\n"):
            with self._path.open("a") as file:
                file.write("\n")
        return records

    def append(self, record: ChangeRecord) -> None:
        """Write a record. On a full disk, the rest is written with the next record."""
        self._unwritten += json.dumps(record.as_data()).encode() + b"\n"
        try:
            with self._path.open("ab", buffering=0) as file:
                while self._unwritten:
                    del self._unwritten[: file.write(self._unwritten)]
        except OSError as error:
            LOG.warning("event %d is not in %s yet: %s", record.id, self._path.name, error.strerror)


LinkChange = tuple[int, frozenset[str]]
"""When links changed, by the monotonic clock, and those that are down from then on."""


class LinkLog:
    """Reads the changes of links that earlier controllers saw, and appends new ones, one a line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, now_ns: int) -> list[LinkChange]:
        """Return all changes before now, oldest first. What happened between two controllers is not known:
        links count as down until now, where the new one begins with none.
        """
        changes: list[LinkChange] = []
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for line in lines:
            at_ns, _, names = line.partition(" ")
            if at_ns.isdigit() and int(at_ns) <= now_ns:
                changes.append((int(at_ns), frozenset(names.split())))
        if changes and changes[-1][1]:
            changes.append((now_ns, frozenset()))
        return changes

    def append(self, change: LinkChange) -> None:
        """Write a change; on a full disk it is known to this controller alone."""
        at_ns, down = change
        try:
            with self._path.open("a") as file:
                file.write(f"{at_ns} {' '.join(sorted(down))}\n")
        except OSError as error:
            LOG.warning("a change of links is not in %s: %s", self._path.name, error.strerror)
