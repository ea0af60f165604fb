"""Debian's headless Chromium, with a page of `testbed web`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from playwright.sync_api import Browser, Page, Request, sync_playwright

from tests.conftest import lacking
from tests.limits import CALL_S
from tests.privileged.commands import bounded, start, wait_for

CHROMIUM = Path("/usr/bin/chromium")
WIDE, NARROW = 1600, 400


class Shown:
    """An open page of `testbed web`. `wrong` lists requests to other servers and failures of scripts."""

    def __init__(self, page: Page, address: str) -> None:
        self._page, self.address = page, address
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda line: self.wrong.append(line.text) if line.type == "error" else None)
        page.on("request", self._check_request)

    def _check_request(self, request: Request) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.wrong.append(f"asked for {request.url}")

    def goes_to(self, path: str = "") -> Self:
        """Open a path of the page, and wait until it is filled."""
        self._page.goto(self.address + path)
        self._page.wait_for_selector("#head h1")
        return self

    def table(self, name: str) -> list[list[str]]:
        """Return the cells of a table by row; empty where there is no table."""
        read = """name => [...document.querySelectorAll(`#table-${name} tbody tr`)]
            .map(row => [...row.querySelectorAll("td")].map(cell => cell.innerText))"""
        return list(self._page.evaluate(read, name))

    def text(self, selector: str) -> str:
        """Return the visible text of a selector; empty where it is hidden."""
        read = "selector => document.querySelector(selector)?.checkVisibility() && "
        read += "document.querySelector(selector).innerText || ''"
        return str(self._page.evaluate(read, selector))

    def drawn(self, kind: str, picture: str = "fabric") -> list[dict[str, Any]]:
        """Return the traces of a kind in a picture, in Plotly's form."""
        read = """([picture, kind]) => [...document.querySelectorAll(`#section-${picture} .js-plotly-plot`)]
            .flatMap(plot => plot.data).filter(trace => !kind || trace.meta === kind)
            .map(trace => JSON.parse(JSON.stringify(trace)))"""
        return list(self._page.evaluate(read, [picture, kind]))

    def buttons(self) -> list[str]:
        """Return the labels of the visible buttons."""
        made = self._page.locator("button.act")
        return [each.inner_text() for each in made.all() if each.is_visible()]

    def clicks(self, selector: str) -> None:
        self._page.click(selector)

    def becomes(self, width: int, dark: bool = False) -> None:
        """Set the window's width, and a dark or light background."""
        self._page.set_viewport_size({"width": width, "height": 1000})
        self._page.emulate_media(color_scheme="dark" if dark else "light")

    def fits(self) -> bool:
        """Return whether the page and its timeline are no wider than the window."""
        read = """() => Math.max(document.documentElement.scrollWidth,
            document.querySelector("#timeline svg").getBoundingClientRect().right) <= window.innerWidth"""
        return bool(self._page.evaluate(read))

    def screenshot(self, path: Path) -> None:
        self._page.screenshot(path=path, full_page=True)


@contextmanager
def browser() -> Iterator[Browser]:
    """Run Chromium during the block."""
    if not CHROMIUM.exists():
        lacking("chromium", "chromium is not installed; remedy: apt-get install chromium")
    with sync_playwright() as playwright:
        # its sandbox does not work as root; it opens only this project's own page
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield made
        finally:
            made.close()


@contextmanager
def web(name: str, *words: str) -> Iterator[dict[str, str]]:
    """Run `testbed web` for a testbed on a free port during the block, and yield its addresses."""
    process = start("testbed.web", "--name", name, "--port", "0", "--json", *words)
    with bounded(process, 600.0):
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.communicate(timeout=CALL_S)


@contextmanager
def prometheus(folder: Path, target: str, port: int) -> Iterator[str]:
    """Run Debian's Prometheus during the block; it scrapes the target every second. Yield the address
    of its API.
    """
    if shutil.which("prometheus") is None:
        lacking("prometheus", "prometheus is not installed; remedy: apt-get install prometheus")
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s}\n"
        f"scrape_configs: [{{job_name: testbed, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    argv = [
        *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'series'}"),
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            wait_for(lambda: process.poll() is not None, "prometheus's end")
