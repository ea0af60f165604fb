"""A model that a cgroup does not hold: `python -m tests.privileged.luwu_limited MEMBERS FOLDER node|script`.

Joins the cgroup whose MEMBERS file that is once torch is there, whose pages are then not counted: what the
model takes is. Then it takes as much as the model has, which is its end.
"""

from __future__ import annotations

import mmap
import sys
from pathlib import Path

from tests.unit.luwu_bounded import train, train_by_script

if __name__ == "__main__":
    function = {"node": train, "script": train_by_script}[sys.argv[3]]
    size = function(Path(sys.argv[2]), lambda: Path(sys.argv[1]).write_text("0")).numel * 14
    print(f"trained {size} bytes", flush=True)
    hold = mmap.mmap(-1, size)
    for start in range(0, size, 4096):
        hold[start] = 1
    print("held")
