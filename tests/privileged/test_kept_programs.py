"""Programs that were compiled before are had from a folder, and do as those that BCC has just made."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from testbed.dataplanes.xdp import compiled
from testbed.dataplanes.xdp.compiled import Compiled, MapLayout
from testbed.dataplanes.xdp.layout import BPF_DIR
from testbed.dataplanes.xdp.syscall import XDP_PASS, map_lookup, run, u32
from testbed.errors import SettingError

pytestmark = [pytest.mark.needs("xdp"), pytest.mark.filterwarnings("ignore:not a bytes object")]  # BCC's

FRAME = bytes(200)
LONGEST = MapLayout("longest", np.dtype("=u4"), np.dtype("=u8"), "here.py")


def probe(*maps: MapLayout) -> Compiled:
    text = (BPF_DIR / "doctor_probe.c").read_text()
    return Compiled("the probe", text, {"measure": "XDP", "take": "XDP"}, maps)


def test_a_text_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "cache_folder", lambda: tmp_path)
    with probe(LONGEST) as first, probe(LONGEST) as again:
        assert (first.was_kept, again.was_kept) == (False, True)
        for each in (first, again):
            assert run(each.program_fd("measure"), FRAME)[0] == XDP_PASS
            assert map_lookup(each.map_fd("longest"), u32(0), 8) == len(FRAME).to_bytes(8, "little")
            assert run(each.loaded("measure").fd, FRAME + FRAME)[0] == XDP_PASS, "loaded over the same maps"
            assert map_lookup(each.map_fd("longest"), u32(0), 8) == (2 * len(FRAME)).to_bytes(8, "little")
    with pytest.raises(SettingError, match=r"^map longest: C has 8 bytes, here\.py 4$"):
        probe(MapLayout("longest", np.dtype("=u4"), np.dtype("=u4"), "here.py"))
    (file,) = (tmp_path / "xdp").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    with probe(LONGEST) as once_more:
        assert not once_more.was_kept
