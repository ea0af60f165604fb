"""The last words of a testbed that died: why it did, and its logs, which stay in its runtime folder until the
next one of its name comes up. Imports nothing that acts on the network.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

FILE = "died.json"
LOG = "log"
LAST_LINES = 5
_TAIL_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class LastWords:
    """A testbed that died. `died` is when, in seconds since 1970; None where nobody was there to say so."""

    name: str
    pid: int | None
    user: str
    configuration: str
    reason: str
    died: float | None

    @classmethod
    def of_main(cls, main: Mapping[str, Any], reason: str, died: float | None = None) -> Self:
        """Return those of a testbed by what its main process wrote about itself."""
        return cls(
            name=str(main.get("name", "")),
            pid=main.get("pid"),
            user=str(main.get("user", "")),
            configuration=str(main.get("configuration", "")),
            reason=reason,
            died=died,
        )

    @classmethod
    def of_killed(cls, main: Mapping[str, Any]) -> Self:
        """Return those of a testbed whose main process could say nothing."""
        return cls.of_main(main, f"its main process (pid {main.get('pid')}) was killed")

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return what was left in a runtime folder; None where nothing was, or it does not read."""
        try:
            return cls(**json.loads((folder / FILE).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, folder: Path, uid: int) -> None:
        """Leave them for that user to read, and for root. Raises OSError."""
        fd = os.open(
            folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(fd, "w") as file:
            file.write(json.dumps(asdict(self)) + "\n")
            os.fchown(fd, uid, -1)

    def __str__(self) -> str:
        when = "" if self.died is None else time.strftime(" at %Y-%m-%d %H:%M:%S", time.localtime(self.died))
        return f"it died{when}: {self.reason}"


def logs(folder: Path) -> list[Path]:
    """Return the logs of a runtime folder; none where this user may not look."""
    try:
        return sorted(path for path in (folder / LOG).iterdir() if path.is_file() and path.stat().st_size)
    except OSError:
        return []


def last_lines(log: Path, count: int = LAST_LINES) -> list[str]:
    """Return the last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
