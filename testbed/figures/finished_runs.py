"""Finished runs of a live figure, in a file from the moment that each is done: a command that was cut goes on
behind them. Owns the file `rows.jsonl` of a figure's folder of runs.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from testbed.client.caller import Caller
from testbed.errors import TestbedError
from testbed.figures.document import commit
from testbed.messages.coding import as_json, decode, plain

FILE = "rows.jsonl"
Row = TypeVar("Row")


def stamp(asked: Mapping[str, object], checkout: Path) -> str:
    """Return what runs of one command have in common: its options, and the source, changes included."""
    words = ["git", "-C", str(checkout), "diff", "HEAD"]
    try:
        changes = subprocess.run(words, capture_output=True, check=False).stdout
    except OSError:
        changes = b""
    text = json.dumps(asked, sort_keys=True, default=str)
    return f"{commit(checkout)} {hashlib.sha256(changes + text.encode()).hexdigest()[:16]}"


def begin(folder: Path, its_stamp: str) -> int:
    """Return how many runs of an earlier try of the same command are kept in a folder; forget others."""
    file = folder / FILE
    with Caller.of_this_process().acting():
        text = file.read_text() if file.exists() else ""
        if text.partition("\n")[0] == its_stamp:
            if not text.endswith("\n"):  # a row that was cut: the next one has a line of its own
                with file.open("a") as opened:
                    opened.write("\n")
            return len(_rows(file))
        folder.mkdir(exist_ok=True)
        file.write_text(f"{its_stamp}\n")
    return 0


def end(folder: Path) -> None:
    """Forget the runs, which the figure's document has."""
    with Caller.of_this_process().acting():
        (folder / FILE).unlink(missing_ok=True)


def row(folder: Path, name: str, kind: type[Row], measure: Callable[[], Row]) -> Row:
    """Return a run's row: the one that is kept by this name, else what `measure` returns, which is kept. A
    row that is kept and is none of `kind` is measured again. TestbedError for a measured one that is none.
    """
    file = folder / FILE
    with Caller.of_this_process().acting():
        known = _rows(file)
    if name in known:
        with suppress(TestbedError):
            return decode(kind, known[name], f"{file}: {name}")
    measured = plain(measure())
    made = decode(kind, measured, f"the run {name}")
    keep(folder, name, measured)
    return made


def keep(folder: Path, name: str, done: object) -> None:
    """Append a run's row, at once."""
    with Caller.of_this_process().acting(), (folder / FILE).open("a") as file:
        file.write(json.dumps({"name": name, "row": as_json(done)}) + "\n")
        file.flush()


def _rows(file: Path) -> dict[str, object]:
    """Return the rows by name; a last line that was cut is none."""
    rows: dict[str, object] = {}
    for line in file.read_text().splitlines()[1:] if file.exists() else ():
        try:
            each = json.loads(line)
        except ValueError:
            continue
        rows[each["name"]] = each["row"]
    return rows
