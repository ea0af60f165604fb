"""Send one raw frame from a device to others, for probes of the data plane. Imports only its own package."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterable

from testbed.host_checks.features import ProbeFailure

# A broadcast frame with the EtherType reserved for local experiments: no network stack answers it.
ETHER_TYPE = 0x88B5
FRAME = (
    b"\xff" * 6
    + b"\x02\x00\x00\x00\x00\x01"
    + ETHER_TYPE.to_bytes(2, "big")
    + b"optinc doctor".ljust(64, b".")
)
DEADLINE_S = 10.0  # long, since a busy machine is no failure
TOOL_S = 30.0
RESEND_S = 0.1


def tool(*argv: str) -> str:
    """Run a network tool and return its output. ProbeFailure with the first line of its error message."""
    try:
        ended = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=TOOL_S, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise ProbeFailure(f"{argv[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise ProbeFailure(f"{' '.join(argv)}: not done after {TOOL_S:.0f} s") from None
    if ended.returncode != 0:
        complaint = (
            ended.stderr.strip() or ended.stdout.strip() or f"exited with {ended.returncode}"
        ).splitlines()[0]
        raise ProbeFailure(f"{' '.join(argv)}: {complaint}")
    return ended.stdout


def make_veth(first: str, second: str) -> None:
    """Make a veth pair, both ends up."""
    tool("ip", "link", "add", first, "type", "veth", "peer", "name", second)
    for device in (first, second):
        tool("ip", "link", "set", device, "up")


def send(device: str, frame: bytes) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((device, 0))
        sender.send(frame)


def arrives(devices: Iterable[str], act: Callable[[], None]) -> set[str]:
    """Return the devices at which FRAME arrives after `act`, which is repeated until all have it or
    DEADLINE_S has passed.

    A device that has just been set up may drop the first frames.
    """
    with contextlib.ExitStack() as stack:
        waiting = {}
        for device in devices:
            listener = stack.enter_context(
                socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER_TYPE))
            )
            listener.bind((device, ETHER_TYPE))
            waiting[listener] = device
        reached: set[str] = set()
        deadline = time.monotonic() + DEADLINE_S
        while waiting and time.monotonic() < deadline:
            act()
            for listener in select.select(list(waiting), [], [], RESEND_S)[0]:
                frame, address = listener.recvfrom(2048)
                if frame.startswith(FRAME) and address[2] != socket.PACKET_OUTGOING:
                    reached.add(waiting.pop(listener))
        return reached
