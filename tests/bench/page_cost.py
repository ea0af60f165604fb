"""The cost of the live page: CPU time of `testbed web` and of the testbed, with a viewer and without.

    python -m tests.bench.page_cost [--configs default,eight] [--seconds S] [--json FILE]

Needs root, and Debian's chromium. Each configuration is brought up, idle. The viewer is a browser with the
page open; its own time is not counted. `testbed` is the CPU time of all of the testbed's processes beyond
their time without a viewer. CPU time is counted in clock ticks of 10 ms, so S seconds resolve shares of a
core to 1 / S %.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.bench.host import facts
from tests.privileged.browser import browser, web
from tests.privileged.commands import pids_in_testbed, running

SETTLED_S = 15.0


@dataclass(frozen=True, slots=True)
class Spent:
    """Shares of a core in percent, and bytes a second sent to the page."""

    web: float
    testbed: float
    sent_bytes_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """A configuration: without a viewer, with one, and without one again."""

    configuration: str
    before: Spent
    viewer: Spent
    after: Spent

    @property
    def cost(self) -> float:
        """Return the cost of the viewer, in percent of a core."""
        return self.viewer.web + self.viewer.testbed - (self.before.testbed + self.after.testbed) / 2


def seconds_of(pids: list[int]) -> float:
    """Return the CPU time that these processes have used."""
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids if psutil.pid_exists(pid))


def spent(web_pid: int, main_pid: int, wait: Callable[[], None]) -> Spent:
    """Return the CPU time that both use while `wait` runs."""
    pids, began = pids_in_testbed(main_pid), time.monotonic()
    before = seconds_of([web_pid]), seconds_of(pids)
    wait()
    lasted_s = time.monotonic() - began
    shares = [
        100 * (now - then) / lasted_s
        for now, then in zip((seconds_of([web_pid]), seconds_of(pids)), before, strict=True)
    ]
    return Spent(*(round(share, 3) for share in shares))


def measured(config: str, seconds: float) -> Row:
    with running(config) as testbed, web(testbed.name) as addresses:
        (web_pid,) = (
            each.pid for each in psutil.Process().children(recursive=True) if "testbed.web" in each.cmdline()
        )

        def alone() -> Spent:
            time.sleep(SETTLED_S)
            return spent(web_pid, testbed.pid, lambda: time.sleep(seconds))

        before = alone()
        with browser() as chromium:
            page = chromium.new_page(viewport={"width": 1600, "height": 1000})
            sizes: list[int] = []
            page.on("response", lambda answer: sizes.append(len(answer.body())))
            page.goto(addresses["page"])
            page.wait_for_timeout(SETTLED_S * 1e3)
            sizes.clear()
            viewer = spent(web_pid, testbed.pid, lambda: page.wait_for_timeout(seconds * 1e3))
            viewer = Spent(viewer.web, viewer.testbed, round(sum(sizes) / seconds))
        return Row(config, before, viewer, alone())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--configs", default="default,eight")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for config in options.configs.split(","):
        row = measured(config, options.seconds)
        rows.append({**asdict(row), "cost": round(row.cost, 3)})
        print(
            f"{config}: nobody looks: web {row.before.web:.2f} %, again {row.after.web:.2f} %; a viewer: "
            f"web {row.viewer.web:.2f} %, with the testbed {row.cost:.2f} %, "
            f"{row.viewer.sent_bytes_s:.0f} bytes/s"
        )
    if options.json:
        options.json.write_text(json.dumps({"host": facts(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
