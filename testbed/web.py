"""`testbed web`: serves a page in the browser that shows a testbed and its records, and metrics for
Prometheus.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.client import environment

if TYPE_CHECKING:
    from testbed.webpage.access import Access

PORT = 8050


def main(argv: list[str]) -> int:
    """Run the command until Ctrl-C, and return its exit code (testbed/errors.py)."""
    from testbed.client.caller import Caller
    from testbed.client.runtime import Runtime, add_name_option
    from testbed.errors import RequestError
    from testbed.records.store import Store

    parser = environment.Parser(
        prog="testbed web",
        description="Show a testbed as a page in the browser, on this machine alone, until Ctrl-C; and "
        "metrics for Prometheus at /metrics. It needs no root, and costs nothing while no page is open.",
    )
    add_name_option(parser)
    parser.add_argument(
        "--port", type=int, default=PORT, help=f"the port at 127.0.0.1; 0: any that is free ({PORT})"
    )
    parser.add_argument("--records", type=Path, metavar="DIR", help="the folder of records: docs/records.md")
    parser.add_argument("--json", action="store_true", help="print the addresses as one JSON object")
    options = parser.parse_args(argv)
    if not 0 <= options.port < 1 << 16:
        raise RequestError(f"--port {options.port}: 0 to 65535 are accepted")
    caller = Caller.of_this_process()
    if os.geteuid() == 0 and caller.uid != 0:
        raise RequestError(f"needs no root: run it as {caller.user}, without sudo")
    runtime, store = Runtime.meant(options.name), Store.of(caller, options.records)
    from testbed.webpage.serving import serve  # late: its imports take most of a second

    def ready(access: Access) -> None:
        _say(access, options.json)

    serve(runtime, store, options.port, ready)
    return 0


def _say(access: Access, as_json: bool) -> None:
    """Print the page's addresses."""
    page = f"http://127.0.0.1:{access.port}/"
    addresses = {"page": page, "acting": f"{page}#token={access.token}", "metrics": f"{page}metrics"}
    if as_json:
        print(json.dumps(addresses), flush=True)
        return
    print(f"page     {addresses['page']}")
    print(f"         {addresses['acting']} (this one may also act; keep it to yourself)")
    print(f"metrics  {addresses['metrics']}")
    print("Ctrl-C ends it; the testbed goes on", file=sys.stderr, flush=True)


if __name__ == "__main__":
    environment.ensure()
    environment.command_main(main)
