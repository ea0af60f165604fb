"""Load the programs of bpf/programs.c, and attach them to devices."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from testbed.aggregation.program import SUM, ProgramSource
from testbed.dataplanes.xdp import layout
from testbed.dataplanes.xdp.compiled import Compiled, MapLayout
from testbed.dataplanes.xdp.syscall import map_update, u32
from testbed.errors import TestbedError
from testbed.wire.places import Program
from testbed.wire.recovery import QUESTIONS
from testbed.wire.spec import LANES, ONE_BUFFER_MTU, lanes_for

PORTS = (
    "tor_port",
    "oxc_port",
    "host_port",
    "loop_port",
    "copy_port",
    "control_port",
    "room_port",
    "calendar_port",
)
"""The programs that are attached to devices."""
Calls = dict[str, dict[str, tuple[str, int]]]
NATIVE, GENERIC = "native", "generic"
_FLAGS = {NATIVE: 1 << 2, GENERIC: 1 << 1}  # XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE
_CLONE_NEWNET = 0x40000000


def source(path: Path, systems: Sequence[ProgramSource] = (), seen: set[Path] | None = None) -> str:
    """Return a C file with its quoted includes inserted, each once, and the systems' programs in place of
    SYSTEMS: bcc rewrites map accesses only in its main file.
    """
    seen = set() if seen is None else seen
    lines = [f'#line 1 "{path.name}"']
    for number, line in enumerate(path.read_text().splitlines(), 1):
        included = re.match(r'#include (SYSTEMS|"(.*)")', line)
        if not included:
            lines.append(line)
            continue
        back = f'#line {number + 1} "{path.name}"'
        if included[1] == "SYSTEMS":
            for system in systems:
                lines.append(f"#define PROGRAM_{system.name.upper()} {system.number}")
                lines += [source(layout.BPF_DIR / system.path, (), seen), back]
        elif (other := path.parent / included[2]) not in seen:
            seen.add(other)
            lines += [source(other, systems, seen), back]
    return "\n".join(lines)


def called(systems: Iterable[ProgramSource]) -> Calls:
    """Return, by the job property that needs them, the programs called by those of PORTS, each with the map
    of the call and its index there.
    """
    calls: Calls = {QUESTIONS: {"question_port": ("question_ports", 0)}}
    for system in systems:
        calls[system.name] = {
            f"{system.name}_port": ("port_programs", system.number),
            f"{system.name}_tick_port": ("tick_programs", system.number),
        }
    return calls


def mode_for(lanes: int) -> str:
    """Return the XDP mode for programs with packets of this many lanes.

    A native program sees only the first buffer of a frame, and veth accepts no native program for longer
    frames. In generic mode the kernel first copies each frame into one buffer.
    """
    return NATIVE if lanes <= lanes_for(ONE_BUFFER_MTU) else GENERIC


class Programs:
    """The programs and their maps, by descriptor. A context manager: entering loads them all, leaving closes
    the descriptors. A testbed starts with those of PORTS only, and loads the others with the first job that
    needs them: verifying either takes about as long.
    """

    def __init__(self, systems: Sequence[ProgramSource], lanes: int = LANES, text: str | None = None) -> None:
        """Compile bpf/programs.c with the systems' programs; or `text` instead, which tests derive
        from it.
        """
        self.lanes, self.mode = lanes, mode_for(lanes)
        self.numbers = {SUM: int(Program.SUM), **{system.name: system.number for system in systems}}
        self._called = called(systems)
        self._loading = threading.Lock()
        self._loaded: set[str] = set()  # the called programs that are loaded
        self.compiled = Compiled(
            "the XDP programs",
            text or source(layout.BPF_DIR / "programs.c", systems),
            dict.fromkeys((*PORTS, *(name for names in self._called.values() for name in names)), "XDP"),
            [MapLayout(name, *types, "the contract") for name, types in layout.maps(lanes, systems).items()],
            ["-Werror=implicit-function-declaration", f"-DWIRE_LANES={lanes}"],
            load=False,
        )

    def load(self, *called: str) -> None:
        """Load the programs of PORTS, and the called programs of these names. HostError if this host's kernel
        refuses; the descriptors are then closed.
        """
        with ExitStack() as undo:
            undo.callback(self.close)
            self.compiled.load(PORTS)
            for what in called:
                self.need(what)
            undo.pop_all()

    def need(self, what: str) -> None:
        """Load the called programs of this name, unless they are loaded, and enter them in their maps; do
        nothing for an unknown name. HostError if this host's kernel refuses.
        """
        with self._loading:
            if what in self._loaded or what not in self._called:
                return
            self.compiled.load([name for name in self._called[what] if name not in self.compiled.functions])
            for name, (calls, place) in self._called[what].items():
                map_update(self.map_fd(calls), u32(place), u32(self.program_fd(name)))
            self._loaded.add(what)

    def __enter__(self) -> Self:
        self.load(*self._called)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptors."""
        self.compiled.close()

    def map_fd(self, name: str) -> int:
        """Return the descriptor of a map of bpf/maps.h."""
        return self.compiled.map_fd(name)

    def program_fd(self, name: str) -> int:
        """Return the descriptor of a loaded program."""
        return self.compiled.program_fd(name)

    def attach(self, program: str, device: str) -> None:
        """Attach to a device of the calling thread's network namespace, in `mode` and no other. TestbedError
        if the kernel refuses.
        """
        try:
            self.compiled.attach(program, device, _FLAGS[self.mode])
        except OSError as error:
            raise TestbedError(f"attach {program} to {device} in {self.mode} XDP mode: {error}") from error


def in_namespace(path: Path, work: Callable[[], None]) -> None:
    """Run `work` on a new thread inside a network namespace, and raise its exception here."""
    failure: list[BaseException] = []

    def enter() -> None:
        try:
            with path.open("rb") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) != 0:
                    code = ctypes.get_errno()
                    raise OSError(code, f"enter network namespace {path.name}: {os.strerror(code)}")
            work()
        except BaseException as error:  # raised in the caller's thread below
            failure.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]


def verdict_counts(fd: int) -> dict[str, int]:
    """Read the verdict counters, summed over CPUs."""
    from testbed.dataplanes.xdp.syscall import map_lookup

    cpus = possible_cpus()
    counts = {}
    for index, name in layout.verdict_names().items():
        data = map_lookup(fd, index.to_bytes(4, "little"), 8 * cpus)
        counts[name] = int(np.frombuffer(data or b"", dtype=np.uint64).sum())
    return counts


def possible_cpus() -> int:
    """Return the number of values in an entry of a per-CPU map."""
    last = Path("/sys/devices/system/cpu/possible").read_text().strip().replace("-", ",").split(",")[-1]
    return int(last) + 1
