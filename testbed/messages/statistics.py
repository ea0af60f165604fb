"""The statistics of workers. Pure."""

from __future__ import annotations

from typing import Any, TypeAlias

Statistics: TypeAlias = dict[str, Any]
"""All that a worker left of itself. Its script may add to it, so that any JSON may be in it."""
