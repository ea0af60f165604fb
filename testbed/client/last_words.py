"""The last words of a testbed that died: the reason, and its logs. They stay in its runtime folder until the
next testbed of its name comes up. Imports nothing that acts on the network.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from testbed.client.main_facts import MainFacts

FILE = "died.json"
LOG = "log"
LAST_LINES = 5
_TAIL_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class LastWords:
    """A testbed that died. `died` is the time, in seconds since 1970; None if no process was left to note
    it.
    """

    name: str
    pid: int | None
    user: str
    configuration: str
    reason: str
    died: float | None

    @classmethod
    def of_main(cls, main: MainFacts, reason: str, died: float | None = None) -> Self:
        """Make last words from the facts that the main process wrote about itself."""
        return cls(main.name, main.pid, main.user, main.configuration, reason, died)

    @classmethod
    def of_killed(cls, main: MainFacts) -> Self:
        """Make the last words of a testbed whose main process was killed and could write none."""
        return cls.of_main(main, f"its main process (pid {main.pid}) was killed")

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the last words in a runtime folder; None if there are none or they cannot be read."""
        try:
            return cls(**json.loads((folder / FILE).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, folder: Path, uid: int) -> None:
        """Write the last words, readable by that user and root only. Raises OSError."""
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
    """List the non-empty logs of a runtime folder; none if this user may not read it."""
    try:
        return sorted(path for path in (folder / LOG).iterdir() if path.is_file() and path.stat().st_size)
    except OSError:
        return []


def last_lines(log: Path, count: int = LAST_LINES) -> list[str]:
    """Read the last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []
