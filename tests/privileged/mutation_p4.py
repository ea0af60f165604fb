"""The tests of the P4 program for a planted bug: the vectors on BMv2, and, in step with the model, schedules,
jobs by block records and packets of owned trees.

The program is compiled if the bug is in it.
"""

from __future__ import annotations

from testbed.dataplanes.bmv2 import compile as p4_compile
from testbed.wire import spec
from tests.privileged import bmv2_model_run, bmv2_vector_run

EXAMPLES, OWNED_PACKETS = 3, 1500


def findings() -> dict[str, str]:
    """Return by kind of test a line on the failure, or "" where the test passed. Raises an error where the
    program does not compile.
    """
    lanes = spec.lanes_for(bmv2_vector_run.MTU)
    program = "wide", p4_compile.systems_named(None), lanes
    compiled = p4_compile.target(*program)
    if p4_compile.recorded_hash(compiled) != p4_compile.sources_hash(*program):
        compiled.write_text(p4_compile.compile_program(*program))
    wrong = {name: lines for name, lines in bmv2_vector_run.findings("wide").items() if lines}
    said = {"vectors": f"{len(wrong)}, as {next(iter(wrong))!r}" if wrong else "", "in step": ""}
    try:
        bmv2_model_run.findings("schedules", EXAMPLES)
        bmv2_model_run.findings("blocks", EXAMPLES)
        bmv2_model_run.findings("owned", frames=OWNED_PACKETS)
    except AssertionError as error:
        said["in step"] = next(
            (line for line in str(error).splitlines() if "AssertionError" in line), "failed"
        )
    return said
