"""The aggregation systems, a package each; testbed/plugins/registry.py finds them by name. Also the
command `testbed systems`, which lists them.
"""

from __future__ import annotations


def main(argv: list[str]) -> int:
    """The exit code; see testbed/errors.py."""
    from testbed.systems.listing import main as listing

    return listing(argv)
