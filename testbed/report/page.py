"""The report as one HTML page, which loads nothing else: its pictures are embedded."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from xml.etree import ElementTree

from testbed.client import environment
from testbed.messages.report import DemoReport
from testbed.report.files import replacing
from testbed.report.job_rows import HEADS, MEANS_TOLD, host_told, job_cells, scale_told, trusted_first
from testbed.report.plots import fastest

TEMPLATE = Path(__file__).with_name("report.html")
CAPTIONS = {
    "loss": (
        "Training loss after each iteration (left) and over real time (right). Look for curves that lie on "
        "one another on the left: every way of summing trains the same model. On the right, the curve that "
        "falls first is the fastest way."
    ),
    "iteration_time": (
        "Mean time of an iteration, a bar for each job. Look at how close each bar ends to its dark line, "
        "the least by the links: the closer, the less anything but the links slows the job."
    ),
    "links": (
        "What each link carried for each job. Look for the darkest cells: the busiest link decides how long "
        "a sum takes. Summed in the network, all workers' gradients leave a switch as one."
    ),
    "reconfigurations": (
        "How long ports of the optical switch were without light while circuits changed, asked and measured. "
        "Look for pairs of bars of the same length: the emulation kept the times that it was asked for."
    ),
    "telemetry": (
        "The fullest link, the cores and the sampler's delays over each job's time. Look for links at their "
        "rate while cores are not at 100\u00a0%: then the links, not this machine, set the result."
    ),
}
"""The captions, by the name of the picture's file: what the picture shows, and what to look for."""


def write(path: Path, report: DemoReport, pictures: Sequence[Path]) -> None:
    """Replace the page atomically. Raises HostError if it cannot be written."""
    with replacing(path) as draft:
        draft.write_text(page(report, pictures), encoding="utf-8")


def page(report: DemoReport, pictures: Sequence[Path]) -> str:
    """Make the page with these pictures, which are PNG files."""
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(fastest(report.jobs)),
        scale=escape(scale_told(report)),
        table=_html(_table(report)),
        means=escape(MEANS_TOLD),
        verdicts=_html(_verdicts(report)),
        pictures="\n".join(_html(_figure(picture)) for picture in pictures),
        testbed=escape(environment.typed("").strip()),
        host=escape(host_told(report)),
    )


def _table(report: DemoReport) -> ElementTree.Element:
    table = ElementTree.Element("table")
    heads = ElementTree.SubElement(ElementTree.SubElement(table, "thead"), "tr")
    for head in HEADS:
        ElementTree.SubElement(heads, "th", scope="col").text = head
    body = ElementTree.SubElement(table, "tbody")
    for name, job in report.jobs.items():
        row = ElementTree.SubElement(body, "tr")
        for head, cell in zip(HEADS, job_cells(name, job), strict=True):
            shade = {"class": cell} if head == "trust" and job.verdict.trustworthy is not None else {}
            ElementTree.SubElement(row, "td", shade).text = cell
    return table


def _verdicts(report: DemoReport) -> ElementTree.Element:
    lines = ElementTree.Element("ul")
    for name, job in trusted_first(report):
        ElementTree.SubElement(lines, "li").text = f"{name}: {job.verdict.text}"
    return lines


def _figure(picture: Path) -> ElementTree.Element:
    caption = CAPTIONS[picture.stem]
    figure = ElementTree.Element("figure")
    data = base64.b64encode(picture.read_bytes()).decode("ascii")
    ElementTree.SubElement(figure, "img", src=f"data:image/png;base64,{data}", alt=caption)
    ElementTree.SubElement(figure, "figcaption").text = caption
    return figure


def _html(element: ElementTree.Element) -> str:
    return ElementTree.tostring(element, encoding="unicode", method="html")
