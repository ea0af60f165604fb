"""All options of a job as one class, which type checkers read. testbed/jobs loads it by name: a program's
options are declared in its system's folder, above the core. A program with options adds its class here.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.jobs.options import CommonOptions
from testbed.systems.trio.options import BlockOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions(BlockOptions, CommonOptions):
    """The options of a job, each with its default."""
