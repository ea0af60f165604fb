"""The reference model and BMv2 in step, in namespaces of their own: `findings(TRIED)` outside, `python -m`
this file inside.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.dataplanes.bmv2.program import compiled
from testbed.emulation.namespaces import private_mounts
from tests.privileged.bmv2_aggregator import Bmv2Aggregator, aggregator
from tests.privileged.packets import MARK, outcome
from tests.vectors import owned_fuzz
from tests.vectors.in_step import Trial

HOSTS = range(1, 10)
MTU = 1500
EXAMPLES, MUTATIONS, SEED = 10, 4000, 5


def findings(
    tried: str, examples: int = EXAMPLES, frames: int = MUTATIONS, seed: int = SEED, timeout_s: float = 600
) -> dict[str, int]:
    """Return how often each verdict was given in a method of Trial, or (`owned`) for packets of owned trees;
    `mutated` and `owned` use `frames` and `seed`.
    """
    words = [tried, *map(str, (examples, frames, seed))]
    return dict(outcome("tests.privileged.bmv2_model_run", *words, timeout_s=timeout_s))


def main(tried: str, examples: str, frames: str, seed: str) -> None:
    private_mounts("packets")
    program = compiled("wide", MTU)
    with (
        tempfile.TemporaryDirectory() as log,
        aggregator(program, Path(log), HOSTS) as first,
        aggregator(program, Path(log), HOSTS, unit=2) as second,
        aggregator(program, Path(log), HOSTS, unit=3) as third,
    ):

        @contextmanager
        def make(node: int, is_host: bool) -> Iterator[Bmv2Aggregator]:
            assert not is_host
            subject = (first, second, third)[node]
            subject.fresh()
            yield subject
            assert subject.strays() == []

        trial = Trial(make, False, int(examples), ("final", "partial", "middle"), takes_empties=False)
        if tried == "owned":
            first.fresh()
            findings = owned_fuzz.switch(first, int(seed), int(frames), is_p4=True)
            assert not findings.differences, "\n".join(findings.differences)
            assert first.strays() == []
            counts = findings.verdicts
        else:
            counts = trial.mutated(int(frames), int(seed)) if tried == "mutated" else getattr(trial, tried)()
    print(MARK + json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
