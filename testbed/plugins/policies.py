"""The policies by name, as the systems say them. Owns no policy."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.aggregation.system import Policies, System
from testbed.errors import RequestError, TestbedError
from testbed.plugins.registry import find, systems
from testbed.plugins.user_class import is_users
from testbed.scheduling.model import Policy


@dataclass(frozen=True, slots=True)
class Choice:
    """The two systems between which a policy chooses for a job."""

    with_inc: System
    without_inc: System


def policies() -> dict[str, Policies]:
    """Return by the name of each policy those of the system that brings it. TestbedError for a name that two
    systems have, or a choice of a system that there is not.
    """
    named: dict[str, Policies] = {}
    for system in systems().values():
        if system.policies is None:
            continue
        for chosen in (system.policies.with_inc, system.policies.without_inc):
            if chosen not in systems():
                raise TestbedError(
                    f"system {system.name!r}: its policies choose {chosen!r}; "
                    f"there are {', '.join(systems())}"
                )
        for name in system.policies.factories:
            if name in named:
                raise TestbedError(f"policy {name!r}: two systems have one, the second is {system.name}")
            named[name] = system.policies
    return named


def make(name: str, seed: int = 0) -> Policy:
    """Return a policy of its own, to be used for one run. `seed` is for the policies that draw. RequestError
    names the policies that the systems have.
    """
    return _bringing(name).factories[name](seed)


def usual() -> str:
    """Return the policy that is taken where none is named. TestbedError unless one system says one."""
    names = [
        system.policies.usual
        for system in systems().values()
        if system.policies is not None and system.policies.usual is not None
    ]
    if len(names) != 1:
        raise TestbedError(f"the usual policy: one is needed, the systems say {', '.join(names) or 'none'}")
    return names[0]


def choice(name: str) -> Choice:
    """Return the systems between which a policy chooses; a user's own chooses between those of the usual
    one.
    """
    bringing = _bringing(usual() if is_users(name) else name)
    return Choice(find(bringing.with_inc), find(bringing.without_inc))


def _bringing(name: str) -> Policies:
    known = policies()
    if name not in known:
        raise RequestError(f"policy {name!r}: there is no such policy; there are {', '.join(known)}")
    return known[name]
