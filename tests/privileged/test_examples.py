"""Each program of examples/, run as its page says: it ends well, prints what its docstring promises, and
leaves nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import CALL_S
from tests.privileged.commands import ROOT, environment
from tests.promises import promised

pytestmark = pytest.mark.needs("namespaces", "xdp", "ovs")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.stem)
def test_an_example(program: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, str(program.relative_to(ROOT))],
        cwd=ROOT,
        env=environment({"OPTINC_RUNS": str(tmp_path / "runs"), "TMPDIR": str(tmp_path)}),
        capture_output=True,
        text=True,
        timeout=CALL_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    missing = [pattern for pattern in promised(program.read_text()) if not re.search(pattern, ended.stdout)]
    assert not missing, f"{missing} of:\n{ended.stdout}"
