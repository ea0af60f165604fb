"""Bugs in permissions, in records, and in the model of the equations."""

from __future__ import annotations

from tests.mutants.mutation import Kind, Mutation


def _in(file: str, *bugs: tuple[str, str, str]) -> tuple[Mutation, ...]:
    return tuple(Mutation(Kind.PYTHON, file, name, old, new) for name, old, new in bugs)


PYTHON = (
    *_in(
        "testbed/client/caller.py",
        ("root's group acts as anybody", "if peer.uid != 0:", "if peer.uid != 0 and peer.gid != 0:"),
        (
            "root's group runs jobs on everybody's testbed",
            "if owner.uid not in (0, self.uid):",
            "if owner.uid not in (0, self.uid) and self.gid != 0:",
        ),
    ),
    *_in(
        "testbed/client/rpc/server.py",
        (
            "root's group may ask",
            "if peer.uid not in self._users:",
            "if peer.uid not in self._users and peer.gid != 0:",
        ),
    ),
    *_in(
        "testbed/queue/scheduler.py",
        (
            "root's group cancels jobs of others",
            "if asker.uid in (0, batch.caller.uid)",
            "if asker.uid in (0, batch.caller.uid) or asker.gid == 0",
        ),
    ),
    *_in(
        "testbed/jobs/manager.py",
        (
            "root's group ends jobs of others",
            "if asker.uid in (0, job.request.caller.uid)",
            "if asker.uid in (0, job.request.caller.uid) or asker.gid == 0",
        ),
    ),
    *_in(
        "testbed/client/atomic_write.py",
        (
            "a record is written in place",
            """draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")""",
            "draft = path",
        ),
        ("a record has its name before it is on the disk", "                os.fsync(file.fileno())\n", ""),
        ("a record's name is not on the disk", "    if on_disk:\n        _sync_folder(path.parent)\n", ""),
    ),
    *_in(
        "testbed/systems/p4inc/milp/literal.py",
        (
            "what comes to the server's unit passes no switch",
            "                    switched[job.ps] = switched[job.ps] + flow\n",
            "",
        ),
        (
            "what the server's own unit sends it passes no switch",
            "                    switched[unit] = switched[unit] + without * count\n",
            "                    switched[unit] = switched[unit] + ZERO\n",
        ),
    ),
)
