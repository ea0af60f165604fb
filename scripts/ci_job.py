#!/usr/bin/python3
"""Run one job on a testbed of its own: up, run, down. A CI step runs this in the testbed's container.

`scripts/ci_job.py [--config FILE] [--results DIR] -- [OPTIONS of testbed run] SCRIPT [ARGUMENTS]`. Writes the
result, its samples and the workers' logs to DIR. Exits with the exit code of `testbed run`. Imports only the
standard library.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
TESTBED = CHECKOUT / ".venv" / "bin" / "testbed"
NAME = "ci"


def testbed(command: str, *arguments: str) -> int:
    """Run a command of the testbed named NAME, with this process's output, and return its exit code."""
    return subprocess.run([str(TESTBED), command, "--name", NAME, *arguments], check=False).returncode


def main(argv: Sequence[str]) -> int:
    at = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        usage="%(prog)s [--config FILE] [--results DIR] -- JOB...",
    )
    parser.add_argument("--config", default="default", help="a ready configuration or a file")
    parser.add_argument(
        "--results", type=Path, default=Path("testbed-results"), help="folder for what the job leaves"
    )
    options, job = parser.parse_args(argv[:at]), argv[at + 1 :]
    if not job:
        parser.error(
            "no job; after -- come what `testbed run` takes: its options, a script and its arguments"
        )
    options.results.mkdir(parents=True, exist_ok=True)
    if code := testbed("up", "--config", options.config, "--detach"):
        return code
    try:
        kept = ["--json", str(options.results / "result.json"), "--logs", str(options.results / "logs")]
        return testbed("run", *kept, *job)
    finally:
        testbed("down")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
