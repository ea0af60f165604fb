"""Compiles C by BCC, loads its programs, and compares its maps with what Python says of them.

The one place that knows how BCC is had, which headers it is given and how it fails; the doctor's probe alone,
which must tell a lack of the host's from a fault of ours, asks BCC itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import numpy as np

from testbed.dataplanes.xdp import objects
from testbed.dataplanes.xdp.objects import CType, Objects, kept, key_of
from testbed.errors import HostError, SettingError
from testbed.host_checks.headers import cache_folder, identity, kernel_headers

_T = TypeVar("_T")
Kind = Literal["XDP", "SCHED_CLS"]
_CLONE_FS = 0x200
_LOG_BYTES = 1 << 24  # of the verifier, who keeps the end of what is longer
_COUNTS = ("processed ", "verification time", "stack depth")
_COMPILING = threading.Lock()


@dataclass(frozen=True, slots=True)
class MapLayout:
    """A map as Python has it: the types of its key and value, and the file that says so."""

    name: str
    key: np.dtype
    value: np.dtype
    stated_in: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A program in the kernel, by descriptor."""

    fd: int


class Compiled:
    """A C text's programs and maps, by descriptor. A context manager; leaving it drops the descriptors.

    BCC compiles, and bpf(2) makes the maps and loads the programs, so that all maps are of one kind: a map
    that BCC makes has type information (BTF), and before Linux 6.2 no map that bpf(2) makes without is
    accepted as an inner map in its place. What was compiled before is taken from a folder
    (testbed/dataplanes/xdp/objects.py).

    `what` is its name in errors, such as "the XDP programs"; `programs` are the functions to load, each with
    its kind; they are loaded at once unless `load` says that the caller will. HostError when this host
    cannot, SettingError when C and Python have other types for a map.
    """

    _at_once = os.cpu_count() or 1  # programs that are loaded

    def __init__(
        self,
        what: str,
        text: str,
        programs: Mapping[str, Kind],
        maps: Iterable[MapLayout] = (),
        flags: Sequence[str] = (),
        load: bool = True,
    ) -> None:
        self.functions: dict[str, Any] = {}
        self.was_kept = False
        self._what, self._text, self._programs, self._flags = what, text, programs, flags
        self._headers = kernel_headers()
        try:
            from bcc import __version__
        except ImportError as error:
            raise HostError(
                f"import bcc: {error}; install Debian's python3-bpfcc (`make setup` does)"
            ) from error
        try:
            self._make_maps(__version__)
        except Exception as error:  # bcc raises nothing narrower
            raise self._unable(error) from error
        try:
            if load:
                self.load()
            for layout in maps:
                check_layout(layout, *self._shapes(layout.name))
        except (HostError, SettingError):
            self.close()
            raise

    def _make_maps(self, bcc_version: str) -> None:
        # the running kernel is no fact: BCC has its types from the headers, and the verifier judges the rest
        cores = Path("/sys/devices/system/cpu/possible").read_text()  # C has values of all of them
        facts = (bcc_version, os.uname().machine, cores, identity(self._headers))
        key, folder = key_of(self._text, *self._flags, *self._programs, *facts), cache_folder() / "xdp"
        made = kept(key, folder)
        self.was_kept = made is not None
        if made is None:
            bpf = self._compile()
            try:
                made = Objects.made(bpf, self._text, self._programs)
            finally:
                bpf.cleanup()
            objects.keep(key, made, folder)
        self._objects, self._fds = made, made.create()

    def _compile(self) -> Any:
        """Compile by BCC, which makes maps of its own."""
        from bcc import BPF

        os.environ["BCC_KERNEL_SOURCE"] = str(self._headers)
        # -w: the kernel's own headers warn under bcc's clang
        return _apart(lambda: _heeded(lambda: BPF(text=self._text, cflags=["-w", *self._flags])))

    def load(self, names: Collection[str] | None = None) -> None:
        """Load programs, None: all, as many at once as there are processors: the kernel's verifier may take a
        second for each. Any thread may, while others work. HostError where the kernel does not.
        """

        def load(name: str) -> None:
            self.functions[name] = self.loaded(name)

        try:
            with ThreadPoolExecutor(self._at_once, "verify") as verifiers:
                list(verifiers.map(load, self._programs if names is None else names))
        except Exception as error:  # bcc raises nothing narrower
            raise self._unable(error) from error

    def loaded(self, name: str) -> Any:
        """Load a program, again if it is loaded already, over the maps that are there."""
        instructions = self._objects.instructions(name, self._fds)
        return Loaded(_load(name, self._programs[name], instructions, self._objects.license))

    def attach(self, program: str, device: str, flags: int) -> None:
        """Attach an XDP program to a device of the calling thread's network namespace. OSError if the kernel
        refuses.
        """
        from bcc.libbcc import lib

        if lib.bpf_attach_xdp(device.encode(), self.program_fd(program), flags) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def _unable(self, error: Exception) -> HostError:
        return HostError(f"load {self._what}: {error}; `testbed doctor` says what this host lacks")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the descriptors."""
        for fd in (*self._fds.values(), *(each.fd for each in self.functions.values())):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._fds, self.functions = {}, {}

    def map_fd(self, name: str) -> int:
        """Return the descriptor of a map."""
        return self._fds[name]

    def program_fd(self, name: str) -> int:
        """Return the descriptor of one of the programs."""
        return int(self.functions[name].fd)

    def value_bytes(self, name: str) -> int:
        """Return how long the values of a map are."""
        return self._shapes(name)[1].size_bytes

    def _shapes(self, name: str) -> tuple[CType, CType]:
        """Return a map's key and value as C has them."""
        for each in self._objects.maps:
            if each.name == name:
                return each.key, each.value
        raise SettingError(f"map {name}: its program has a record for it, and its C source no such map")


