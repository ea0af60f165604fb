"""`testbed systems`: the aggregation systems by name, and what each needs."""

from __future__ import annotations

import argparse

from testbed.aggregation.registry import systems
from testbed.aggregation.system import System


def main(argv: list[str]) -> int:
    """The exit code; see testbed/errors.py."""
    parser = argparse.ArgumentParser(
        prog="testbed systems",
        description="List the aggregation systems that `run --sync` and `sync:` in a file of jobs take, "
        "and what each needs. A system of your own is FILE.py:CLASS (docs/your-own-system.md).",
    )
    parser.parse_args(argv)
    width = max(map(len, systems()))
    for name, system in systems().items():
        print(f"{name:<{width}}  {system.summary}\n{'':<{width}}  {needs(system)}")
    return 0


def needs(system: System) -> str:
    """What a system asks of the units, and what happens where places have no room, in a line."""
    if not system.engines:
        return "needs: no aggregation engine"
    room = f"is summed by {system.instead}" if system.instead else "is refused"
    return f"needs: units with engine {' or '.join(sorted(system.engines))}; without room there a job {room}"
