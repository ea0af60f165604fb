"""The account of a session of the queue: the rules that it decides by, and what it did. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from testbed.scheduling.model import Limits


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a session: a policy, by the name that it was asked for by and by its own, the limits as
    the policy sees it, and the seed of all draws.
    """

    asked_policy: str
    policy: str
    limits: Limits
    seed: int


@dataclass(slots=True)
class Account:
    """The counts of what a session did, for results and `status`."""

    connections: int = 0
    reconfigurations: int = 0
    policy_s: list[float] = field(default_factory=list)
    overruns: int = 0
    failures: int = 0  # of the policy, to answer with a valid decision
    last_failure: str | None = None
    late_slots: int = 0
    complaints: list[str] = field(default_factory=list)  # the last ones
    slots: list[dict[str, Any]] = field(default_factory=list)

    def fail(self, why: str) -> None:
        """Count a decision that there was not, or that was not valid."""
        self.failures, self.last_failure = self.failures + 1, why

    def complain(self, text: str) -> None:
        self.complaints = [*self.complaints[-19:], text]
