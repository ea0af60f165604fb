"""The typed errors. Owns the exit codes; imports nothing of the project.

Every command ends with one of: 0 done, 1 the work failed, 2 the request was wrong, 3 this host cannot do it,
or the testbed is another user's.
"""

from __future__ import annotations

import errno


class TestbedError(Exception):
    """The work failed. The message is one line with the attempt and the reason."""

    __test__ = False  # the name starts with "Test"; pytest must not collect it
    exit_code = 1


class RequestError(TestbedError):
    """The request was wrong: a bad configuration, name or argument. The message has the fault and the
    accepted values.
    """

    exit_code = 2


class HostError(TestbedError):
    """This host cannot do it: no root, a missing tool or kernel feature. The message has the remedy."""

    exit_code = 3


class OwnerError(HostError):
    """The testbed is another user's, and this user may not use it. The exit code is that of HostError
    wherever it is raised.
    """


class ChangedError(TestbedError):
    """A device of the network was deleted, or another program attached to it: a job over it would wait
    forever.
    """


class SettingError(TestbedError):
    """A setting was read back with another value: it did not take effect."""


def from_exit_code(code: int, message: str) -> TestbedError:
    """Make the error for an exit code, for an error that crossed a socket."""
    kinds = {RequestError.exit_code: RequestError, HostError.exit_code: HostError}
    return kinds.get(code, TestbedError)(message)


def disk_is_full(error: OSError) -> TestbedError | None:
    """Make the error for a full disk, or a user's full quota of it; None for any other error."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return TestbedError(f"write {error.filename or 'a file'}: {error.strerror}")
