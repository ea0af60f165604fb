"""Links, controlled by hand: their rates, whether they are up, and their faults."""

from __future__ import annotations

from typing import Any, TypedDict

from testbed.client import rpc
from testbed.client.runtime import Runtime
from testbed.errors import RequestError
from testbed.keys import Percentage

ANSWER_TIMEOUT_S = 60.0
RATES = ("loss", "duplicate", "reorder", "corrupt")


class LinkState(TypedDict):
    """A link's state in the kernel, beside its configured rate and the rate that was set by hand."""

    link: str
    rate_mbps: float
    configured_mbps: float
    by_hand_mbps: float | None
    up: bool
    delay_ms: float
    jitter_ms: float


class FaultState(TypedDict):
    """The fault of one direction of a link, with rates as shares of its frames (0 to 1), and its counters
    since it was set.
    """

    link: str
    direction: str
    loss: float
    duplicate: float
    reorder: float
    corrupt: float
    distance: int
    seed: int
    counters: dict[str, int]


class LinkControl:
    """The links of a running testbed. A link is named as in `status`; a unit's name, and the word `all`,
    stand for several. Each call raises TestbedError if it cannot be carried out.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def now(self) -> list[LinkState]:
        """Return the states of all links that have a rate."""
        return self._ask("list")

    def set(
        self,
        *links: str,
        rate_mbps: float | None = None,
        up: bool | None = None,
        delay: str | None = None,
        jitter: str | None = None,
    ) -> list[LinkState]:
        """Set links up or down, the rate of both directions of each, and each direction's delay and jitter,
        such as "5ms", where the kernel can. Return the links' states.
        """
        return self._ask("set", links=list(links), rate_mbps=rate_mbps, up=up, delay=delay, jitter=jitter)

    def reset(self, *links: str) -> list[LinkState]:
        """Restore links: the configuration's rates, and up. Return their states."""
        return self._ask("reset", links=list(links))

    def _ask(self, action: str, **arguments: Any) -> list[LinkState]:
        self._runtime.require_alive()
        asked = {"action": action, **arguments}
        return list(rpc.call(self._runtime.socket, "link", timeout_s=ANSWER_TIMEOUT_S, **asked))


class FaultControl:
    """The faults on the links of a running testbed. Each call returns the faults that are set after it, and
    raises TestbedError if it cannot be carried out.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def now(self) -> list[FaultState]:
        """Return the faults that are set, with their counters since then."""
        return self._ask("list")

    def set(
        self,
        *links: str,
        direction: str = "both",
        loss: str | None = None,
        duplicate: str | None = None,
        reorder: str | None = None,
        corrupt: str | None = None,
        distance: int | None = None,
        seed: int | None = None,
        prefix: str = "",
    ) -> list[FaultState]:
        """Set the fault of links, which replaces the one that they have. Rates are percentages with their
        sign, such as "0.1%".
        """
        rates = {"loss": loss, "duplicate": duplicate, "reorder": reorder, "corrupt": corrupt}
        fault: dict[str, float] = {
            name: share(f"{prefix}{name}", rate) for name, rate in rates.items() if rate
        }
        others = {"distance": distance, "seed": seed}
        fault |= {name: value for name, value in others.items() if value is not None}
        return self._ask("set", links=list(links), direction=direction, fault=fault)

    def clear(self, *links: str) -> list[FaultState]:
        """Clear the faults of links; of all links if none is named."""
        return self._ask("clear", **({} if links in ((), ("all",)) else {"links": list(links)}))

    def _ask(self, action: str, **arguments: Any) -> list[FaultState]:
        self._runtime.require_alive()
        asked = {"action": action, **arguments}
        return list(rpc.call(self._runtime.socket, "fault", timeout_s=ANSWER_TIMEOUT_S, **asked))


def share(name: str, text: str) -> float:
    """Return the share, 0 to 1, for a percentage like "0.1%". Raises RequestError for anything else."""
    if (value := Percentage.read(text)) is None:
        raise RequestError(f"{name} {text}: {Percentage.ACCEPTED}")
    return value
