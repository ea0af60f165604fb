"""Compiles C by BCC, loads its programs, and compares its maps with what Python says of them.

The one place that knows how BCC is had, which headers it is given and how it fails; the doctor's probe alone,
which must tell a lack of the host's from a fault of ours, asks BCC itself.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

import numpy as np

from testbed.errors import HostError, SettingError
from testbed.probing.headers import kernel_headers

_T = TypeVar("_T")
_CLONE_FS = 0x200
_COMPILING = threading.Lock()


@dataclass(frozen=True, slots=True)
class MapLayout:
    """A map as Python has it: the types of its key and value, and the file that says so."""

    name: str
    key: np.dtype
    value: np.dtype
    stated_in: str


class Table(Protocol):
    """A map as BCC gives it: the ctypes that it made of the C types."""

    Key: Any
    Leaf: Any


class Compiled:
    """A C text's programs and maps, by descriptor. A context manager; leaving it drops the descriptors.

    `what` is its name in errors, such as "the XDP programs"; `programs` are the functions to load, each with
    its kind; they are loaded at once unless `load` says that the caller will. HostError when this host
    cannot, SettingError when C and Python have other types for a map.
    """

    def __init__(
        self,
        what: str,
        text: str,
        programs: Mapping[str, Literal["XDP", "SCHED_CLS"]],
        maps: Iterable[MapLayout] = (),
        flags: Sequence[str] = (),
        load: bool = True,
    ) -> None:
        os.environ["BCC_KERNEL_SOURCE"] = str(kernel_headers())
        try:
            from bcc import BPF
        except ImportError as error:
            raise HostError(
                f"import bcc: {error}; install Debian's python3-bpfcc (`make setup` does)"
            ) from error
        self.bpf: Any = None
        self._what, self._programs = what, programs
        try:
            # -w: the kernel's own headers warn under bcc's clang
            self.bpf = _apart(lambda: BPF(text=text, cflags=["-w", *flags]))
        except Exception as error:  # bcc raises nothing narrower
            raise self._unable(error) from error
        if load:
            self.load()
        try:
            for layout in maps:
                check_layout(layout, self.bpf[layout.name])
        except SettingError:
            self.close()
            raise

    def load(self) -> None:
        """Load the programs, which the kernel's verifier may take a second for. Any thread may, while others
        work.
        """
        try:
            self.functions = {
                name: self.bpf.load_func(name, getattr(self.bpf, kind))
                for name, kind in self._programs.items()
            }
        except Exception as error:  # bcc raises nothing narrower
            self.close()
            raise self._unable(error) from error

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
        if self.bpf is not None:
            self.bpf.cleanup()

    def map_fd(self, name: str) -> int:
        """Return the descriptor of a map."""
        return int(self.bpf[name].map_fd)

    def program_fd(self, name: str) -> int:
        """Return the descriptor of one of the programs."""
        return int(self.functions[name].fd)


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


def check_layout(layout: MapLayout, table: Table) -> None:
    """Raise SettingError unless a map's key and value have the sizes, fields and offsets that are stated."""
    for made, stated in ((table.Key, layout.key), (table.Leaf, layout.value)):
        if ctypes.sizeof(made) != stated.itemsize:
            raise SettingError(
                f"map {layout.name}: C has {ctypes.sizeof(made)} bytes, {layout.stated_in} {stated.itemsize}"
            )
        fields = {field[0]: getattr(made, field[0]).offset for field in getattr(made, "_fields_", [])}
        named = {name: offset for name, offset in fields.items() if not name.startswith("__")}  # no padding
        said = {name: spot[1] for name, spot in (stated.fields or {}).items()}
        if fields and named != said:
            raise SettingError(f"map {layout.name}: C has the fields {fields}, {layout.stated_in} {said}")
