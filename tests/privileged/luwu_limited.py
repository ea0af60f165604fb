"""A model that is too large for a cgroup: `python -m tests.privileged.luwu_limited MEMBERS FOLDER
node|script`.

It joins the cgroup with this MEMBERS file after torch is loaded, so that torch's pages do not count but the
model's do. Then it allocates as much memory as the model has, at which the kernel must kill it.
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
