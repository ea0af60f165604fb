"""Make an environment with another torch, `.venv-torch-VERSION` of this checkout: `python3
scripts/install_torch.py VERSION`; `make test-torch TORCH=VERSION` runs it.

It has that torch and its dependencies; all other packages come from set-up's environment. Idempotent; imports
nothing outside the standard library. Exit codes are those of scripts/installing.py.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a file: make `scripts` and `testbed` importable
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.installing import (
    CACHE,
    CHECKOUT,
    ENVIRONMENT,
    Environment,
    SetupError,
    ended,
    give_to_owner,
    one_at_a_time,
    output_of,
    run_logged,
    say,
)
from testbed.client.environment import TORCH_VENV


def install_torch(version: str) -> None:
    if not ENVIRONMENT.is_whole:
        raise SetupError("set up this checkout first: sudo make setup", 3)
    environment = Environment(CHECKOUT / f"{TORCH_VENV}{version}")
    fingerprint = f"torch {version} over {ENVIRONMENT.folder}"
    with one_at_a_time():
        if environment.is_made_of(fingerprint):
            say(f"torch {version}: nothing is missing")
        else:
            environment.make_over(ENVIRONMENT, CACHE / "torch-venv.log")
            environment.pip_install(f"torch {version}", CACHE / "torch-pip.log", f"torch=={version}")
            environment.complete(fingerprint)
        installed = output_of(str(environment.python), "-c", "import torch; print(torch.__version__)")
        if installed.partition("+")[0] != version:
            raise SetupError(f"{environment.folder.name} has torch {installed}; remove it and try again", 1)
        run_logged(
            f"the backend inc for torch {installed}",
            [str(environment.python), "-m", "workloads.native.build"],
            CACHE / "torch-backend.log",
        )
        give_to_owner()


def main(argv: Sequence[str]) -> int:
    if len(argv) != 1:
        print("usage: python3 scripts/install_torch.py VERSION, such as 2.12.1", file=sys.stderr)
        return 2
    return ended(lambda: install_torch(argv[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
