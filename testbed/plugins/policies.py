"""List policies by name, as the systems declare them. Owns no policy."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.aggregation.system import Policies, System
from testbed.errors import RequestError, TestbedError
from testbed.plugins.registry import find, systems
from testbed.plugins.user_class import is_users
from testbed.scheduling.model import Policy


@dataclass(frozen=True, slots=True)
class Choice:
    """The two systems between which a policy chooses for each job: with and without in-network computing
    (INC).
    """

    with_inc: System
    without_inc: System


def policies() -> dict[str, Policies]:
    """Return, by policy name, the policies object of the system that brings it. TestbedError if two systems
    bring the same name, or if a policy chooses a system that does not exist.
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
    """Make a new policy object, for one run. `seed` seeds the policies that draw random numbers. RequestError
    lists the policies that the systems have.
    """
    return _bringing(name).factories[name](seed)


def usual() -> str:
    """Return the name of the default policy. TestbedError unless exactly one system declares it."""
    names = [
        system.policies.usual
        for system in systems().values()
        if system.policies is not None and system.policies.usual is not None
    ]
    if len(names) != 1:
        raise TestbedError(f"the usual policy: one is needed, the systems say {', '.join(names) or 'none'}")
    return names[0]


def choice(name: str) -> Choice:
    """Return the two systems between which a policy chooses. A user's own policy chooses between those of the
    default policy.
    """
    bringing = _bringing(usual() if is_users(name) else name)
    return Choice(find(bringing.with_inc), find(bringing.without_inc))


def _bringing(name: str) -> Policies:
    known = policies()
    if name not in known:
        raise RequestError(f"policy {name!r}: there is no such policy; there are {', '.join(known)}")
    return known[name]
