"""Links by hand: their rates, whether they are up, and the faults on them."""

from __future__ import annotations

from typing import Any, TypedDict

from testbed.client import rpc
from testbed.client.runtime import Runtime
from testbed.errors import RequestError

ANSWER_TIMEOUT_S = 60.0
RATES = ("loss", "duplicate", "reorder", "corrupt")


class LinkState(TypedDict):
    """A link as the kernel has it, beside what the configuration says and what was set by hand."""

    link: str
    rate_mbps: float
    configured_mbps: float
    by_hand_mbps: float | None
    up: bool
    delay_ms: float
    jitter_ms: float


class FaultState(TypedDict):
    """The fault of a link's direction, rates as shares of its frames, and what it did since it was set."""

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
    """The links of a running testbed. A link is named as `status` does; a unit's name, and the word all,
    stand for several. Each call raises TestbedError where it cannot be done.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def now(self) -> list[LinkState]:
        """Return the links that have a rate."""
        return self._ask("list")

    def set(
        self,
        *links: str,
        rate_mbps: float | None = None,
        up: bool | None = None,
        delay: str | None = None,
        jitter: str | None = None,
    ) -> list[LinkState]:
        """Set the rate of links, both directions of each, what each direction delays, such as "5ms", where
        the kernel can, or have them up or down, and return them.
        """
        return self._ask("set", links=list(links), rate_mbps=rate_mbps, up=up, delay=delay, jitter=jitter)

    def reset(self, *links: str) -> list[LinkState]:
        """Give links the configuration's rates, have them up, and return them."""
        return self._ask("reset", links=list(links))

    def _ask(self, action: str, **arguments: Any) -> list[LinkState]:
        self._runtime.require_alive()
        asked = {"action": action, **arguments}
        return list(rpc.call(self._runtime.socket, "link", timeout_s=ANSWER_TIMEOUT_S, **asked))


class FaultControl:
    """The faults on the links of a running testbed. Each call returns those that are set then, and raises
    TestbedError where it cannot be done.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def now(self) -> list[FaultState]:
        """Return the faults that are set, with what they did since."""
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
        """Set the fault of links, in the place of what they have. Rates are percentages with their sign, such
        as "0.1%".
        """
        rates = {"loss": loss, "duplicate": duplicate, "reorder": reorder, "corrupt": corrupt}
        fault: dict[str, Any] = {name: share(f"{prefix}{name}", rate) for name, rate in rates.items() if rate}
        others = {"distance": distance, "seed": seed}
        fault |= {name: value for name, value in others.items() if value is not None}
        return self._ask("set", links=list(links), direction=direction, fault=fault)

    def clear(self, *links: str) -> list[FaultState]:
        """End the faults of links; of all, where none is named."""
        return self._ask("clear", **({} if links in ((), ("all",)) else {"links": list(links)}))

    def _ask(self, action: str, **arguments: Any) -> list[FaultState]:
        self._runtime.require_alive()
        asked = {"action": action, **arguments}
        return list(rpc.call(self._runtime.socket, "fault", timeout_s=ANSWER_TIMEOUT_S, **asked))


def share(name: str, text: str) -> float:
    """Return the share, 0 to 1, that a percentage like "0.1%" stands for. RequestError otherwise, without its
    sign too: 0.01 might mean 1%.
    """
    try:
        percent = float(text.removesuffix("%")) if str(text).endswith("%") else -1.0
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise RequestError(f"{name} {text}: a percentage from 0% to 100% is accepted, with its sign")
    return percent / 100
