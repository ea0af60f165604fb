"""Whether a process still runs, by its number."""

from __future__ import annotations

from pathlib import Path

ENDED = ("Z", "X")  # states of one that nobody has waited for yet, and of one whom somebody waits for in this moment


def alive(pid: int) -> bool:
    """Whether a process of this number runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ENDED
    except (FileNotFoundError, ProcessLookupError):  # the second: gone while this looks
        return False
