"""The file of all reconfigurations, a line each, which outlives the controller that writes it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from controller.records import ChangeRecord

LOG = logging.getLogger("controller")


class History:
    """Reads what controllers before this one wrote, and appends."""

    def __init__(self, path: Path) -> None:
        self._path, self._unwritten = path, bytearray()

    def read(self) -> list[ChangeRecord]:
        """Return all records, the oldest first. A line that was not finished is ended, so that the next is
        one of its own.
        """
        if not self._path.exists():
            return []
        records = []
        text = self._path.read_text()
        for line in text.splitlines():
            try:
                records.append(ChangeRecord.read(json.loads(line)))
            except (ValueError, TypeError):  # a process that was killed while it wrote
                LOG.warning("%s: a line that is no JSON of a change is left out", self._path.name)
        if text and not text.endswith("\n"):
            with self._path.open("a") as file:
                file.write("\n")
        return records

    def append(self, record: ChangeRecord) -> None:
        """Write a record. What does not get into the file, for the disk is full, is written with the next."""
        self._unwritten += json.dumps(record.as_data()).encode() + b"\n"
        try:
            with self._path.open("ab", buffering=0) as file:
                while self._unwritten:
                    del self._unwritten[: file.write(self._unwritten)]
        except OSError as error:
            LOG.warning("event %d is not in %s yet: %s", record.id, self._path.name, error.strerror)
