"""A BPF program at the ingress of wires' inner ends, with a map that holds a record for each end.

The common part of link_marks.py, link_faults.py and link_apart.py. testbed/emulation/ attaches such programs
to devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from testbed.dataplanes.xdp.compiled import Compiled, MapLayout
from testbed.dataplanes.xdp.layout import BPF_DIR
from testbed.dataplanes.xdp.program import source as with_includes
from testbed.dataplanes.xdp.syscall import map_delete, map_lookup, map_update, program_id, u32
from testbed.errors import SettingError, TestbedError


class LinkProgram:
    """The loaded program, by descriptor. A context manager; leaving it releases program and maps, which end
    once no filter holds them.

    `source` is a file of bpf/, `records` its map by ifindex; `what` names such a record in errors.
    """

    def __init__(
        self, what: str, source: str, program: str, records: MapLayout, flags: Sequence[str] = ()
    ) -> None:
        self._what, self._record = what, records.value
        self._compiled = Compiled(
            f"bpf/{source}",
            with_includes(BPF_DIR / source),
            {program: "SCHED_CLS"},
            [records],
            flags,
        )
        self.fd = self._compiled.program_fd(program)
        self._records = self._compiled.map_fd(records.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._compiled.close()

    @property
    def kernel_id(self) -> int:
        """The program's id in the kernel, which a filter that runs it reports."""
        return program_id(self.fd)

    def _set(
        self, ifindex: int, settings: Mapping[str, int], begins: Mapping[str, int] | None = None
    ) -> None:
        """Replace a device's record. SettingError if `settings` read back different. `begins`, and the other
        fields (0), may already have been changed by the program.
        """
        record = np.zeros((), self._record)
        for name, value in {**settings, **(begins or {})}.items():
            record[name] = value
        map_update(self._records, u32(ifindex), record.tobytes())
        held = self._get(ifindex)
        if any(int(held[name]) != value for name, value in settings.items()):
            raise SettingError(f"{self._what} of device {ifindex}: what was set reads back different")

    def _get(self, ifindex: int) -> Any:
        """Return a device's record. TestbedError if it has none."""
        value = map_lookup(self._records, u32(ifindex), self._record.itemsize)
        if value is None:
            raise TestbedError(f"{self._what} of device {ifindex}: there is none")
        return np.frombuffer(value, self._record)[0]

    def _drop(self, ifindex: int) -> None:
        map_delete(self._records, u32(ifindex))
