"""An emulated testbed for in-network aggregation over an optical circuit switch.

`from testbed import Testbed` is the library (docs/library.md). Importing this package starts nothing, and
loads each of these names only on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.api.handle import Testbed
    from testbed.api.result import JobError, JobResult
    from testbed.errors import TestbedError
    from testbed.systems.job_options import JobOptions

__all__ = ["JobError", "JobOptions", "JobResult", "Testbed", "TestbedError"]


def __getattr__(name: str) -> Any:
    if name == "Testbed":
        from testbed.api.handle import Testbed

        return Testbed
    if name in ("JobError", "JobResult"):
        from testbed.api import result

        return getattr(result, name)
    if name == "JobOptions":
        from testbed.systems.job_options import JobOptions

        return JobOptions
    if name == "TestbedError":
        from testbed.errors import TestbedError

        return TestbedError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
