"""Makes the `inc` backend known to torch. Torch calls `register` at `import torch` through the entry point
group `torch.backends`.

It must stay light: it runs in every process of the environment that imports torch, in a job or not. A worker
of a scheduled job waits here until the job is started: before anything of it uses the network, and after most
of what a process needs to start.
"""

from __future__ import annotations

import os
from typing import Any


def register() -> None:
    """Registers the backend's name; its code is imported when a process group is made."""
    import torch.distributed as dist

    if dist.is_available() and "INC" not in dist.Backend._plugins:
        dist.Backend.register_backend("inc", _create, devices=["cpu"])
    if '"gate"' in os.environ.get("TESTBED_JOB", ""):
        # DDP's constructor loads it, which would take as long after the gate as torch before it
        import torch._dynamo  # noqa: F401

        # and these need not be loaded after it
        from workloads import backend, endpoint, job_env, ps_client  # noqa: F401

        job_env.wait_at_gate()


def _create(store: Any, rank: int, size: int, timeout: Any) -> Any:
    from workloads.backend import create

    return create(store, rank, size, timeout)
