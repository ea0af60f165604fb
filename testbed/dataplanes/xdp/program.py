"""The programs of bpf/programs.c: loaded, and attached to devices."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from testbed.contract.spec import LANES
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.compiled import Compiled, MapLayout
from testbed.errors import TestbedError

PROGRAMS = ("tor_port", "oxc_port", "host_port", "loop_port", "control_port", "room_port")
_XDP_FLAGS_DRV_MODE = 1 << 2
_CLONE_NEWNET = 0x40000000


def source(path: Path, seen: set[Path] | None = None) -> str:
    """Return a C file with its quoted includes put in, each once: bcc rewrites map accesses only in its
    main file.
    """
    seen = set() if seen is None else seen
    lines = [f'#line 1 "{path.name}"']
    for number, line in enumerate(path.read_text().splitlines(), 1):
        included = re.match(r'#include "(.*)"', line)
        if not included:
            lines.append(line)
            continue
        other = path.parent / included[1]
        if other not in seen:
            seen.add(other)
            lines += [source(other, seen), f'#line {number + 1} "{path.name}"']
    return "\n".join(lines)


class Programs:
    """The programs and their maps, by descriptor. A context manager: entering loads them, which `load` does
    too, and leaving drops the descriptors.
    """

    def __init__(self, lanes: int = LANES, text: str | None = None) -> None:
        """Compile bpf/programs.c, or `text` in its place: what tests make of it."""
        self.lanes = lanes
        self.compiled = Compiled(
            "the XDP programs",
            text or source(layout.BPF_DIR / "programs.c"),
            dict.fromkeys(PROGRAMS, "XDP"),
            [MapLayout(name, *types, "testbed/contract") for name, types in layout.maps(lanes).items()],
            ["-Werror=implicit-function-declaration", f"-DWIRE_LANES={lanes}"],
            load=False,
        )

    def load(self) -> None:
        """Load them. HostError when this host's kernel does not."""
        self.compiled.load()

    def __enter__(self) -> Self:
        self.load()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the descriptors."""
        self.compiled.close()

    def map_fd(self, name: str) -> int:
        """Return the descriptor of a map of bpf/maps.h."""
        return self.compiled.map_fd(name)

    def program_fd(self, name: str) -> int:
        """Return the descriptor of one of PROGRAMS."""
        return self.compiled.program_fd(name)

    def attach(self, program: str, device: str) -> None:
        """Attach to a device of the calling thread's network namespace, in native mode. TestbedError if the
        driver refuses.
        """
        try:
            self.compiled.bpf.attach_xdp(device, self.compiled.functions[program], _XDP_FLAGS_DRV_MODE)
        except Exception as error:  # bcc raises nothing narrower
            raise TestbedError(f"attach {program} to {device} in native XDP mode: {error}") from error


def in_namespace(path: Path, work: Callable[[], None]) -> None:
    """Run `work` on a thread of its own inside a network namespace, and raise what it raised."""
    failure: list[BaseException] = []

    def enter() -> None:
        try:
            with path.open("rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                    code = ctypes.get_errno()
                    raise OSError(code, f"enter network namespace {path.name}: {os.strerror(code)}")
            work()
        except BaseException as error:  # handed to the caller's thread below
            failure.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]


def verdict_counts(fd: int) -> dict[str, int]:
    """Return the verdict counters, summed over CPUs."""
    from testbed.dataplanes.xdp.syscall import map_lookup

    cpus = _possible_cpus()
    counts = {}
    for index, name in layout.verdict_names().items():
        data = map_lookup(fd, index.to_bytes(4, "little"), 8 * cpus)
        counts[name] = int(np.frombuffer(data or b"", dtype=np.uint64).sum())
    return counts


def _possible_cpus() -> int:
    last = Path("/sys/devices/system/cpu/possible").read_text().strip().replace("-", ",").split(",")[-1]
    return int(last) + 1
