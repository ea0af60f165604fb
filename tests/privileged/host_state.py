"""The things that a testbed could leave on a host: processes, interfaces, mounts, BPF objects, cgroups,
runtime folders.

Other programs, and tests of other lanes, come and go on the same host while a test runs. So only some things
count:

- of processes, descendants, including adopted ones;
- of BPF objects, which all namespaces share, those that descendants have open, and those with our names that
  no process has open;
- of cgroups, those without a process;
- of the rest, those in this process's own namespaces, which tests have for themselves (tests/lanes.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from testbed.cgroups import lifetime as cgroups
from testbed.dataplanes.xdp import layout, link_delays, link_faults, link_marks
from testbed.plugins import registry
from testbed.wire.spec import LANES
from tests.processes import ENDED

RUNTIME = Path("/run/optinc")
PR_SET_CHILD_SUBREAPER = 36
BPF_SYSCALL = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID, BPF_PROG_GET_FD, BPF_MAP_GET_FD, BPF_OBJ_GET_INFO = (
    11,
    12,
    13,
    14,
    15,
)
BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP = 3, 6
PROGRAM_NAME, MAP_NAME = (
    slice(64, 80),
    slice(24, 40),
)  # the name's bytes in struct bpf_prog_info and bpf_map_info
# reading a process or file in /proc: it ended meanwhile, or not even root may read it
GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
MAP_NAMES = {  # truncated as by the kernel
    name[:15]
    for name in (
        *layout.maps(LANES, registry.sources("xdp")),
        *link_faults.MAPS,
        *link_marks.MAPS,
        *link_delays.MAPS,
    )
}


ROOT = Path(__file__).resolve().parents[2]
_ENDS = {"PORT": ("port",), "TICK": ("tick_port",)}
_MADE = re.compile(r"^(PORT|TICK)_PROGRAM\((\w+)", re.MULTILINE)  # of bpf/port.h
_PROGRAM = re.compile(r"\bint (\w+)\(struct (?:xdp_md|__sk_buff) \*")


@functools.cache
def program_names() -> frozenset[str]:
    """Return the names of the project's BPF programs, including its tests', truncated as by the kernel."""
    sources = [*(ROOT / "bpf").rglob("*.[ch]"), *(ROOT / "tests/privileged").glob("*.[ch]")]
    sources += (ROOT / "docs/examples").glob("*.h")
    sources += (ROOT / "tests").rglob("*.py")
    texts = [source.read_text() for source in sources]
    made = (f"{name}_{end}" for text in texts for kind, name in _MADE.findall(text) for end in _ENDS[kind])
    whole = (name for text in texts for name in _PROGRAM.findall(text))
    return frozenset(name[:15] for name in (*whole, *made))


# A set of a snapshot -> the set with the same of all processes. An object that another process has open at a
# moment may still be this one's: the snapshots of other lanes open each object to read its name.
WHOLE = {"bpf_programs": "all_programs", "bpf_maps": "all_maps"}


@dataclass(frozen=True, slots=True)
class HostSnapshot:
    """Sets of names, each of which a person can look up."""

    processes: frozenset[str]
    interfaces: frozenset[str]
    mounts: frozenset[str]
    bpf_programs: frozenset[str]
    bpf_maps: frozenset[str]
    bpf_pins: frozenset[str]
    runtime_folders: frozenset[str]
    cgroups: frozenset[str]
    all_programs: frozenset[str]
    all_maps: frozenset[str]

    def added_since(self, before: HostSnapshot) -> dict[str, list[str]]:
        """Return the things that are here and were not before, by kind; only kinds with something new."""
        kinds = [field.name for field in fields(self) if field.name not in WHOLE.values()]
        new = {kind: getattr(self, kind) - getattr(before, WHOLE.get(kind, kind)) for kind in kinds}
        return {kind: sorted(things) for kind, things in new.items() if things}

    def without_later_bpf(self, first: HostSnapshot) -> HostSnapshot:
        """Return the snapshot without BPF objects that were not in `first`: those belong to others."""
        return replace(
            self,
            bpf_programs=self.bpf_programs & first.bpf_programs,
            bpf_maps=self.bpf_maps & first.bpf_maps,
        )


def host_snapshot() -> HostSnapshot:
    """Return the state of the host. From now on the calling process adopts its orphaned descendants, so that
    a later snapshot sees them.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    descendants = _descendants(os.getpid())
    programs, maps = _programs(), _maps_of_ours()
    # look for the holders of an object after listing it, so that a process that is loading it counts as one
    own = {os.getpid(), *(int(process.split()[0]) for process in descendants)}
    held_here, held_elsewhere = _held(own) if programs or maps else (Held(), Held())
    of_others = {number for number, name in programs.items() if name not in program_names()}
    return HostSnapshot(
        processes=frozenset(descendants),
        # not from sysfs, which shows the interfaces of the namespace that mounted it
        interfaces=frozenset(name for _, name in socket.if_nameindex()),
        mounts=frozenset(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        bpf_programs=_without(programs, held_elsewhere.programs | of_others - held_here.programs),
        bpf_maps=_without(maps, held_elsewhere.maps),
        bpf_pins=frozenset(str(path) for path in _below(Path("/sys/fs/bpf"))),
        runtime_folders=frozenset(path.name for path in _below(RUNTIME, depth=1)),
        cgroups=frozenset(str(folder) for folder in cgroups.dead()),
        all_programs=_without(programs, set()),
        all_maps=_without(maps, set()),
    )


def assert_unchanged(before: HostSnapshot, deadline_s: float = 180.0) -> None:
    """Wait until only the things of `before` are left: the kernel ends namespaces some time after their last
    process. AssertionError after `deadline_s`.
    """
    deadline = time.monotonic() + deadline_s
    first = now = host_snapshot()
    while left := now.without_later_bpf(first).added_since(before):
        if time.monotonic() > deadline:
            raise AssertionError(f"still there after {deadline_s:g} s: {left}")
        time.sleep(0.05)
        now = host_snapshot()


def _descendants(ancestor: int) -> list[str]:
    """Return `PID NAME` of living descendants; a zombie has no resources."""
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
        children.setdefault(int(rest[1]), []).append(int(folder.name))
        if rest[0] not in ENDED:
            names[int(folder.name)] = name
    descendants: list[int] = []
    pending = [ancestor]
    while pending:
        descendants += (below := children.get(pending.pop(), []))
        pending += below
    return [f"{pid} {names[pid]}" for pid in descendants if pid in names]


def _without(names: dict[int, str], numbers: set[int]) -> frozenset[str]:
    return frozenset(f"{number} {name}" for number, name in names.items() if number not in numbers)


def _programs() -> dict[int, str]:
    """Return the names of the programs of our types in the kernel, by their ids."""
    infos = _bpf_infos(BPF_PROG_GET_NEXT_ID, BPF_PROG_GET_FD)
    ours = (BPF_PROG_TYPE_SCHED_CLS, BPF_PROG_TYPE_XDP)
    return {
        number: _text(info[PROGRAM_NAME])
        for number, info in infos
        if struct.unpack_from("=I", info)[0] in ours
    }


def _maps_of_ours() -> dict[int, str]:
    """Return the names of our maps in the kernel, by their ids."""
    infos = _bpf_infos(BPF_MAP_GET_NEXT_ID, BPF_MAP_GET_FD)
    return {number: name for number, info in infos if (name := _text(info[MAP_NAME])) in MAP_NAMES}


@dataclass(frozen=True, slots=True)
class Held:
    """The ids of the programs and maps that some processes have open."""

    programs: set[int] = field(default_factory=set)
    maps: set[int] = field(default_factory=set)


def _held(own: set[int]) -> tuple[Held, Held]:
    """Return what these processes have open, and what all others have."""
    here, elsewhere = Held(), Held()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        held = here if int(folder.name) in own else elsewhere
        numbers = {"prog_id:": held.programs, "map_id:": held.maps}
        with contextlib.suppress(*GONE):
            for file in (folder / "fd").iterdir():
                for line in bpf_lines(folder, file):
                    kind, _, number = line.partition("\t")
                    if kind in numbers:
                        numbers[kind].add(int(number))
    return here, elsewhere


def bpf_lines(folder: Path, file: Path) -> list[str]:
    """Return the kernel's description of a process's open file, if that is a BPF object; else an empty
    list.
    """
    try:
        if os.readlink(file).startswith("anon_inode:bpf-"):
            return (folder / "fdinfo" / file.name).read_text().splitlines()
    except GONE:
        pass
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # a path of folders that is longer than a path may be
            raise
    return []


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode()


def _bpf_infos(get_next: int, get_fd: int) -> Iterator[tuple[int, bytes]]:
    """Yield id and information of every BPF object of a kind in the kernel, whichever namespace its
    holder is in.
    """
    number = 0
    while True:
        try:
            number = struct.unpack_from("=II", _bpf(get_next, struct.pack("=II", number, 0))[1])[1]
            fd = _bpf(get_fd, struct.pack("=I", number))[0]
        except FileNotFoundError as error:
            if error.filename == get_fd:
                continue  # it was freed between the two calls
            return
        info = ctypes.create_string_buffer(256)
        try:
            _bpf(BPF_OBJ_GET_INFO, struct.pack("=IIQ", fd, len(info), ctypes.addressof(info)))
        finally:
            os.close(fd)
        yield number, info.raw


def _bpf(command: int, attributes: bytes) -> tuple[int, bytes]:
    """Call bpf(2). Return its result, and the attributes after the call. OSError has the command as its
    file name.
    """
    data = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    libc = ctypes.CDLL(None, use_errno=True)
    returned = int(libc.syscall(BPF_SYSCALL[os.uname().machine], command, data, len(data)))
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), command)
    return returned, data.raw


def _below(folder: Path, depth: int = 8) -> list[Path]:
    if depth == 0 or not folder.is_dir():
        return []
    return [path for entry in folder.iterdir() for path in (entry, *_below(entry, depth - 1))]
