"""The table of packet vectors on BMv2, in namespaces of its own: `findings(KIND)` outside, `python -m` this
file inside.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from testbed.dataplanes.bmv2.program import compiled
from testbed.emulation.namespaces import private_mounts
from testbed.wire import spec
from tests.privileged.bmv2_aggregator import Spreading, aggregator
from tests.privileged.packets import MARK, outcome
from tests.vectors import blocks, empties, owned, questions, relays, spread
from tests.vectors.run import play
from tests.vectors.table import TABLE

HOSTS = range(1, 65)
MTU = 1500
# vectors of switches whose packets are full, or at least have lanes: BMv2's programs accept no others
AT_SWITCHES = {
    name: vector
    for name, vector in TABLE.items()
    if not vector.is_host
    and vector.lanes == {spec.LANES}
    and name not in blocks.NOT_IN_P4
    and name not in empties.TABLE
    and name not in relays.TABLE
    and name not in questions.TABLE
} | questions.AT_P4


SUM_ALONE = {name: made for name, made in AT_SWITCHES.items() if name not in {*blocks.TABLE, *owned.TABLE}}
KINDS = {  # layout, systems' programs, and vectors of each compiled program
    "wide": ("wide", None, AT_SWITCHES),
    "registers": ("registers", None, AT_SWITCHES),
    "sum alone": ("wide", (), SUM_ALONE),
}
IN_LIGHT = {name: scene for name, scene in spread.TABLE.items() if not scene.in_dark}


def findings(kind: str) -> dict[str, list[str]]:
    """Return, for each vector of a switch, a line for each difference from it."""
    return dict(outcome("tests.privileged.bmv2_vector_run", kind, timeout_s=600))


def main(kind: str) -> None:
    private_mounts("packets")
    wrong = {}
    layout, programs, vectors = KINDS[kind]
    with (
        tempfile.TemporaryDirectory() as log,
        aggregator(compiled(layout, MTU, programs), Path(log), HOSTS) as subject,
    ):
        for name, vector in vectors.items():
            subject.fresh()
            wrong[name] = play(vector, subject) + subject.strays()
        for name, scene in IN_LIGHT.items():
            subject.fresh()
            wrong[name] = spread.play(scene, Spreading(subject))
    print(MARK + json.dumps(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
