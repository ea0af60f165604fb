"""Make the environment of a worker process: torch's usual variables, and the `TESTBED_JOB` that
workloads/job_env.py reads. Pure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from testbed.client.caller import Caller
from testbed.client.environment import CHECKOUT

VARIABLE = "TESTBED_JOB"
SERVICE_VARIABLE = "TESTBED_SERVICE"  # in a server process: the job's number
OWN_SIGNS = (
    *(f"\0{variable}=".encode() for variable in (VARIABLE, SERVICE_VARIABLE)),
    b"\0workloads.template\0",
)
"""The marks of a job's process: in the environment of a worker or server, or in a fork's command line."""
MASTER_PORT_BASE = 29500
PS_PORT_BASE = 30500  # at least 1000 from the above: a job's number, modulo 1000, is added to both

# Variables of root or of another launcher: a worker runs neither under sudo nor under torchrun.
_NOT_PASSED = ("SUDO_", "TESTBED_", "TORCHELASTIC_", "XDG_RUNTIME_DIR", "DBUS_", "SSH_")


def worker_environment(
    environ: Mapping[str, str],
    caller: Caller,
    *,
    rank: int | None = None,
    world_size: int = 0,
    master: str = "",
    job_id: int = 0,
    description: str = "",
    attempt: int = 0,
    restarts: int = 0,
    in_checkout: bool = True,
) -> dict[str, str]:
    """Make a worker's environment from the caller's, as in the user's own process; without a rank, make a
    parameter server's. `in_checkout`: import this project's modules from this copy, not from those that
    another environment has installed.
    """
    checkout = str(CHECKOUT) if in_checkout else None
    env = {name: value for name, value in environ.items() if not name.startswith(_NOT_PASSED)}
    env |= {
        "HOME": caller.home,
        "USER": caller.user,
        "LOGNAME": caller.user,
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": ":".join(part for part in (checkout, environ.get("PYTHONPATH")) if part),
        "OMP_NUM_THREADS": environ.get("OMP_NUM_THREADS") or "1",  # as torchrun
    }
    env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    env.setdefault("ACCELERATE_USE_CPU", "true")  # as `accelerate launch --cpu`: or each trains alone
    if rank is None:
        return env
    return env | {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        # torchrun's group is the workers of one machine: here a host with one worker
        "GROUP_RANK": str(rank),
        "GROUP_WORLD_SIZE": str(world_size),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(master_port(job_id)),
        "GLOO_SOCKET_IFNAME": "eth0",
        "TP_SOCKET_IFNAME": "eth0",
        "TORCHELASTIC_RESTART_COUNT": str(attempt),  # as torchrun tells scripts that resume
        "TORCHELASTIC_MAX_RESTARTS": str(restarts),
        "TORCHELASTIC_RUN_ID": str(job_id),
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # worker 0 serves the store
        VARIABLE: description,
    }


def master_port(job_id: int) -> int:
    """Return the port of a job's rendezvous."""
    return MASTER_PORT_BASE + job_id % 1000


def paths_from(folder: str, environ: Mapping[str, str], first: bool = False) -> dict[str, str]:
    """Make an environment with the same meaning in another working folder: PYTHONPATH's entries become
    absolute, from `folder`. With `first`, `folder` itself comes first, as for python -m.
    """
    searched = environ.get("PYTHONPATH")
    parts = [os.path.join(folder, part) for part in searched.split(":")] if searched else []
    parts = [folder, *parts] if first else parts
    return {**environ, "PYTHONPATH": ":".join(parts)} if parts else dict(environ)
