"""Makes the `inc` backend known to torch. Torch calls `register` at `import torch` through the entry point group `torch.backends`.

It must stay light: it runs in every process of the environment that imports torch, in a job or not.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Registers the backend's name; its code is imported when a process group is made."""
    import torch.distributed as dist

    if dist.is_available() and "INC" not in dist.Backend._plugins:
        dist.Backend.register_backend("inc", _create, devices=["cpu"])


def _create(store: Any, rank: int, size: int, timeout: Any) -> Any:
    from workloads.backend import create

    return create(store, rank, size, timeout)
