"""`testbed runs`: shows, compares and removes the records that commands left."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.records.comparison import Comparison
    from testbed.records.record import Record
    from testbed.records.store import Store


def main(argv: list[str]) -> int:
    """Run the command, and return its exit code (testbed/errors.py)."""
    from testbed.client.caller import Caller
    from testbed.errors import RequestError
    from testbed.records.store import FOLDER, OFF, Store

    options = _parser().parse_args(argv)
    caller = Caller.of_this_process()
    store = Store.of(caller, options.records)
    if store is None:
        raise RequestError(f"{FOLDER}={OFF} switches records off: testbed runs --records DIR")
    if os.geteuid() == 0 and caller.uid != 0:
        caller.become()  # records are the user's, so access them without root's rights
    actions = {"list": _list, "show": _show, "open": _open, "compare": _compare, "remove": _remove}
    return actions[options.action](store, options)


def _parser() -> argparse.ArgumentParser:
    from testbed.records.store import FOLDER, LAST

    parser = environment.Parser(
        prog="testbed runs",
        description="Show, compare and remove the records that commands left.",
    )
    common = environment.Parser(add_help=False, argument_default=argparse.SUPPRESS)
    for either in (parser, common):  # before the action and after it
        either.add_argument(
            "--records",
            type=Path,
            metavar="DIR",
            help=f"the folder of records ({FOLDER}, or your data folder)",
        )
        either.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(records=None, json=False)
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|show|open|compare|remove")
    actions.add_parser("list", parents=[common], help="list the records, the oldest first")
    which = f"the name of a record, a part of it, the path of its folder, or {LAST}, {LAST}~1 ..."
    showing = actions.add_parser("show", parents=[common], help="show records in full")
    showing.add_argument("record", nargs="+", metavar="RECORD", help=which)
    opening = actions.add_parser(
        "open", parents=[common], help="print a record's folder, and open it where there is a desktop"
    )
    opening.add_argument("record", metavar="RECORD", help=which)
    comparing = actions.add_parser(
        "compare",
        parents=[common],
        help="show differences of set-ups and results",
        description="Show the differences of records' set-ups, then of their results, and whether these "
        "exceed the noise. The first record is the baseline.",
    )
    several = f"{which}; several, separated by commas, count as one"
    comparing.add_argument("record", nargs="+", metavar="RECORD", help=several)
    comparing.add_argument("--plot", type=Path, metavar="FILE.png", help="also plot the results there")
    removing = actions.add_parser("remove", parents=[common], help="remove records")
    removing.add_argument("record", nargs="*", metavar="RECORD", help=which)
    removing.add_argument(
        "--all", action="store_true", help="remove all except those that a command still writes"
    )
    return parser


def _list(store: Store, options: argparse.Namespace) -> int:
    from testbed.client.terminal_text import line
    from testbed.records.tables import listing, size

    records = store.records()
    if options.json:
        print(json.dumps([asdict(_listed(record)) for record in records], indent=2))
        return 0
    unread = sorted(set(store.names()) - {record.name for record in records})
    if not records and not unread:
        print(f"no records in {line(str(store.folder))}")
        return 0
    print(listing(records))
    total = sum(record.size_bytes for record in records)
    limit = f"{size(total)} of at most {size(store.limit_bytes)}"
    print(f"\n{len(records)} in {line(str(store.folder))}, {limit}")
    if unread:
        print(f"what does not read as a record: {line(' '.join(unread))}")
    return 0


@dataclass(frozen=True, slots=True)
class ListedRecord:
    """A record, as `testbed runs --json` lists it. `trustworthy` has a value for each run."""

    name: str
    folder: str
    command: str
    words: tuple[str, ...]
    state: str
    failure: str | None
    began: float
    ended: float | None
    trustworthy: tuple[bool | None, ...]
    bytes: int


def _listed(record: Record) -> ListedRecord:
    return ListedRecord(
        name=record.name,
        folder=str(record.folder),
        command=record.command,
        words=record.words,
        state=record.state,
        failure=record.failure,
        began=record.began,
        ended=record.ended,
        trustworthy=tuple(run.trustworthy for run in record.runs),
        bytes=record.size_bytes,
    )


def _show(store: Store, options: argparse.Namespace) -> int:
    from testbed.messages.coding import as_json
    from testbed.records.comparison import means_by_name
    from testbed.records.outcome import outcomes
    from testbed.records.tables import means_said, page

    records = [store.find(word) for word in options.record]
    if not options.json:
        print("\n\n".join(page(record) for record in records))
        return 0
    shown = [
        {
            "name": record.name,
            "folder": str(record.folder),
            **record.to_json(),
            "configuration": record.configuration,
            "means": as_json(means_said(means_by_name(outcomes(record)))),
        }
        for record in records
    ]
    print(json.dumps(shown[0] if len(shown) == 1 else shown, indent=2))
    return 0


def _open(store: Store, options: argparse.Namespace) -> int:
    record = store.find(options.record)
    print(json.dumps({"name": record.name, "folder": str(record.folder)}) if options.json else record.folder)
    desktop = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    opener = shutil.which("xdg-open")
    if desktop and opener and not options.json:
        subprocess.run([opener, str(record.folder)], check=False, stdout=subprocess.DEVNULL)
    return 0


def _compare(store: Store, options: argparse.Namespace) -> int:
    from testbed.errors import RequestError
    from testbed.records.comparison import Side, compare
    from testbed.records.tables import MOST_SIDES, comparison
    from testbed.report.files import replacing

    if not 2 <= len(options.record) <= MOST_SIDES:
        raise RequestError(f"compare {' '.join(options.record)}: 2 to {MOST_SIDES} records are accepted")
    plot: Path | None = options.plot
    if plot is not None and plot.suffix != ".png":
        raise RequestError(f"--plot {options.plot}: a file whose name ends with .png is accepted")
    sides = [Side(tuple(store.find(word) for word in words.split(","))) for words in options.record]
    compared = compare(sides)
    if not options.json:
        print(comparison(compared))
    if not compared.rows:
        plot = None
    if plot is not None:
        from testbed.records.plots import draw  # late: Matplotlib takes long to import

        _folder_of(plot)
        with replacing(plot) as draft:
            draw(compared, draft)
    if options.json:
        print(json.dumps(_as_json(compared, plot), indent=2))
    elif plot is not None:
        print(f"{plot}: each run, and the means with their intervals")
    return 0


def _folder_of(picture: Path) -> None:
    from testbed.errors import HostError

    try:
        picture.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(f"--plot {picture}: {error.strerror}") from error


def _as_json(compared: Comparison, picture: Path | None) -> dict[str, Any]:
    from testbed.messages.coding import as_json
    from testbed.records.tables import mean_said

    return {
        "records": [[record.name for record in side.records] for side in compared.sides],
        "trustworthy": [list(side.verdicts()) for side in compared.sides],
        "set_up": [asdict(part) for part in compared.set_up],
        "result": [
            {
                **asdict(row.measure),
                "means": [each and as_json(mean_said(each)) for each in row.means],
                "differences": [each and asdict(each) for each in row.differences],
            }
            for row in compared.rows
        ],
        "claims": [asdict(part) for part in compared.claims],
        "plot": str(picture) if picture else None,
    }


def _remove(store: Store, options: argparse.Namespace) -> int:
    from testbed.client.terminal_text import line
    from testbed.errors import RequestError

    if options.all == bool(options.record):
        raise RequestError("remove: names of records are accepted, or --all")
    records = (
        [record for record in store.records() if not record.is_busy]
        if options.all
        else _once([store.find(word) for word in options.record])
    )
    for record in records:
        store.remove(record)
    names = [record.name for record in records]
    if options.json:
        print(json.dumps({"removed": names}))
    else:
        print(f"removed {line(' '.join(names)) or 'nothing'}", file=sys.stderr)
    return 0


def _once(records: Sequence[Record]) -> list[Record]:
    return list({record.folder: record for record in records}.values())


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
