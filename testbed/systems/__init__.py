"""The aggregation systems, one package each; testbed/plugins/registry.py loads them by name. Also the command
`testbed systems`, which lists them.
"""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """Run `testbed systems` and return the exit code; see testbed/errors.py."""
    from testbed.systems.listing import main as listing

    return listing(argv)
