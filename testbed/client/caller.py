"""The user for whom a command or a request acts. Imports nothing that acts on the network."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypedDict

from testbed.client.rpc import Peer
from testbed.errors import OwnerError, RequestError

NOGROUP = 65534  # the group of a user without an entry in the user database
_NO_USER = 2**32 - 1  # (uid_t)-1: tells the kernel to leave the user unchanged


def user_name(uid: int) -> str:
    """Return a user's name, or its number where the user database has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


class ChildUser(TypedDict, total=False):
    """The options of `subprocess` for the user of a child."""

    user: int
    group: int
    extra_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Caller:
    """The user for whom something is done, with all groups. Under sudo: the user who called it."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    user: str
    home: str

    @classmethod
    def of_this_process(cls, environ: Mapping[str, str] = os.environ) -> Caller:
        """Return this process's user or, for root under sudo, the user in SUDO_UID. Others' SUDO_UID is
        ignored: anyone can set a variable. Raises RequestError if it is no number.
        """
        if os.geteuid() != 0 or "SUDO_UID" not in environ:
            return cls.with_groups(os.geteuid(), os.getegid(), tuple(os.getgroups()))
        number = environ["SUDO_UID"]
        if not number.isdecimal() or int(number) >= _NO_USER:
            raise RequestError(f"SUDO_UID={number!r}: the number of a user is accepted")
        return cls.of(int(number))

    @classmethod
    def of(cls, uid: int) -> Caller:
        """Return a user with the groups of the user database; without an entry there, with NOGROUP only."""
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            return cls(uid, NOGROUP, (), str(uid), "/")
        groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
        return cls(uid, entry.pw_gid, groups, entry.pw_name, entry.pw_dir)

    @classmethod
    def with_groups(cls, uid: int, gid: int, groups: tuple[int, ...]) -> Caller:
        """Return a user with these groups, which the kernel reported."""
        known = cls.of(uid)
        return cls(uid, gid, groups, known.user, known.home)

    @classmethod
    def asking(cls, peer: Peer, named: object = None) -> Caller:
        """Return the user for whom a request acts: its sender, as the kernel reports it. Only root may name
        another user (sudo); that user has the groups of the user database. Raises RequestError.
        """
        if named is not None and (
            not isinstance(named, int) or isinstance(named, bool) or not 0 <= named < _NO_USER
        ):
            raise RequestError("uid: the number of a user is accepted")
        if named is None or named == peer.uid:
            return cls.with_groups(peer.uid, peer.gid, peer.groups)
        if peer.uid != 0:
            raise RequestError(
                f"uid: {named}; user id {peer.uid} asks, and only root may act as somebody else"
            )
        return cls.of(named)

    def check_may_act(self, owner: Caller) -> None:
        """Raise OwnerError unless commands may run and files be written as this user on the owner's testbed:
        root's testbed serves every user.
        """
        if owner.uid not in (0, self.uid):
            raise OwnerError(
                f"this testbed is {owner.user}'s: it runs jobs and writes files as {owner.user} only, not as "
                f"user id {self.uid}"
            )

    def become(self) -> None:
        """Change this process to this user for good: no root identity remains to return to."""
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)

    def of_a_child(self) -> ChildUser:
        """Return the options of `subprocess` that make a child run as this user; empty if this process is not
        root.
        """
        if os.geteuid() != 0:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": self.groups}

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """Carry out file operations in the body as this user. For single-threaded use only: the change
        applies to the whole process.
        """
        if os.geteuid() != 0 or self.uid == 0:
            yield
            return
        groups = os.getgroups()
        os.setgroups(self.groups)
        os.setegid(self.gid)
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)
