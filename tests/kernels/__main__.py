"""`python -m tests.kernels`: the testbed on Debian's kernels, each on an emulated machine of its own.

    python -m tests.kernels                       what the gate runs: the short form on Debian 12's kernel
    python -m tests.kernels --long                the long form, on each of the suites' kernels
    python -m tests.kernels .venv/bin/testbed doctor    a command of yours on Debian 12's kernel

Needs root and qemu-system-x86 (`make test` installs it). Exit code: that of the last command that failed.
"""

from __future__ import annotations

import argparse
import platform
import sys

from tests.kernels.machine import SUITES, MachineError, fetched, run

SHORT_S, LONG_S = 900.0, 10_800.0
FORM = (".venv/bin/python", "-m", "tests.kernels.form")


def compile_ahead(is_long: bool) -> None:
    """Compile on this host, in seconds, what an emulated processor would take minutes for."""
    from testbed.dataplanes.xdp.program import Programs
    from testbed.plugins.registry import sources
    from testbed.wire.spec import lanes_for
    from tests.kernels.form import MTUS
    from tests.privileged.observed import text

    for mtu in MTUS:
        Programs(sources("xdp"), lanes_for(mtu)).close()
    if is_long:
        Programs(sources("xdp"), text=text()).close()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kernels", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--suite", action="append", choices=SUITES, help="whose kernel (bookworm; with --long: all)"
    )
    parser.add_argument("--long", action="store_true", help="all that is tried: two hours a kernel")
    parser.add_argument("--fetch", action="store_true", help="fetch the kernels, and run nothing")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="in the place of the form")
    options = parser.parse_args(arguments)
    suites = options.suite or (list(SUITES) if options.long else ["bookworm"])
    argv = options.command or [*FORM, *(["--long"] if options.long else [])]
    failed = 0
    if platform.machine() != "x86_64":
        print(f"tests.kernels: there is none for {platform.machine()}; x86_64 is emulated", file=sys.stderr)
        return 0 if options.fetch else 3
    try:
        kernels = {suite: fetched(suite) for suite in suites}
        if options.fetch:
            return 0
        compile_ahead(options.long)
        for suite, kernel in kernels.items():
            print(f"kernel {kernel.release} ({SUITES[suite]}): {' '.join(argv)}", flush=True)
            failed = run(kernel, argv, LONG_S if options.long or options.command else SHORT_S) or failed
    except MachineError as error:
        print(f"tests.kernels: {error}", file=sys.stderr)
        return 3
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
