"""The statistics of workers. Pure."""

from __future__ import annotations

from typing import Any, TypeAlias

Statistics: TypeAlias = dict[str, Any]
"""All statistics that a worker wrote. Its script may add to them, so they may contain any JSON."""
