"""A small testbed of an ordinary user's, of no database, and how to be that user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.privileged.commands import ROOT, Testbed, environment, open_folder, running

OWNER, GROUP, OTHER_GROUP = 54321, 54322, 54323
UNITS = "units: [{hosts: 2}, {hosts: 1}]\n"


@contextmanager
def owned() -> Iterator[Testbed]:
    """Two racks, u1h1 and u1h2 in one, u2h1 in the other."""
    with open_folder() as folder:
        config = folder / "two.yaml"
        config.write_text(UNITS)
        config.chmod(0o644)
        with running(str(config), {"SUDO_UID": str(OWNER), "SUDO_GID": str(GROUP)}) as made:
            yield made


def rights(uid: int = OWNER, gid: int = GROUP, groups: Sequence[int] = (OTHER_GROUP,)) -> dict[str, Any]:
    """Options of a process of the project's that is this user's."""
    return {"user": uid, "group": gid, "extra_groups": list(groups), "cwd": ROOT, "env": environment({})}
