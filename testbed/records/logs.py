"""The logs of a run, copied into its record: of a long one what came first and last."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MOST_BYTES = 8 << 20
"""The most bytes that a record has of a log, beside LAST_BYTES of its end."""
LAST_BYTES = 64 << 10
_EARLIER_S = 1.0  # by which a file's clock may be behind


def of_queue(result: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """Return the jobs of a submission's result that have logs, each with their folder."""
    folders = []
    for job in result.get("jobs", []):
        for worker in (job["run"] or {}).get("workers", [])[:1]:
            folders.append((str(job["name"]), Path(worker["log"]).parent))
    return folders


def copy(folder: Path, target: Path, since: float) -> None:
    """Copy the logs in a folder that were written since that moment. Raises OSError."""
    for log in sorted(folder.glob("*.log")):
        if log.is_file() and log.stat().st_mtime >= since - _EARLIER_S:
            target.mkdir(parents=True, exist_ok=True)
            _copy(log, target / log.name)


def _copy(log: Path, target: Path) -> None:
    with log.open("rb") as source, target.open("wb") as kept:
        size = os.fstat(source.fileno()).st_size
        if size <= MOST_BYTES + LAST_BYTES:
            shutil.copyfileobj(source, kept)
            return
        kept.write(source.read(MOST_BYTES))
        kept.write(f"\n... {size - MOST_BYTES - LAST_BYTES} bytes are left out here ...\n".encode())
        source.seek(-LAST_BYTES, os.SEEK_END)
        shutil.copyfileobj(source, kept)
