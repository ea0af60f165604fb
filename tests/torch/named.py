"""Run PyTorch's tests of gloo with another backend: where they make a process group of gloo, its backend is
`inc`'s, under gloo's name. So no test is skipped, and none behaves differently, for a name that torch does
not know.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

# the time limit of groups that set none
LIMIT = timedelta(seconds=1800)


class Groups:
    """The backends that were made in place of gloo's and are still open."""

    def __init__(self) -> None:
        # some tests call it on the group
        self._create_device = staticmethod(dist.ProcessGroupGloo.create_device)
        self._made: list[Any] = []

    def make(self, store: Any, rank: int, size: int, options: Any = None, timeout: Any = None) -> Any:
        """Make a backend of `inc`, with the arguments of ProcessGroupGloo's constructors."""
        from workloads.backend import create

        if isinstance(options, timedelta):
            timeout = options
        elif options is not None:
            timeout = options._timeout
        backend = create(store, rank, size, timeout or LIMIT)
        type(backend).create_device = self._create_device
        self._made.append(backend)
        return backend

    def end(self) -> None:
        """End the remaining backends: torch ends only those that it has registered."""
        while self._made:
            self._made.pop().shutdown()


def take_gloos_place(groups: Groups) -> None:
    """Make `groups` create every ProcessGroupGloo of this process. Call it before the tests' module is
    imported.
    """
    gloo = dist.ProcessGroupGloo

    class Called(type):
        """Accepts gloo's own instances and their replacements as instances."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, gloo) or type(instance).__name__ == "IncBackend"

    class ProcessGroupGloo(metaclass=Called):
        """Gloo's class, except that it makes replacements."""

        Options = _Options = gloo._Options
        create_device = staticmethod(gloo.create_device)
        create_default_device = staticmethod(gloo.create_default_device)

        def __new__(cls, *arguments: Any, **words: Any) -> Any:
            return groups.make(*arguments, **words)

    # without this DDP's logger crashes: it takes a group named gloo for gloo's class, and reads its threads
    dist.Logger.set_construction_data_and_log = lambda *_: None
    dist.ProcessGroupGloo = dist.distributed_c10d.ProcessGroupGloo = ProcessGroupGloo  # type: ignore[misc]


def meet_by_hosts_links() -> None:
    """Make the tests' own gloo devices use the host's link instead of the loopback, which each host has for
    itself; and give groups without a backend gloo's name, as outside of jobs.
    """
    from torch.testing._internal import common_distributed

    link = os.environ.get("GLOO_SOCKET_IFNAME")
    gloo = dist.ProcessGroupGloo

    def create_device(interface: Any = None, lazy_init: bool = False) -> Any:
        return gloo.create_device(interface=link, lazy_init=lazy_init)

    if link:
        common_distributed.create_device = create_device
    dist.Backend.default_device_backend_map["cpu"] = "gloo"
