"""Attach BPF programs where devices receive or send, detach them, and read that back. Reports a kernel that
has no such filters.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from testbed.dataplanes.xdp.link_program import LinkProgram
from testbed.emulation.netlink import (
    INGRESS,
    NetlinkError,
    RouteSocket,
    add_program,
    delete_program,
    is_missing_feature,
)
from testbed.errors import HostError, SettingError, TestbedError
from testbed.host_checks.features import BY_NAME

HAS_NONE = errno.ENOENT, errno.ENODEV  # no such program there, or the device is gone


def attach(
    route: RouteSocket,
    ifindexes: Sequence[int],
    program: LinkProgram,
    name: str,
    priority: int,
    what: str,
    parent: int = INGRESS,
) -> None:
    """Attach a program, called `name` in the kernel, to all of the devices or to none: where they receive, or
    send (EGRESS). HostError, beginning with `what`, if this kernel has no BPF filters.
    """
    try:
        route.send([add_program(ifindex, program.fd, name, priority, parent) for ifindex in ifindexes])
        _check(route, ifindexes, priority, [program.kernel_id], parent)
    except TestbedError as error:
        for ifindex in ifindexes:
            try:
                route.send([delete_program(ifindex, priority, parent)])
            except NetlinkError as left:
                if left.code not in HAS_NONE:
                    raise TestbedError(f"{error}; and then: {left}") from error
        if isinstance(error, NetlinkError) and is_missing_feature(error):
            raise HostError(f"{what}: {error}; needed is {BY_NAME['marks'].remedy}") from error
        raise


def detach(route: RouteSocket, ifindexes: Sequence[int], priority: int, parent: int = INGRESS) -> None:
    """Detach the programs that `attach` attached with this priority."""
    route.send([delete_program(ifindex, priority, parent) for ifindex in ifindexes])
    _check(route, ifindexes, priority, [], parent)


def _check(
    route: RouteSocket, ifindexes: Sequence[int], priority: int, wanted: list[int], parent: int = INGRESS
) -> None:
    for ifindex in ifindexes:
        held = route.programs(ifindex, priority, parent)
        if held != wanted:
            raise SettingError(
                f"device {ifindex}: program {wanted or 'none'} was set and reads back {held or 'none'}"
            )
