"""FSDP with states on disks, as compared.py times it, of one worker: it learns what FSDP does, and each
layer's gradients are handed to the disk before the backward pass is over.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.limits import CALL_S

SCRIPT = """\
import json, sys
from pathlib import Path
from workloads.luwu.jobs import compared, schemes
from workloads.luwu.transport import Local

seen = []
push = Local.push
Local.push = lambda self, layer, *rest: (seen.append(layer), push(self, layer, *rest))[1]
backward = schemes.OnDisks.backward
def watched(self, loss):
    backward(self, loss)
    seen.append("over")
schemes.OnDisks.backward = watched
folder = Path(sys.argv[1])
losses = {}
for scheme in ("fsdp", "fsdp-disks"):
    out = folder / scheme
    (folder / "states").mkdir(exist_ok=True)
    sys.argv = ["", "--scheme", scheme, "--states", str(folder / "states"), "--out", str(out), "--steps", "2"]
    assert compared.main() == 0
    losses[scheme] = json.loads(Path(f"{out}.0").read_text())["losses"]
print(json.dumps({"losses": losses, "seen": seen}))
"""


def test_states_on_disks_train_alike_and_gradients_go_there_in_the_backward_pass(
    tmp_path: Path,
) -> None:
    here = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
    here["GLOO_SOCKET_IFNAME"] = "lo"
    argv = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(
        argv, env={**os.environ, **here}, capture_output=True, text=True, check=False, timeout=CALL_S
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert len(said["losses"]["fsdp"]) == 4  # two of them before what counts
    assert said["losses"]["fsdp"] == said["losses"]["fsdp-disks"]
    layers = said["seen"].index("over")
    assert layers > 4  # the blocks, and what is around them
    for begin in range(0, len(said["seen"]), layers + 1):
        passed = said["seen"][begin : begin + layers + 1]
        assert sorted(passed[:-1]) == list(range(layers))
        assert passed[-1] == "over"
