"""Compile C with BCC, load its programs, and check its maps against Python's types.

The one module that knows how to import BCC, which headers to give it and how it fails. Only the doctor's
probe, which must distinguish a host's lack from our error, uses BCC itself.
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
_LOG_BYTES = 1 << 24  # the verifier's log; of a longer one it keeps the end
_COUNTS = ("processed ", "verification time", "stack depth")
_COMPILING = threading.Lock()


@dataclass(frozen=True, slots=True)
class MapLayout:
    """A map's types in Python: its key and value, and the file that states them."""

    name: str
    key: np.dtype
    value: np.dtype
    stated_in: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """A program in the kernel, by descriptor."""

    fd: int


class Compiled:
    """A C text's programs and maps, by descriptor. A context manager; leaving it closes the descriptors.

    BCC compiles; bpf(2) makes the maps and loads the programs, so that all maps are of one kind: a map made
    by BCC has type information (BTF), and before Linux 6.2 it accepts no map that bpf(2) made without BTF as
    its replacement as an inner map. Earlier results are loaded from a folder
    (testbed/dataplanes/xdp/objects.py).

    `what` names the text in errors, such as "the XDP programs"; `programs` are the functions to load, each
    with its kind; they are loaded at once unless `load` is False. HostError if this host cannot, SettingError
    if C and Python have different types for a map.
    """

    _at_once = os.cpu_count() or 1  # programs loaded in parallel

    def __init__(
        self,
        what: str,
        text: str,
        programs: Mapping[str, Kind],
        maps: Iterable[MapLayout] = (),
        flags: Sequence[str] = (),
        load: bool = True,
    ) -> None:
        self.functions: dict[str, Loaded] = {}
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
        # the running kernel is not part of the key: BCC takes types from the headers, and the verifier checks
        # the rest
        cores = Path("/sys/devices/system/cpu/possible").read_text()  # per-CPU maps have a value for each
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
        """Compile with BCC, which also makes maps of its own."""
        from bcc import BPF

        os.environ["BCC_KERNEL_SOURCE"] = str(self._headers)
        # -w: the kernel's own headers warn under bcc's clang
        return _apart(lambda: _heeded(lambda: BPF(text=self._text, cflags=["-w", *self._flags])))

    def load(self, names: Collection[str] | None = None) -> None:
        """Load programs (None: all), as many in parallel as there are processors: the verifier may take a
        second for each. Thread-safe. HostError if the kernel refuses.
        """

        def load(name: str) -> None:
            self.functions[name] = self.loaded(name)

        try:
            with ThreadPoolExecutor(self._at_once, "verify") as verifiers:
                list(verifiers.map(load, self._programs if names is None else names))
        except Exception as error:  # bcc raises nothing narrower
            raise self._unable(error) from error

    def loaded(self, name: str) -> Loaded:
        """Load a program, even if it is loaded already, over the existing maps."""
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
        """Close the descriptors."""
        for fd in (*self._fds.values(), *(each.fd for each in self.functions.values())):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._fds, self.functions = {}, {}

    def map_fd(self, name: str) -> int:
        """Return the descriptor of a map."""
        return self._fds[name]

    def program_fd(self, name: str) -> int:
        """Return the descriptor of one of the programs."""
        return self.functions[name].fd

    def value_bytes(self, name: str) -> int:
        """Return the size of a map's values."""
        return self._shapes(name)[1].size_bytes

    def _shapes(self, name: str) -> tuple[CType, CType]:
        """Return a map's key and value types in C."""
        for each in self._objects.maps:
            if each.name == name:
                return each.key, each.value
        raise SettingError(f"map {name}: its program has a record for it, and its C source no such map")


class CompiledTables(Compiled):
    """A text with maps made by BCC, whose object `bpf` has tables by name: for figures and benchmarks that
    read many of them. No map of maps is allowed.
    """

    bpf: Any
    _at_once = 1

    def _make_maps(self, bcc_version: str) -> None:
        self.bpf = self._compile()

    def loaded(self, name: str) -> Loaded:
        """Load a program, even if it is loaded already, over the existing maps."""
        self.bpf.funcs.pop(name.encode(), None)  # otherwise bcc returns the loaded one
        function: Loaded = self.bpf.load_func(name, getattr(self.bpf, self._programs[name]))
        return function

    def close(self) -> None:
        """Close the descriptors."""
        self.bpf.cleanup()

    def map_fd(self, name: str) -> int:
        """Return the descriptor of a map."""
        return int(self.bpf[name].map_fd)

    def _shapes(self, name: str) -> tuple[CType, CType]:
        return CType.of(self.bpf[name].Key), CType.of(self.bpf[name].Leaf)


def _load(name: str, kind: Kind, instructions: bytes, license: bytes) -> int:
    """Load a program with BCC's library; return its descriptor. OSError if the kernel refuses."""
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
    if code in (
        errno.EINVAL,
        errno.EACCES,
        errno.E2BIG,
    ):  # the verifier's errors; it gives the reason if asked
        log = ctypes.create_string_buffer(_LOG_BYTES)
        fd = load(log)
        if fd >= 0:
            return fd
        why = _why(log)
    raise OSError(code, f"load program {name}: {os.strerror(code)}{why}")


def _why(log: ctypes.Array[ctypes.c_char]) -> str:
    """Return the verifier's last line that is no statistic, as a suffix for an error."""
    lines = [line.strip() for line in log.value.decode(errors="replace").splitlines()]
    said = [line for line in lines if line and not line.startswith(_COUNTS)]
    return f" (the verifier: {said[-1]})" if said else ""


def _apart(compile_it: Callable[[], _T]) -> _T:
    """Compile on a thread with a working directory of its own, one at a time: bcc changes the directory
    meanwhile, and other threads must be able to start processes and open files.
    """

    def with_own_directory() -> _T:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_FS) != 0:
            code = ctypes.get_errno()
            raise OSError(code, f"have a working directory of its own: {os.strerror(code)}")
        return compile_it()

    with _COMPILING, ThreadPoolExecutor(1, "compile") as thread:
        return thread.submit(with_own_directory).result()


def _heeded(compile_it: Callable[[], _T]) -> _T:
    """Compile, and put clang's first error into the exception: bcc writes it only to standard error, where
    all of it still appears.
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
    """Raise SettingError unless a map's key and value have the stated sizes, fields and offsets."""
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
