"""The line by which a reader and a test know a rendered file."""

from __future__ import annotations


def note(*sources: str, folder: str = "testbed/wire") -> str:
    """Name the modules of a folder that a file is rendered from, and the command that does it."""
    files = ", ".join(f"{source}.py" for source in sources)
    return f"Generated from {folder}/{files} by `make wire`: do not edit."
