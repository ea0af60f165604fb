"""Compiles and loads bpf/link_faults.c, and keeps its maps: a stage for each direction of a wire, and the
cells for frames held back.

Owns what user space must know of the C side; attaching the program to devices is
testbed/emulation/faults.py's.
"""

from __future__ import annotations

import ctypes
import os
from types import TracebackType
from typing import Any, Self

import numpy as np

from testbed.errors import HostError, SettingError, TestbedError
from testbed.headers import kernel_headers
from testbed.xdp.layout import BPF_DIR
from testbed.xdp.syscall import map_delete, map_lookup, map_update, program_id

PROGRAM, MAPS = "link_fault", ("stages", "cells")
COUNTERS = ("seen", "lost", "duplicated", "held", "released", "corrupted", "crowded", "failed", "merged")
_RATES = ("loss", "duplication", "reordering", "corruption")
_STAGE = np.dtype(
    [
        *((name, "=u8") for name in (*_RATES, "random", "first", "next", *COUNTERS)),
        *((name, "=u4") for name in ("egress", "distance", "cells", "pad")),
    ]
)
_CELL_HEADER_BYTES = 12  # due, length; the frame follows


class FaultProgram:
    """The loaded program, by descriptor. A context manager; leaving it drops program and maps, once no filter
    holds them.
    """

    def __init__(self, longest_frame_bytes: int) -> None:
        os.environ["BCC_KERNEL_SOURCE"] = str(kernel_headers())
        try:
            from bcc import BPF
        except ImportError as error:
            raise HostError(
                f"import bcc: {error}; install Debian's python3-bpfcc (`make setup` does)"
            ) from error
        text = (BPF_DIR / "link_faults.c").read_text()
        try:
            # -w: the kernel's own headers warn under bcc's clang
            self._bpf: Any = BPF(text=text, cflags=["-w", f"-DCELL_BYTES={longest_frame_bytes}"])
            self.fd = int(self._bpf.load_func(PROGRAM, BPF.SCHED_CLS).fd)
        except Exception as error:  # bcc raises nothing narrower
            raise HostError(
                f"load the fault program: {error}; `testbed doctor` says what this host lacks"
            ) from error
        self._stages, self._cells = (int(self._bpf[name].map_fd) for name in MAPS)
        self._cell_bytes = ctypes.sizeof(self._bpf["cells"].Leaf)
        self._made: dict[int, int] = {}  # ifindex -> cells
        made = {
            name: getattr(self._bpf["stages"].Leaf, name).offset
            for name, *_ in self._bpf["stages"].Leaf._fields_
        }
        said = {name: spot[1] for name, spot in (_STAGE.fields or {}).items()}
        if made != said or self._cell_bytes < _CELL_HEADER_BYTES + longest_frame_bytes:
            raise SettingError(
                f"bpf/link_faults.c: a stage has the fields {made}, testbed/xdp/link_faults.py {said}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bpf.cleanup()

    @property
    def kernel_id(self) -> int:
        """The program's number in the kernel, which a filter that runs it reports."""
        return program_id(self.fd)

    def set_stage(
        self,
        ifindex: int,
        egress: int,
        rates: tuple[float, float, float, float],
        distance: int,
        cells: int,
        seed: int,
    ) -> None:
        """Makes a direction's stage, or makes it anew: counters at 0, nothing held.

        `rates` are the shares (0 to 1) of frames lost, copied, held back and corrupted; `seed` is any number
        of 64 bits.
        """
        stage = np.zeros((), _STAGE)
        for name, share in zip(_RATES, rates, strict=True):
            stage[name] = round(share * 2**32)
        stage["random"] = seed or 1
        stage["egress"], stage["distance"], stage["cells"] = egress, distance, cells
        self.drop_stage(ifindex)
        self._made[ifindex] = cells
        for cell in range(cells):
            map_update(self._cells, _cell_key(ifindex, cell), bytes(self._cell_bytes))
        map_update(self._stages, ifindex.to_bytes(4, "little"), stage.tobytes())
        if self._stage(ifindex)["egress"] != egress:
            raise SettingError(f"fault stage of device {ifindex}: what was set reads back different")

    def drop_stage(self, ifindex: int) -> None:
        """Removes a direction's stage, and with it the frames that it holds; nothing if there is none."""
        map_delete(self._stages, ifindex.to_bytes(4, "little"))
        for cell in range(self._made.pop(ifindex, 0)):
            map_delete(self._cells, _cell_key(ifindex, cell))

    def counters(self, ifindex: int) -> dict[str, int]:
        """COUNTERS of a direction since its stage was set."""
        stage = self._stage(ifindex)
        return {name: int(stage[name]) for name in COUNTERS}

    def _stage(self, ifindex: int) -> np.ndarray:
        value = map_lookup(self._stages, ifindex.to_bytes(4, "little"), _STAGE.itemsize)
        if value is None:
            raise TestbedError(f"fault stage of device {ifindex}: there is none")
        stage: np.ndarray = np.frombuffer(value, _STAGE)[0]
        return stage


def _cell_key(ifindex: int, cell: int) -> bytes:
    return ifindex.to_bytes(4, "little") + cell.to_bytes(4, "little")
