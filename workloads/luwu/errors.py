"""The errors of an optimizer node. Each has a message of one line. Imports nothing of the project."""

from __future__ import annotations


class LuwuError(Exception):
    """An error of an optimizer node. The message is one line that says what was attempted, with what, and
    what is accepted or can be done.
    """


class StoreError(LuwuError):
    """A folder cannot be used as requested: it is no folder, is in use, or holds something else."""


class DiskError(LuwuError):
    """A read or write of a disk failed."""


class DamageError(DiskError):
    """A read returned other bytes than were written; `what` says where."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what}; resume the store: it goes back to the newest iteration that is whole")


class NotFiniteError(LuwuError):
    """Gradients, or the result of an update by them, have NaN or an infinity."""


class RuleError(LuwuError):
    """The optimizer has a setting that the node does not support."""
