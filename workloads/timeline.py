"""A worker's timeline: when its script asked for a collective, when it began to wait for it, and when the
result arrived.

It is compiled (workloads/native/timeline.hpp), because a call by torch must not wait for the interpreter's
lock.
"""

from __future__ import annotations

from typing import Any

from workloads.native import build

Timeline: Any = build.load().Timeline
