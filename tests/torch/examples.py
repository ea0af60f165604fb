"""Run the distributed examples of a checkout of pytorch/examples, by `inc` and by gloo: `python -m
tests.torch.examples CHECKOUT [NAME...]`.

They run unchanged, with the CPU in place of the GPUs that they ask for (tests/torch/example.py). Fails where
an example works by gloo and not by inc, or ends with other parameters. Needs root.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.privileged.commands import Testbed, command, running
from tests.torch.example import MARK

WORKER = Path(__file__).with_name("example.py")
LIMIT_S = 500.0
# share of the norm of all parameters: allows for rounding to integers, over some ten steps of an optimizer
# that divides by the gradients' size
TOLERANCE = 1e-3
TWO, FOUR = "u1:2", "u1:2,u2:2"
# unshaped, since results are compared and not speed: one example gathers 262 MB of output in each step
CONFIG = """\
units: [{hosts: 2}, {hosts: 2}, {kind: cpu, hosts: 1}]
host_rate_mbps: unshaped
optical_rate_mbps: unshaped
"""


@dataclass(frozen=True, slots=True)
class Example:
    """A script below the checkout's folder `distributed`, its arguments and the placement of its workers."""

    script: str
    place: str
    arguments: tuple[str, ...] = ()


EXAMPLES = {
    "ddp": Example("ddp/example.py", TWO),
    "ddp-tutorial": Example("ddp-tutorial-series/multigpu_torchrun.py", FOUR, ("3", "2")),
    "ddp-multinode": Example("ddp-tutorial-series/multinode.py", FOUR, ("3", "2")),
    "minGPT": Example(
        "minGPT-ddp/mingpt/main.py",
        TWO,
        (
            *("gpt_config.n_layer=2", "gpt_config.n_head=4", "gpt_config.n_embd=128"),
            *("data_config.path={folder}/data/input.txt", "data_config.truncate=0.004"),
            *("data_config.block_size=64", "trainer_config.data_loader_workers=0"),
            *("trainer_config.max_epochs=2", "trainer_config.batch_size=32", "trainer_config.use_amp=False"),
        ),
    ),
    "tensor-parallel": Example("tensor_parallelism/tensor_parallel_example.py", FOUR),
    "sequence-parallel": Example("tensor_parallelism/sequence_parallel_example.py", FOUR),
    "fsdp-tp": Example("tensor_parallelism/fsdp_tp_example.py", FOUR),
    "FSDP2": Example("FSDP2/example.py", FOUR),
    "FSDP2-mixed": Example("FSDP2/example.py", FOUR, ("--mixed-precision", "--explicit-prefetching")),
}


@dataclass(frozen=True, slots=True)
class End:
    """The end of an example: seconds and steps of its first worker, and the norm of the parameters of all
    workers; or its error.
    """

    seconds: float
    steps: int
    norm: float
    bytes_by: dict[str, int]
    error: str = ""


def run(testbed: Testbed, backend: str, example: Example, checkout: Path, folder: Path) -> End:
    script = checkout / "distributed" / example.script
    arguments = [word.format(folder=script.parent) for word in example.arguments]
    result = folder / f"{backend}.json"
    ended = command(
        *("testbed.run", "--name", testbed.name, "--place", example.place, "--timeout", str(LIMIT_S)),
        *("--json", str(result), str(WORKER), backend, str(folder), str(script), *arguments),
        timeout_s=LIMIT_S + 60,
    )
    said = [json.loads(line) for line in re.findall(rf"\] {MARK}(.*)", ended.stdout)]
    if ended.returncode or not said:
        lines = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
        return End(0.0, 0, 0.0, {}, " | ".join(lines[-6:])[-700:])
    ways = json.loads(result.read_text())["bytes_by"]
    first = next(each for each in said if each["rank"] == 0)
    return End(first["seconds"], first["steps"], math.sqrt(math.fsum(each["squares"] for each in said)), ways)


def judged(inc: End, gloo: End) -> str:
    """Return what is wrong, or ""."""
    if gloo.error:
        return f"fails by gloo: {gloo.error}"
    if inc.error:
        return f"fails by inc: {inc.error}"
    if inc.steps != gloo.steps:
        return f"{inc.steps} steps by inc, {gloo.steps} by gloo"
    if not math.isclose(inc.norm, gloo.norm, rel_tol=TOLERANCE):
        return f"ends at {inc.norm:.6g} by inc, {gloo.norm:.6g} by gloo"
    return ""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torch.examples", description=__doc__)
    parser.add_argument("checkout", type=Path, help="of pytorch/examples")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXAMPLES)} (all)")
    options = parser.parse_args(argv)
    if unknown := set(options.names) - set(EXAMPLES):
        parser.error(f"no such example: {', '.join(sorted(unknown))}")
    checkout = options.checkout.resolve()
    with tempfile.TemporaryDirectory(prefix="optinc-examples-") as place:
        config = Path(place) / "units.yaml"
        config.write_text(CONFIG)
        wrong = compared(checkout, options.names or list(EXAMPLES), config)
    return 1 if wrong else 0


def compared(checkout: Path, names: Sequence[str], config: Path) -> int:
    """Run examples on a testbed, print how each ended, and return how many are wrong."""
    wrong = 0
    with running(str(config)) as testbed:
        for name in names:
            ends = {}
            for backend in ("inc", "gloo"):
                with tempfile.TemporaryDirectory(prefix="optinc-example-") as folder:
                    ends[backend] = run(testbed, backend, EXAMPLES[name], checkout, Path(folder))
            inc, gloo = ends["inc"], ends["gloo"]
            problem = judged(inc, gloo)
            wrong += bool(problem)
            apart = abs(inc.norm / gloo.norm - 1) if gloo.norm else 0.0
            print(
                f"{name}: {problem or 'as by gloo'}; {gloo.steps} steps, {inc.seconds:.1f} s by inc, "
                f"{gloo.seconds:.1f} s by gloo; norms {apart:.1e} apart; bytes {inc.bytes_by}",
                flush=True,
            )
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
