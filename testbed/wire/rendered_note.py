"""The line by which a reader and a test know a rendered file."""

from __future__ import annotations


def note(*sources: str) -> str:
    """Names the modules of this folder that a file is rendered from, and the command that does it."""
    files = ", ".join(f"{source}.py" for source in sources)
    return f"Generated from testbed/wire/{files} by `make contract`: do not edit."
