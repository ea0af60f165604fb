"""The errors of an optimizer node, one line each. Imports nothing of the project."""

from __future__ import annotations


class LuwuError(Exception):
    """The message is one line that says what was attempted, with what, and what is accepted or to be done."""


class StoreError(LuwuError):
    """A folder cannot be what is asked of it: it is no folder, in use, or holds something else."""


class DiskError(LuwuError):
    """A read or write of a disk failed."""


class DamageError(DiskError):
    """A read returned other bytes than were written: `what` says where."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what}; resume the store: it goes back to the newest iteration that is whole")


class NotFiniteError(LuwuError):
    """Gradients, or what an update by them would make, have NaN or an infinity."""


class RuleError(LuwuError):
    """The optimizer has a setting that is not kept on disks."""
