"""The line by which readers and a test recognise a rendered file."""

from __future__ import annotations


def note(*sources: str, folder: str = "testbed/wire") -> str:
    """Name the modules of a folder from which a file is rendered, and the command that renders it."""
    files = ", ".join(f"{source}.py" for source in sources)
    return f"Generated from {folder}/{files} by `make wire`: do not edit."
