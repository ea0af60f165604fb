"""The socket programs that XDP is compared with: traffic.c, compiled for this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from testbed.errors import HostError

HERE = Path(__file__).parent


def compiled(folder: Path, lanes: int) -> Path:
    """Compile the program into `folder`, and return its path. HostError where there is no C compiler or
    it fails.
    """
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        raise HostError(f"no C compiler {compiler!r}; install Debian's gcc (`make setup` does), or set CC")
    program = folder / "traffic"
    flags = ["-O3", "-march=native", "-pthread", f"-DLANES={lanes}"]
    argv = [compiler, *flags, "-o", str(program), str(HERE / "traffic.c")]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise HostError(f"compile traffic.c: {(ended.stderr.strip() or 'no reason given').splitlines()[0]}")
    return program
