"""The file of all reconfigurations, one per line, which outlives the controller process."""

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
