"""A small testbed that belongs to an ordinary user, who is in no user database, and options to run as
that user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.privileged.commands import ROOT, Testbed, environment, open_folder, running

OWNER, GROUP, OTHER_GROUP = 54321, 54322, 54323
UNITS = "units: [{hosts: 2}, {hosts: 1}]\n"


@contextmanager
def owned() -> Iterator[Testbed]:
    """Bring up two racks: u1h1 and u1h2 in one, u2h1 in the other."""
    with open_folder() as folder:
        config = folder / "two.yaml"
        config.write_text(UNITS)
        config.chmod(0o644)
        with running(str(config), {"SUDO_UID": str(OWNER), "SUDO_GID": str(GROUP)}) as made:
            yield made


def rights(uid: int = OWNER, gid: int = GROUP, groups: Sequence[int] = (OTHER_GROUP,)) -> dict[str, Any]:
    """Return the options of a process of the project that runs as this user."""
    return {"user": uid, "group": gid, "extra_groups": list(groups), "cwd": ROOT, "env": environment({})}
