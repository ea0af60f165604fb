"""The daemon's request `fault`: loss, duplication, reordering and corruption on links, under running jobs."""

from __future__ import annotations

from dataclasses import fields

from testbed.client.requests import FaultRequest
from testbed.errors import RequestError
from testbed.machine.interface import Faults
from testbed.machine.links import LinkFault
from testbed.messages.links import FaultStatus
from testbed.topology.link_names import meant


def answer(faults: Faults, request: FaultRequest) -> tuple[FaultStatus, ...]:
    """Perform a request of `testbed fault` and return the faults that are set afterwards. A unit stands for
    all of its links with a rate, and `all` for all of the testbed's.
    """
    action, links = request.action, request.links
    if links is not None and (
        not isinstance(links, list) or not all(isinstance(link, str) for link in links)
    ):
        raise RequestError(f"links: {links!r}; a list of names is accepted")
    if action == "set":
        wanted = request.fault
        names = [field.name for field in fields(LinkFault)]
        if not isinstance(wanted, dict) or not wanted.keys() <= set(names) or not links:
            raise RequestError(
                f"fault set: links, and a fault with keys out of {', '.join(names)} are needed"
            )
        fault, direction = LinkFault(**wanted), request.direction
        links = meant(links, faults.shaped())
        for link in links:  # set all of them or none
            faults.require(link)
        for link in links:
            faults.set(link, fault, direction)
    elif action == "clear":
        for name in meant(links, faults.shaped()) if links else [None]:
            faults.clear(name)
    elif action != "list":
        raise RequestError(f"fault {action!r}: accepted are set, list, clear")
    return faults.states()
