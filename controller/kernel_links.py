"""Learn from the kernel which devices of links between units lose their carrier, in the network namespace of
this process. Open vSwitch reports it later: with 64 units on a busy machine, after 0.2 s.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from threading import Event

# <linux/rtnetlink.h>, <linux/if_link.h>, <linux/if.h>
_LINK_GROUP = 1
_NEWLINK, _DELLINK = 16, 17
_NAME = 3
_UP, _LOWER_UP = 0x1, 0x10000
_HEADER, _LINK, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BxHiII"), struct.Struct("=HH")
_RECEIVE_BYTES = 1 << 20
_LOOK_S = 0.5  # how often the end is looked for


def carriers(data: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the devices of a datagram of route netlink, with whether each is up and has carrier."""
    offset = 0
    while offset + _HEADER.size + _LINK.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, offset)
        if kind in (_NEWLINK, _DELLINK):
            _, _, _, flags, _ = _LINK.unpack_from(data, offset + _HEADER.size)
            name = _name(data[offset + _HEADER.size + _LINK.size : offset + length])
            yield name, kind == _NEWLINK and flags & (_UP | _LOWER_UP) == _UP | _LOWER_UP
        offset += max(_HEADER.size, length + 3 & ~3)


def _name(attributes: bytes) -> str:
    offset = 0
    while offset + _ATTRIBUTE.size <= len(attributes):
        length, kind = _ATTRIBUTE.unpack_from(attributes, offset)
        if kind == _NAME:
            return attributes[offset + _ATTRIBUTE.size : offset + length].rstrip(b"\0").decode()
        offset += max(_ATTRIBUTE.size, length + 3 & ~3)
    return ""


def follow(links: Mapping[str, str], report: Callable[[frozenset[str]], None], ended: Event) -> None:
    """Report the links that are down, each time that their devices change, until the end. `links` has each
    link by its devices. Changes before the beginning, or lost by the kernel, are not known.
    """
    dead: frozenset[str] = frozenset()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as kernel:
        kernel.bind((0, _LINK_GROUP))
        kernel.settimeout(_LOOK_S)
        while not ended.is_set():
            now = dead
            try:
                with contextlib.suppress(TimeoutError):
                    for device, has_carrier in carriers(kernel.recv(_RECEIVE_BYTES)):
                        if device in links:
                            now = now - {device} if has_carrier else now | {device}
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                now = frozenset()  # messages were lost; Open vSwitch reports what is down
            if now != dead:
                dead = now
                report(frozenset(links[device] for device in dead))
