"""The daemon's request `link`: set rates and delays of links, or set links up or down, by hand, under running
jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from testbed.client.requests import LinkRequest
from testbed.errors import RequestError
from testbed.jobs.manager import Jobs
from testbed.keys import Time
from testbed.machine.interface import ByHand
from testbed.machine.links import LinkDelay
from testbed.messages.links import LinkSetting
from testbed.topology.fields import shown

MOST_MBPS = 400_000.0
_ACTIONS = ("set", "reset", "list")


Tell = Callable[[Sequence[str], bool], None]


def answer(links: ByHand, jobs: Jobs, request: LinkRequest, tell: Tell) -> tuple[LinkSetting, ...]:
    """Perform the request and return the links as the kernel then has them. Either all of the named links are
    set, or none. `tell` learns at once which links were set up or down: routes lead round these.
    """
    action, words = request.action, request.links
    if action not in _ACTIONS:
        raise RequestError(f"link {shown(action)}: accepted are {', '.join(_ACTIONS)}")
    if action == "list":
        return links.states()
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise RequestError(f"links: {shown(words)}; a list of names is accepted")
    names = links.names(words)
    if action == "reset":
        _check_no_policy(jobs, [name for name in names if links.rate_mbps(name) is not None])
        try:
            links.reset(names)
        finally:  # some may be up; those that are not have no carrier, as switches report
            tell(names, True)
    else:
        rate_mbps, is_up = _rate(request.rate_mbps), request.up
        if is_up is not None and not isinstance(is_up, bool):
            raise RequestError(f"up: {shown(is_up)}; true or false is accepted")
        delay = _delay(request.delay, request.jitter)
        if rate_mbps is None and is_up is None and delay is None:
            raise RequestError(
                "link set: what is to be set? accepted are --rate MBPS, --delay TIME, --up, --down"
            )
        if rate_mbps is not None:
            _check_no_policy(jobs, names)
        links.set(names, rate_mbps, is_up, delay)
        if is_up is not None:
            tell(names, is_up)
    jobs.hear_rates()
    return tuple(state for state in links.states() if state.link in names)


def _rate(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_MBPS:
        raise RequestError(
            f"--rate {shown(value)}: more than 0, and at most {MOST_MBPS:g}, Mb/s are accepted"
        )
    return float(value)


def _delay(delay: Any, jitter: Any) -> LinkDelay | None:
    if delay is None and jitter is None:
        return None
    if delay is None:
        raise RequestError(f"--jitter {shown(jitter)}: it is accepted with --delay, and at most as long")
    delay_ms, jitter_ms = _time_ms("delay", delay), 0.0 if jitter is None else _time_ms("jitter", jitter)
    if jitter_ms > delay_ms:
        raise RequestError(f"--jitter {jitter}: at most the delay, {delay}, is accepted")
    return LinkDelay(delay_ms, jitter_ms)


def _time_ms(name: str, text: Any) -> float:
    """Parse a time like "5ms" to milliseconds."""
    if (time_ms := Time.read(text)) is None:
        raise RequestError(f"--{name} {shown(text)}: {Time.ACCEPTED}")
    return time_ms


def _check_no_policy(jobs: Jobs, names: list[str]) -> None:
    """Raise RequestError if a policy controls the rate of one of these links."""
    decided = jobs.rates_of_policies()
    for name in names:
        if name in decided:
            raise RequestError(
                f"link {name}: the policy of job {decided[name]} decides on its rate while it runs"
            )
