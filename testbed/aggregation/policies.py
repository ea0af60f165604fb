"""The policies by name, as the systems say them. Owns no policy."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.aggregation.registry import systems
from testbed.aggregation.system import PolicyFactory
from testbed.errors import RequestError
from testbed.scheduling.model import Policy


def policies() -> Mapping[str, PolicyFactory]:
    """Return what makes each policy, by name, in the order in which the systems say them."""
    return {name: factory for system in systems().values() for name, factory in system.policies.items()}


def make(name: str, seed: int = 0) -> Policy:
    """Return a policy of its own, to be used for one run. `seed` is for the policies that draw. RequestError
    names the policies that the systems have.
    """
    known = policies()
    if name not in known:
        raise RequestError(f"policy {name!r}: there is no such policy; there are {', '.join(known)}")
    return known[name](seed)