class CompiledTables(Compiled):
    """A text with maps that BCC made, of which `bpf`, BCC's own object, has tables by name: for figures and
    benches that read many of them. None of its maps is a map of maps.
    """

    bpf: Any
    _at_once = 1

    def _make_maps(self, bcc_version: str) -> None:
        self.bpf = self._compile()

    def loaded(self, name: str) -> Any:
        """Load a program, again if it is loaded already, over the maps that are there."""
        self.bpf.funcs.pop(name.encode(), None)  # bcc would hand out the one that it has
        return self.bpf.load_func(name, getattr(self.bpf, self._programs[name]))

    def close(self) -> None:
        """Drop the descriptors."""
        self.bpf.cleanup()

    def map_fd(self, name: str) -> int:
        """Return the descriptor of a map."""
        return int(self.bpf[name].map_fd)

    def _shapes(self, name: str) -> tuple[CType, CType]:
        return CType.of(self.bpf[name].Key), CType.of(self.bpf[name].Leaf)


def _load(name: str, kind: Kind, instructions: bytes, license: bytes) -> int:
    """Load a program by BCC's library, and return its descriptor. OSError where the kernel does not."""
    from bcc import BPF
    from bcc.libbcc import lib

    def load(log: ctypes.Array[ctypes.c_char] | None = None) -> int:
        return int(
            lib.bcc_prog_load(
                ctypes.c_int(getattr(BPF, kind)),
                ctypes.c_char_p(name.encode()),
                ctypes.c_char_p(instructions),
                ctypes.c_int(len(instructions)),
                ctypes.c_char_p(license),
                ctypes.c_uint(0),
                ctypes.c_int(log is not None),
                log,
                ctypes.c_uint(len(log) if log is not None else 0),
            )
        )

    fd = load()
    if fd >= 0:
        return fd
    code, why = ctypes.get_errno(), ""
    if code in (errno.EINVAL, errno.EACCES, errno.E2BIG):  # the verifier's, who says why if asked
        log = ctypes.create_string_buffer(_LOG_BYTES)
        fd = load(log)
        if fd >= 0:
            return fd
        why = _why(log)
    raise OSError(code, f"load program {name}: {os.strerror(code)}{why}")


def _why(log: ctypes.Array[ctypes.c_char]) -> str:
    """Return what the verifier said last that is no count, to be put behind an error."""
    lines = [line.strip() for line in log.value.decode(errors="replace").splitlines()]
    said = [line for line in lines if line and not line.startswith(_COUNTS)]
    return f" (the verifier: {said[-1]})" if said else ""


def _apart(compile_it: Callable[[], _T]) -> _T:
    """Compile on a thread of its own, one at a time: bcc changes the working directory meanwhile, which is
    that thread's alone, so that others may start processes and open files.
    """

    def with_own_directory() -> _T:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_FS) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"have a working directory of its own: {os.strerror(code)}")
        return compile_it()

    with _COMPILING, ThreadPoolExecutor(1, "compile") as thread:
        return thread.submit(with_own_directory).result()


def _heeded(compile_it: Callable[[], _T]) -> _T:
    """Compile, and put clang's first complaint into the error: bcc has it written to the standard error
    alone, where all of it still arrives.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as heard:
        usual = os.dup(2)
        os.dup2(heard.fileno(), 2)
        try:
            return compile_it()
        except Exception as error:
            heard.seek(0)
            said = [
                line for line in heard.read().decode(errors="replace").splitlines() if ": error: " in line
            ]
            raise OSError(said[0] if said else str(error)) from error
        finally:
            os.dup2(usual, 2)
            os.close(usual)
            heard.seek(0)
            os.write(2, heard.read())


def check_layout(layout: MapLayout, key: CType, value: CType) -> None:
    """Raise SettingError unless a map's key and value have the sizes, fields and offsets that are stated."""
    for made, stated in ((key, layout.key), (value, layout.value)):
        if made.size_bytes != stated.itemsize:
            raise SettingError(
                f"map {layout.name}: C has {made.size_bytes} bytes, {layout.stated_in} {stated.itemsize}"
            )
        said = {name: spot[1] for name, spot in (stated.fields or {}).items()}
        if made.fields and made.fields != said:
            raise SettingError(
                f"map {layout.name}: C has the fields {made.fields}, {layout.stated_in} {said}"
            )
