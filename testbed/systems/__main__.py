"""`python -m testbed.systems`."""

from __future__ import annotations

from testbed.client import environment
from testbed.systems import main

if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
