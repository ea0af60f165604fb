"""The errors of an optimizer node, one line each. Imports nothing of the project."""

from __future__ import annotations


class LuwuError(Exception):
    """The message is one line that says what was attempted, with what, and what is accepted or to be done."""


class StoreError(LuwuError):
    """A folder cannot be what is asked of it: it is no folder, in use, or holds something else."""


class DiskError(LuwuError):
    """A read or write of a disk failed."""


class RuleError(LuwuError):
    """The optimizer has a setting that is not kept on disks."""
