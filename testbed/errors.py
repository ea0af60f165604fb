"""The typed errors. Owns the exit codes; imports nothing of the project.

Every command ends with one of: 0 done, 1 the work failed, 2 the request was wrong, 3 this host cannot, or
the testbed is another user's.
"""

from __future__ import annotations

import errno


class TestbedError(Exception):
    """The work failed. The message is one line that says what was attempted and why it failed."""

    __test__ = False  # the name starts with "Test"; pytest must not collect it
    exit_code = 1


class RequestError(TestbedError):
    """The request was wrong: a bad configuration, name or argument. Names what was wrong and what is
    accepted.
    """

    exit_code = 2


class HostError(TestbedError):
    """This host cannot: no root, a missing tool or kernel feature. Names the remedy."""

    exit_code = 3


class OwnerError(HostError):
    """The testbed is another user's: this one may not. The same exit code wherever that is found."""


class ChangedError(TestbedError):
    """Somebody has deleted a device of the network, or put another program there: what runs over it waits for
    ever.
    """


class SettingError(TestbedError):
    """A setting was made and read back different: it did not take effect."""


def from_exit_code(code: int, message: str) -> TestbedError:
    """Return the error that an exit code stands for, for an error that crossed a socket."""
    kinds = {RequestError.exit_code: RequestError, HostError.exit_code: HostError}
    return kinds.get(code, TestbedError)(message)


def disk_is_full(error: OSError) -> TestbedError | None:
    """Return the error for a disk, or its user's share of it, that has no room; None for any other error."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return TestbedError(f"write {error.filename or 'a file'}: {error.strerror}")
