"""Programs at devices' ingress, against a kernel in memory: one without such filters says what it needs."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.emulation import congestion_marks, ingress
from testbed.emulation.links import WireEnd, WireSpec
from testbed.emulation.netlink import Message, NetlinkError
from testbed.errors import HostError, SettingError, TestbedError

PROGRAM: Any = SimpleNamespace(fd=7, kernel_id=300)
LACKS = "TC classifier not found"  # what Linux 6.18 says where a classifier's module is missing


class Kernel:
    """Takes messages in order. It refuses attaching by `code` from the `refused`-th device on."""

    def __init__(self, code: int = 0, refused: int = 0, other: int | None = None) -> None:
        self.code, self.refused, self.other = code, refused, other
        self.held: dict[str, list[int]] = {}

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            what, _, device = message.what.rpartition(" ")
            if what.startswith("attach"):
                if self.code and len(self.held) >= self.refused:
                    raise NetlinkError(message.what, self.code, LACKS)
                self.held[device] = [self.other or PROGRAM.kernel_id]
            elif self.held.pop(device, None) is None:
                raise NetlinkError(message.what, errno.ENOENT, "")

    def programs(self, ifindex: int, _priority: int, _parent: int) -> list[int]:
        return self.held.get(str(ifindex), [])


def attach(kernel: Any) -> None:
    ingress.attach(kernel, [11, 12, 13], PROGRAM, "link_mark", 2, "links mark what waits in them")


def test_programs_come_and_go() -> None:
    kernel: Any = Kernel()
    attach(kernel)
    assert kernel.held == {"11": [300], "12": [300], "13": [300]}
    ingress.detach(kernel, [12], 2)
    assert sorted(kernel.held) == ["11", "13"]


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EOPNOTSUPP])
def test_a_kernel_without_such_filters_is_one_line_that_says_what_to_do(code: int) -> None:
    kernel = Kernel(code)
    with pytest.raises(HostError) as raised:
        attach(kernel)
    assert str(raised.value) == (
        f"links mark what waits in them: attach link_mark to the ingress of device 11: {LACKS}; needed is a "
        "kernel built with CONFIG_NET_CLS_BPF and CONFIG_NET_CLS_ACT; in a virtual machine choose Debian's "
        "linux-image-amd64"
    )
    assert raised.value.exit_code == 3


def test_another_refusal_is_no_lack_of_the_kernels_and_leaves_nothing() -> None:
    kernel = Kernel(errno.EPERM, refused=2)
    with pytest.raises(NetlinkError, match="device 13"):
        attach(kernel)
    assert kernel.held == {}


def test_what_reads_back_different_is_an_error_and_leaves_nothing() -> None:
    kernel = Kernel(other=301)
    with pytest.raises(SettingError, match=r"^device 11: program \[300\] was set and reads back \[301\]$"):
        attach(kernel)
    assert kernel.held == {}


def test_a_testbed_does_not_come_up_without_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not left out in silence: windows are made for links that mark (docs/protocol.md)."""
    wire = WireSpec("u1h1", WireEnd("a"), WireEnd("b"), 200.0, 64 * 1514, 1500)
    devices = {
        name: SimpleNamespace(ifindex=at) for at, name in enumerate(congestion_marks.inner_devices(wire), 11)
    }

    class Route(Kernel):
        def __enter__(self) -> Route:
            return self

        def __exit__(self, *_: object) -> None: ...

        def devices(self) -> dict[str, SimpleNamespace]:
            return devices

    class Program(Route):
        fd, kernel_id = PROGRAM.fd, PROGRAM.kernel_id

        def set_queue(self, *_: object) -> None: ...

    monkeypatch.setattr(congestion_marks, "RouteSocket", lambda: Route(errno.ENOENT))
    monkeypatch.setattr(congestion_marks, "MarkProgram", Program)
    monkeypatch.setattr(congestion_marks, "entered", lambda _: Route())
    with (
        congestion_marks.LinkMarks([wire]) as links,
        pytest.raises(TestbedError, match=r"^links mark .* CONFIG_NET_CLS_BPF"),
    ):
        links.attach(1)
