"""The program of bpf/link_faults.c, loaded, and its maps: a stage for each direction of a wire, and the cells
for held frames.

testbed/wire/links.py has the records that both sides share; testbed/emulation/faults.py attaches the program
to devices.
"""

from __future__ import annotations

from testbed.dataplanes.xdp.compiled import MapLayout
from testbed.dataplanes.xdp.layout import DEVICE
from testbed.dataplanes.xdp.link_program import LinkProgram
from testbed.dataplanes.xdp.syscall import map_delete, map_update, u32
from testbed.errors import SettingError
from testbed.wire import links

PROGRAM, MAPS = "link_fault", ("stages", "cells", "recirculated")
COUNTERS = tuple(counter.name for counter in links.FAULT_COUNTERS)
_STAGE = links.STAGE.dtype()


class FaultProgram(LinkProgram):
    """The fault program, with a stage for each direction and the cells of each stage."""

    def __init__(self, longest_frame_bytes: int) -> None:
        stages = MapLayout(MAPS[0], DEVICE, _STAGE, "testbed/wire/links.py")
        flags = [f"-DCELL_BYTES={longest_frame_bytes}"]
        super().__init__("fault stage", "link_faults.c", PROGRAM, stages, flags)
        self._cells = self._compiled.map_fd(MAPS[1])
        self._recirculated = self._compiled.map_fd(MAPS[2])
        self._cell_bytes = self._compiled.value_bytes(MAPS[1])
        self._made: dict[int, int] = {}  # ifindex -> cells
        if self._cell_bytes < links.CELL.offset("frame") + longest_frame_bytes:
            self._compiled.close()
            raise SettingError(
                f"bpf/link_faults.c: a cell has {self._cell_bytes} bytes, too few for a frame of "
                f"{longest_frame_bytes}"
            )

    def set_stage(
        self,
        ifindex: int,
        egress: int,
        rates: tuple[float, float, float, float],
        distance: int,
        cells: int,
        seed: int,
    ) -> None:
        """Make or replace a direction's stage: counters at 0, no frames held.

        `rates` are the shares (0 to 1) of frames lost, duplicated, held and corrupted; `seed` is any 64-bit
        number.
        """
        settings = {name: round(share * 2**32) for name, share in zip(links.FAULT_RATES, rates, strict=True)}
        self.drop_stage(ifindex)
        self._made[ifindex] = cells
        try:
            for cell in range(cells):
                map_update(self._cells, _cell_key(ifindex, cell), bytes(self._cell_bytes))
            self._set(
                ifindex,
                {**settings, "egress": egress, "distance": distance, "cells": cells},
                begins={"random": seed or 1},
            )
        except BaseException:
            self.drop_stage(ifindex)
            raise

    def recirculate(self, ifindex: int, is_delayed: bool) -> None:
        """Let copies of frames that arrive at a device come in there once more, for the program that delays
        them, or let them leave at once.
        """
        if is_delayed:
            map_update(self._recirculated, u32(ifindex), u32(1))
        else:
            map_delete(self._recirculated, u32(ifindex))

    def drop_stage(self, ifindex: int) -> None:
        """Remove a direction's stage, and with it the frames that it holds; do nothing if there is none."""
        self._drop(ifindex)
        for cell in range(self._made.pop(ifindex, 0)):
            map_delete(self._cells, _cell_key(ifindex, cell))

    def counters(self, ifindex: int) -> dict[str, int]:
        """Return the COUNTERS of a direction since its stage was set."""
        stage = self._get(ifindex)
        return {name: int(stage[name]) for name in COUNTERS}


def _cell_key(ifindex: int, cell: int) -> bytes:
    return u32(ifindex) + u32(cell)
