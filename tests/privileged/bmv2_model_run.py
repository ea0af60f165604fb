"""The reference model and BMv2 in step. Inside namespaces of its own: `found()` outside, `python -m` this file inside."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.bmv2.program import compiled
from testbed.emulation.namespaces import private_mounts
from tests.privileged.bmv2_aggregator import Bmv2Aggregator, aggregator
from tests.privileged.packets import MARK, outcome
from tests.vectors.in_step import Trial

HOSTS = range(1, 10)
MTU = 1500
EXAMPLES, MUTATIONS = 10, 3500


def found() -> dict[str, dict[str, int]]:
    """By what was tried, how often each verdict was given."""
    return dict(outcome("tests.privileged.bmv2_model_run", timeout_s=300))


def main() -> None:
    private_mounts("packets")
    program = compiled("wide", MTU)
    with (
        tempfile.TemporaryDirectory() as log,
        aggregator(program, Path(log), HOSTS) as first,
        aggregator(program, Path(log), HOSTS, unit=2) as second,
    ):

        @contextmanager
        def make(node: int, is_host: bool) -> Iterator[Bmv2Aggregator]:
            assert not is_host
            engine = (first, second)[node]
            engine.fresh()
            yield engine

        trial = Trial(make, True, EXAMPLES, ("final", "partial"))
        tried = {"worlds": trial.worlds(), "schedules": trial.schedules(), "mutations": trial.mutated(MUTATIONS)}
    print(MARK + json.dumps(tried))


if __name__ == "__main__":
    main()
