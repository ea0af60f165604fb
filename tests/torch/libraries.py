"""Train with a library that does not know `inc`, in the network and by gloo's ring: `python -m
tests.torch.libraries`.

It uses `testbed run --init-group` on four workers in two units. Fails where the library does not train on all
of them, where nothing was summed in the network, or where the parameters differ at the end. Needs root, and
the environment of scripts/install_libraries.py.
"""

from __future__ import annotations

import json
import math
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scripts.install_libraries import LIBRARIES, LIBRARIES_ENVIRONMENT
from tests.privileged.commands import Testbed, command, running
from tests.torch.accelerated import MARK

WORKER = Path(__file__).with_name("accelerated.py")
PLACE, WORKERS = "u1:2,u2:2", 4
LIMIT_S = 120
TOLERANCE = 1e-5  # share of the sum of the parameters' squares: allows for rounding to integers


@dataclass(frozen=True, slots=True)
class End:
    """The end of a job: each worker's output, and the bytes of its sums by the way that carried them."""

    said: list[dict[str, float]]
    bytes_by: dict[str, int]


def trained(testbed: Testbed, sync: str) -> End:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        ended = command(
            *("testbed.run", "--name", testbed.name, "--place", PLACE, "--sync", sync, "--init-group"),
            *("--timeout", f"{LIMIT_S}", "--json", str(result), str(WORKER)),
            env={"PYTHONPATH": str(LIBRARIES_ENVIRONMENT.packages)},
        )
        said = [json.loads(line) for line in re.findall(rf"{MARK}(.*)", ended.stdout)]
        if ended.returncode or not result.exists():
            raise SystemExit(f"--sync {sync}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
        return End(said, json.loads(result.read_text())["bytes_by"])


def judged(inc: End, ring: End) -> list[str]:
    """Return a line for each thing that is wrong."""
    lines = []
    for sync, end in (("inc", inc), ("ring", ring)):
        if [each["workers"] for each in end.said] != [WORKERS] * WORKERS:
            lines.append(f"--sync {sync}: workers say that they are {end.said}")
    if inc.bytes_by.get("packets", 0) <= 0 or ring.bytes_by.get("packets", 0):
        lines.append(f"bytes by way: {inc.bytes_by} with inc, {ring.bytes_by} with the ring")
    squares = [each["squares"] for end in (inc, ring) for each in end.said]
    if not all(math.isclose(each, squares[0], rel_tol=TOLERANCE) for each in squares):
        lines.append(f"parameters end apart: squares {squares}")
    return lines


def main() -> int:
    if not LIBRARIES_ENVIRONMENT.is_whole:
        print("not installed: python3 scripts/install_libraries.py", file=sys.stderr)
        return 3
    with running() as testbed:
        inc, ring = (trained(testbed, sync) for sync in ("inc", "ring"))
    wrong = judged(inc, ring)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    first = inc.said[0] if inc.said else {}
    print(
        f"{', '.join(LIBRARIES)}: {first.get('workers')} workers, {first.get('steps')} steps, "
        f"bytes by way {inc.bytes_by} with inc, {ring.bytes_by} with the ring"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
