"""The question that the daemon puts to the process of a user's system, and its answer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LayoutQuestion:
    """A job's workers, as pairs of unit and host, and its site as `site_to_json` encodes it."""

    workers: Any
    site: Any


@dataclass(frozen=True, slots=True)
class LayoutAnswer:
    """A layout, as `layout_to_json` encodes it, or in one line why there is none: it was refused, or the
    user's code raised an error.
    """

    layout: Any = None
    refused: str | None = None
    raised: str | None = None
