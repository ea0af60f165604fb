"""The titles and colours of a report's jobs, the same in all its parts."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.plugins.shown_jobs import shown_jobs

INK, MUTED, FAINT, PAPER = "#1F2933", "#6B7785", "#E3E7EB", "#FFFFFF"


@dataclass(frozen=True, slots=True)
class Look:
    """A job's title, its colour in pictures, and its style on a terminal."""

    title: str
    colour: str
    terminal: str


# from Okabe and Ito's palette, whose colours people with colour blindness can tell apart
_PALETTE = (
    ("#0072B2", "bold blue"),
    ("#E69F00", "yellow"),
    ("#A34F8A", "magenta"),
    ("#56B4E9", "cyan"),
    ("#009E73", "green"),
    ("#D55E00", "red"),
)
PALETTE = tuple(colour for colour, _ in _PALETTE)


def look(job: str) -> Look:
    """Return a job's style: its own colour for each job that represents a system, ink for others."""
    jobs = shown_jobs()
    if job not in jobs:
        return Look(job, INK, "")
    return Look(jobs[job].title, *_PALETTE[list(jobs).index(job) % len(_PALETTE)])
