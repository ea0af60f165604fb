"""Register the `inc` backend with torch. Torch calls `register` at `import torch`, through the entry point
group `torch.backends`.

This module must load fast: it runs in every process of the environment that imports torch, in a job or not. A
worker of a scheduled job waits here until the job is started: before any of its code uses the network, and
after most of what a process must load to start.
"""

from __future__ import annotations

import functools
import os
from typing import Any


def register() -> None:
    """Register the backend's name; its code is imported when a process group is made."""
    import torch.distributed as dist

    if dist.is_available() and "INC" not in dist.Backend._plugins:
        dist.Backend.register_backend("inc", _create, devices=["cpu"])
        begin_worker()


def begin_worker() -> None:
    """Prepare a worker process before its script runs; do nothing in any other process.

    Sets `inc` as the default backend, waits at the job's gate, starts the watch over the script, and installs
    delay points, communication hooks and the process group where the job's options ask for them.
    """
    if "TESTBED_JOB" not in os.environ:
        return
    import torch.distributed as dist

    from workloads import job_env, meeting, waiting

    settings = job_env.of_worker()
    if settings is None:
        return
    meeting.see(dist.distributed_c10d)
    defaults = dist.Backend.default_device_backend_map  # the backend of a group that names none
    original, defaults["cpu"] = defaults["cpu"], "inc"
    os.register_at_fork(after_in_child=lambda: defaults.update(cpu=original))  # a fork is no worker
    _name_default_backend(dist.distributed_c10d)
    _support_timeouts(dist.distributed_c10d)
    if settings.gate is not None:
        # DDP's constructor imports it; after the gate that would take as long as importing torch does before
        import torch._dynamo  # noqa: F401

        # load these before the gate, too
        from workloads import backend, endpoint, ps_client  # noqa: F401

        job_env.wait_at_gate()
    waiting.begin()
    options = settings.options
    if options.stragglers:
        from workloads import stragglers

        stragglers.install(options.stragglers, settings.rank, len(settings.hosts))
    if options.error_feedback or options.fine_sums:
        from workloads import feedback

        feedback.install(options.fine_sums)
    if options.init_group:
        dist.init_process_group("inc")


def _name_default_backend(c10d: Any) -> None:
    """Let a group that names no backend, and so uses `inc`, report the name `inc`. `c10d` is the module
    torch.distributed.distributed_c10d.

    Torch reports gloo as the default backend of such a group, whatever it uses, and DDP asks for that
    default. A group that names backends by device ("cpu:inc") gets a default, too: torch sets none where
    there are backends besides its own, and warns of that when the group is destroyed.
    """
    original = c10d._new_process_group_helper

    @functools.wraps(original)
    def make(size: int, rank: int, ranks: Any, backend: Any, *more: Any, **settings: Any) -> Any:
        made_of = set(c10d.BackendConfig(backend).get_device_backend_map().values())
        if str(backend) == c10d.Backend.UNDEFINED:
            backend = c10d.Backend("inc") if made_of == {"inc"} else backend
        group, store = original(size, rank, ranks, backend, *more, **settings)
        if ":" in str(backend) and isinstance(group, c10d.ProcessGroup):
            types = c10d.Backend.backend_type_map
            group._set_default_backend(types["inc" if "inc" in made_of else min(made_of)])
        return group, store

    c10d._new_process_group_helper = make


def _support_timeouts(c10d: Any) -> None:
    """Let `_set_pg_timeout` of the module torch.distributed.distributed_c10d set the timeout of `inc`, too:
    torch's own function knows the classes of gloo and NCCL, and warns of all others.
    """
    original = c10d._set_pg_timeout

    @functools.wraps(original)
    def set_timeout(timeout: Any, group: Any = None) -> None:
        import torch

        cpu, of = torch.device("cpu"), group or c10d._get_default_group()
        if isinstance(of, c10d.ProcessGroup) and cpu in of._device_types:
            backend = of._get_backend(cpu)
            if backend.name() == "inc":
                backend._set_default_timeout(timeout)
                return
        original(timeout, group)

    c10d._set_pg_timeout = set_timeout


def _create(store: Any, rank: int, size: int, timeout: Any) -> Any:
    from workloads.backend import create

    return create(store, rank, size, timeout)
