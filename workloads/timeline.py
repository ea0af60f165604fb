"""A worker's timeline: when its script asked for a collective, when it waited for it, and when the result was
there. It is compiled (workloads/native/timeline.hpp), since a call of torch's must not wait for the
interpreter's lock.
"""

from __future__ import annotations

from typing import Any

from workloads.native import build

Timeline: Any = build.load().Timeline
