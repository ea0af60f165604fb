"""Has PyTorch's tests of gloo run by another backend: where they make a process group of gloo, its backend
is `inc`'s, by gloo's name. So nothing is left out or done otherwise for a name that torch does not know.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

# of the groups that name none
LIMIT = timedelta(seconds=1800)


class Groups:
    """The backends that were made in gloo's place and have not been ended."""

    def __init__(self) -> None:
        self._create_device = staticmethod(dist.ProcessGroupGloo.create_device)  # some ask the group for it
        self._made: list[Any] = []

    def make(self, store: Any, rank: int, size: int, options: Any = None, timeout: Any = None) -> Any:
        """Make a backend of `inc`, by the arguments of ProcessGroupGloo's constructors."""
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
        """End those that are left: torch ends the ones that it has registered alone."""
        while self._made:
            self._made.pop().shutdown()


def take_gloos_place(groups: Groups) -> None:
    """Have every ProcessGroupGloo of this process be made by `groups`. To be called before the tests' module
    is imported.
    """
    gloo = dist.ProcessGroupGloo

    class Called(type):
        """Takes for gloo's what is gloo's, and what is in its place."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, gloo) or type(instance).__name__ == "IncBackend"

    class ProcessGroupGloo(metaclass=Called):
        """Gloo's class, but for what is made."""

        Options = _Options = gloo._Options
        create_device = staticmethod(gloo.create_device)
        create_default_device = staticmethod(gloo.create_default_device)

        def __new__(cls, *arguments: Any, **words: Any) -> Any:
            return groups.make(*arguments, **words)

    # DDP's logger takes a group of gloo's name for gloo's class, and reads its number of threads: it crashes
    dist.Logger.set_construction_data_and_log = lambda *_: None
    dist.ProcessGroupGloo = dist.distributed_c10d.ProcessGroupGloo = ProcessGroupGloo  # type: ignore[misc]


def meet_by_hosts_links() -> None:
    """Have the tests' own devices of gloo be the host's link in place of the loopback, which each host has
    for itself; and have a group that names no backend be of gloo's name, as anywhere outside a job.
    """
    from torch.testing._internal import common_distributed

    link = os.environ.get("GLOO_SOCKET_IFNAME")
    gloo = dist.ProcessGroupGloo

    def create_device(interface: Any = None, lazy_init: bool = False) -> Any:
        return gloo.create_device(interface=link, lazy_init=lazy_init)

    if link:
        common_distributed.create_device = create_device
    dist.Backend.default_device_backend_map["cpu"] = "gloo"
